//! Runs scenario files: the real runtime with a scripted model, scripted tools and injected faults,
//! on a virtual clock.
//!
//! A rehearsal uses the code of production: the same machine, driver, retry stack, SQLite log and error store. Only the
//! model, the tools and the faults come from the file, and waits take no real time. [`rehearse()`] returns a
//! [`Rehearsal`]; its JSON is what `backstop rehearse --json` prints.
//!
//! [`RunReport`] is the part of that JSON that `backstop run --json` also prints.

mod agents;
mod approvals;
mod expect;
mod faults;
mod hooks;
mod leftovers;
mod marks;
mod memory;
mod model;
mod operators;
mod report;
mod runs;
mod signals;
mod stage;
mod tools;
mod waited;

pub use model::SentRequest;
pub use report::{ReportedRun, RunReport, stored_errors};
pub use runs::session_runs;
pub use stage::{Rehearsal, RehearsalError, rehearse};
