//! Retention and removal of runs, errors and results in durable stores.
//!
//! A store reads and removes rows; this crate decides what can be removed and why something is kept, in the same way
//! for every store. It never reads a clock or a database.
//!
//! ```
//! use std::time::Duration;
//!
//! use backstop_retention::StoreRetention;
//!
//! let kept = StoreRetention::default().runs(Duration::from_secs(30 * 24 * 60 * 60));
//! assert!(kept.runs.is_some() && kept.texts.max_age.is_some());
//! ```

mod dry_run;
mod forgetting;
mod life;
mod remove_error;
mod removal;
mod removed;
mod run_row;
mod upkeep;

pub use dry_run::{plan_delete, plan_forget, plan_prune};
pub use forgetting::{forget_session, session_scopes};
pub use life::Life;
pub use removal::{PAGE, Removal, RunShelf, delete_run, prune_runs, prune_segments};
pub use remove_error::RemoveError;
pub use removed::{Forgotten, Fork, Removed, Tombstone};
pub use run_row::{OldRun, RunRow, removable, trees, why_kept};
pub use upkeep::{EarlierPass, StoreRetention, Upkeep, expired_until};
