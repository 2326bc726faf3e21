//! Servers on loopback, and their client.

mod client;
mod closed;
mod http;
mod judging;
mod loopback;
mod private_keys;
mod relay;
mod reply;
mod scripted;

pub use client::{Heard, KEY, TOKEN, hello, send};
pub use closed::ClosedPort;
pub use http::Request;
pub use loopback::Loopback;
pub use relay::Relay;
pub use reply::{Ending, Reply};
pub use scripted::ScriptedEndpoint;

pub(crate) use client::{all_of, patient, shows_a_secret};
