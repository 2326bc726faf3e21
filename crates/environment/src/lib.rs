//! Walls around a program: which files, hosts and processes it reaches, and how much it may use.
//!
//! [`Rules`] say what a program may do; [`Walls`] hold it to them, by the kernel: Landlock, seccomp, namespaces,
//! control groups and limits of processes. What is asked for and cannot be enforced on this machine is refused with
//! the name of the mechanism ([`Support`] is the table), never ignored. A network rule leaves one way out: a proxy in
//! this process, which knows the hosts that are allowed.
//!
//! It never runs code between `fork` and `exec`: the program runs itself again as a [`Helper`], which puts up the
//! walls around itself and starts the walled program then. So the first line of `main` is [`enter`].
//!
//! It never reads what a walled program prints, and does not judge what it does within its rules.
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
pub use walled::{Ended, Held, ProgramInput, Walled, WalledProgram};
pub use walls::Walls;
