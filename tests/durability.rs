//! What is kept, and what comes of it in another process.

mod commits;
#[cfg(unix)]
mod deliveries;
#[cfg(unix)]
mod flow;
#[cfg(unix)]
mod kill;
mod recorded;
mod replayed;
mod same_records;
mod sessions;
mod taken_ids;
#[cfg(unix)]
mod tree;
#[cfg(unix)]
mod workers;
