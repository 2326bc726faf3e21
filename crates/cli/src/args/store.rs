//! Which store, and commands about its file.

use std::path::PathBuf;

use layer0::Timestamp;

use super::values::{moment, not_blank};

/// Where the record is kept.
#[derive(clap::Args)]
pub(crate) struct StoreArgs {
    /// Store to use: sqlite:PATH or sqlite::memory: [default: the agent file's, else
    /// $BACKSTOP_STORE, else the platform's data folder]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
}

#[derive(clap::Args)]
pub(crate) struct BackupArgs {
    /// The new file; one that is there already is left alone
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct CopyArgs {
    /// The store to read: sqlite:PATH
    #[arg(long, value_name = "URL")]
    pub(crate) from: String,
    /// The store to write to; it is made where there is none
    #[arg(long, value_name = "URL")]
    pub(crate) to: String,
    /// Only runs of this session
    #[arg(long, value_name = "ID", value_parser = not_blank)]
    pub(crate) session: Option<String>,
    /// Only runs that began at this moment or later
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) since: Option<Timestamp>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct VacuumArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
