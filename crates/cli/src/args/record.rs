//! Commands about the record of one run.

use std::path::PathBuf;

use super::store::StoreArgs;
use super::values::not_blank;

#[derive(clap::Args)]
pub(crate) struct TraceArgs {
    /// Run: its id, a unique prefix of its id, or `last`; or a subscription: sub_NAME
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print each event of this run as one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the recorded events, then each new event, from whichever process, until the run ends
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Leave out child runs
    #[arg(long)]
    pub(crate) flat: bool,
    /// Write one HTML page that shows the run and its child runs, to open in a browser or to send
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
    /// Run, or a subscription: sub_NAME [default: all records of the store]
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
    /// Run: its id, a unique prefix of its id, or `last`; or a segment: sub_NAME.NUMBER
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    /// File to write, readable only by its owner [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object that describes the written file; without --file the export is JSON itself
    #[arg(long, requires = "file")]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct RedactArgs {
    /// Run: its id, a unique prefix of its id, or `last`
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    /// Sequence number of the event, as `trace` shows it
    #[arg(value_name = "SEQ")]
    pub(crate) seq: u64,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
