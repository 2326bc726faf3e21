//! What a process does to its machine and beyond: it starts programs, fetches credentials that are kept elsewhere,
//! and sends requests.
//!
//! [`deny_real_requests`] keeps requests on this machine; all that send one ask [`check_request`].
//!
//! With the feature `programs`, `spawn_without_new_privileges` is the one way in which programs are started without
//! walls: those of command tools, and those of MCP servers. With `credentials`, a `Credential` says where one is
//! kept, wherever that is written: in headers, logins, and variables of programs.
//!
//! It never decides whether a program may run, and holds it to nothing else: that is what walls are for. It never
//! shows a credential.
//!
//! ```
//! use backstop_process::Credential;
//! use process_wrap::tokio::CommandWrap;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # #[cfg(unix)] {
//! let mut child = backstop_process::spawn_without_new_privileges(CommandWrap::with_new("true", |_| {}))?;
//! assert!(child.wait().await?.success());
//!
//! let path = Credential::parse("env:PATH")?.fetch().await?;
//! assert!(path.expose().contains("/bin"));
//! # }
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "credentials")]
mod credential;
#[cfg(feature = "programs")]
mod privileges;
mod requests;

#[cfg(feature = "credentials")]
pub use credential::{Credential, Secret};
#[cfg(feature = "programs")]
pub use privileges::spawn_without_new_privileges;
pub use requests::{RequestDenied, check_request, deny_real_requests, is_loopback};
