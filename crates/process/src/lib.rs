//! What a process does to its machine: it starts programs.
//!
//! [`spawn_without_new_privileges`] is the one way in which programs are started without walls: those of command
//! tools, and those of MCP servers.
//!
//! It never decides whether a program may run, and holds it to nothing else: that is what walls are for.
//!
//! ```
//! use process_wrap::tokio::CommandWrap;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! # #[cfg(unix)] {
//! let mut child = backstop_process::spawn_without_new_privileges(CommandWrap::with_new("true", |_| {}))?;
//! assert!(child.wait().await?.success());
//! # }
//! # Ok(())
//! # }
//! ```

mod privileges;

pub use privileges::spawn_without_new_privileges;
