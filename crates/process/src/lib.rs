//! What a process does to its machine and beyond: it starts programs, fetches credentials that are kept elsewhere,
//! and sends requests.
//!
//! [`deny_real_requests`] keeps requests on this machine; all that send one ask [`check_request`]. Which addresses are
//! not public says [`is_private`].
//!
//! With the feature `programs`, `Processes` is the one way in which programs are started without walls: those of
//! command tools, and those of MCP servers. They do not outlive this process, nor does what they start. With `credentials`, a `Credential` says where one is
//! kept, wherever that is written: in headers, logins, and variables of programs.
//!
//! It never decides whether a program may run, and holds it to nothing else: that is what walls are for. It never
//! shows a credential.
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

mod addresses;
#[cfg(feature = "credentials")]
mod credential;
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
