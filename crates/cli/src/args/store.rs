//! The choice of a store, and commands about its file.

use std::ops::Deref;
use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use layer0::Timestamp;

use super::values::{moment, not_blank};

/// The store of records.
#[derive(Clone, clap::Args)]
pub(crate) struct StoreArgs {
    /// Store to use: sqlite:PATH, sqlite::memory: or postgres://USER@HOST/DATABASE [default: the agent file's,
    /// else $BACKSTOP_STORE, else the platform's data folder]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
}

/// The store of commands that need a PostgreSQL server. It is chosen like any other store.
pub(crate) struct SharedStoreArgs(StoreArgs);

impl SharedStoreArgs {
    const HELP: &str = "Store to use, on a PostgreSQL server: postgres://USER@HOST/DATABASE [default: the agent \
        file's, else $BACKSTOP_STORE]";

    fn with_store_help(command: Command) -> Command {
        command.mut_arg("store", |store| store.help(Self::HELP))
    }
}

impl Deref for SharedStoreArgs {
    type Target = StoreArgs;

    fn deref(&self) -> &StoreArgs {
        &self.0
    }
}

impl Args for SharedStoreArgs {
    fn augment_args(command: Command) -> Command {
        Self::with_store_help(StoreArgs::augment_args(command))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::with_store_help(StoreArgs::augment_args_for_update(command))
    }
}

impl FromArgMatches for SharedStoreArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        StoreArgs::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

#[derive(clap::Args)]
pub(crate) struct BackupArgs {
    /// File to create; an existing file is not changed
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
    /// Store to read: sqlite:PATH
    #[arg(long, value_name = "URL")]
    pub(crate) from: String,
    /// Store to write to; created if it does not exist
    #[arg(long, value_name = "URL")]
    pub(crate) to: String,
    /// Copy only runs of this session
    #[arg(long, value_name = "ID", value_parser = not_blank)]
    pub(crate) session: Option<String>,
    /// Copy only runs that began at this moment or later
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
