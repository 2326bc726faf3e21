//! Which store, and commands about its file.

use std::path::PathBuf;

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
pub(crate) struct VacuumArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
