//! Commands about the record of one run.

use std::path::PathBuf;

use super::store::StoreArgs;
use super::values::not_blank;

#[derive(clap::Args)]
pub(crate) struct TraceArgs {
    /// The run: its id, a beginning of it that no other has, or `last`; or a subscription: sub_NAME
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one event of this run as JSON per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what is there, then each event as it comes, from whichever process, until the run is over
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Leave out the runs that it dispatched
    #[arg(long)]
    pub(crate) flat: bool,
    /// Write one page that shows the run and those it dispatched, to open in a browser or to send
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "follow"])]
    pub(crate) html: Option<PathBuf>,
}

impl TraceArgs {
    /// Returns whether only the run itself is printed, without its child runs.
    pub(crate) const fn is_alone(&self) -> bool {
        self.flat || self.json
    }
}

#[derive(clap::Args)]
pub(crate) struct VerifyArgs {
    /// The run, or a subscription: sub_NAME; all records of the store without one
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: Option<String>,
    /// Check all runs of the store
    #[arg(long, conflicts_with = "run")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per run
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ExportArgs {
    /// The run: its id, a beginning of it that no other has, or `last`; or a segment: sub_NAME.NUMBER
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    /// Where to write it, readable for its owner alone; standard output otherwise
    #[arg(long, short, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object that says what was written; without --file the export is JSON itself
    #[arg(long, requires = "file")]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct RedactArgs {
    /// The run: its id, a beginning of it that no other has, or `last`
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    /// The event, as `trace` numbers it
    #[arg(value_name = "SEQ")]
    pub(crate) seq: u64,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
