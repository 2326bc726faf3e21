//! Log and stores on a real PostgreSQL server.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod chains;
mod crashes;
mod credentials;
mod enqueued;
mod fencing;
mod following;
mod full_disk;
mod keys;
mod limits;
mod lists;
mod lost_tails;
mod meanwhile;
mod opening;
mod pooling;
mod queue;
mod removal;
mod retention;
mod rows;
mod runs;
mod sealed;
mod sharing;
mod standby;
mod stranded;
mod subscriptions;
mod support;
mod suites;
mod tls;
mod trees;
mod unreadable;
