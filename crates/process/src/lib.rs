//! Effects of a process on its machine and beyond: it starts programs, fetches credentials that are
//! kept elsewhere, and sends requests.
//!
//! [`deny_real_requests`] keeps requests on this machine; all code that sends one calls
//! [`check_request`]. [`is_private`] identifies addresses that are not public.
//!
//! With the feature `programs`, `Processes` is the only way in which programs are started without
//! walls: those of command tools, and those of MCP servers. Neither they nor their child processes
//! outlive this process. With `credentials`, a `Credential` refers to a credential in another
//! place, for use in headers, logins, and variables of programs.
//!
//! With `hints`, the times are read that answers over HTTP ask a client to wait.
//!
//! It never decides whether a program may run, and does not restrict it otherwise: that is the
//! purpose of walls. It never shows a credential.
//!
//! ```
//! use backstop_process::{Credential, Processes};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # #[cfg(unix)] {
//! let mut processes = Processes::start("true", |_| {})?;
//! assert!(processes.wait().await?.success());
//!
//! let path = Credential::parse("env:PATH")?.fetch().await?;
//! assert!(path.expose().contains("/bin"));
//! # }
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod addresses;
#[cfg(feature = "credentials")]
mod credential;
#[cfg(feature = "hints")]
pub mod hints;
#[cfg(feature = "programs")]
mod input;
#[cfg(feature = "programs")]
mod privileges;
#[cfg(feature = "programs")]
mod processes;
mod requests;

pub use addresses::is_private;
#[cfg(feature = "credentials")]
pub use credential::{Credential, Secret};
#[cfg(feature = "programs")]
pub use input::CompleteInput;
#[cfg(feature = "programs")]
pub use processes::{MARK, Processes, new_mark};
pub use requests::{RequestDenied, check_request, deny_real_requests, is_loopback};
