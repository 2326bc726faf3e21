//! Walls around a program: limits on its files, hosts, processes and resources.
//!
//! [`Rules`] state the rights of a program; [`Walls`] enforce them by the kernel: Landlock, seccomp, namespaces,
//! control groups and process limits. A rule that cannot be enforced on this machine is refused with the name of the
//! mechanism ([`Support`] is the table), never ignored. With a network rule, the only way out is a proxy in this
//! process that knows the allowed hosts.
//!
//! No code runs between `fork` and `exec`: the program runs itself again as a [`Helper`], which puts up the walls
//! around itself and then starts the walled program. For this, the first line of `main` has to be [`enter`].
//!
//! The crate never reads the output of a walled program, and does not judge its behaviour within the rules.
//!
//! ```no_run
//! use std::collections::BTreeMap;
//!
//! use backstop_environment::{Helper, Network, Rules, WalledProgram, Walls};
//! use layer0::error::EnvError;
//!
//! fn main() -> Result<(), EnvError> {
//!     backstop_environment::enter();
//!     let rules = Rules::new().network(Network::Hosts(vec!["api.example.com".into()])).read(["./data"]);
//!     let walls = Walls::new(rules, Helper::this_program()?)?;
//!     let runtime = tokio::runtime::Runtime::new().map_err(|error| EnvError::Other(error.into()))?;
//!     runtime.block_on(async {
//!         let variables = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
//!         let arguments = ["-c".to_owned(), "ls data".to_owned()];
//!         let program = WalledProgram::new("sh", arguments, ".", variables);
//!         let mut walled = walls.command(program).spawn().await?;
//!         let ended = walled.wait().await?;
//!         println!("{ended}; held: {:?}", walled.broken());
//!         Ok(())
//!     })
//! }
//! ```

mod command;
mod helper;
mod message;
mod not_enforced;
mod operator;
mod plan;
mod proxy;
mod rules;
mod support;
mod walled;
mod walls;

pub use command::WalledCommand;
pub use helper::{Helper, enter};
pub use not_enforced::NotEnforced;
pub use rules::{Network, Rules};
pub use support::{Mechanism, Support, SupportRow};
pub use walled::{BlockedOperations, ProgramExit, ProgramInput, Walled, WalledProgram};
pub use walls::Walls;
