//! Commands about stored errors and results.

use clap::Subcommand;

use super::runs::ListedState;
use super::store::StoreArgs;
use super::values::{TimeArgs, from_one, known_code, not_blank};

#[derive(clap::Args)]
pub(crate) struct ErrorsArgs {
    #[command(subcommand)]
    pub(crate) command: ErrorsCommand,
}

#[derive(Subcommand)]
pub(crate) enum ErrorsCommand {
    /// List stored errors, newest first
    List(ErrorsListArgs),
    /// Show a whole error
    Show(ErrorsShowArgs),
    /// Take away old errors and results; what is kept otherwise too: 30 days, 256 MiB
    Prune(ErrorsPruneArgs),
    /// Count errors by tool, code and session, with the characters kept from the model
    Stats(ErrorsStatsArgs),
}

#[derive(clap::Args)]
pub(crate) struct ErrorsPruneArgs {
    /// Keep errors and results of this many days
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    pub(crate) days: u32,
    /// Keep at most this many of each
    #[arg(long, value_name = "N")]
    pub(crate) rows: Option<u64>,
    /// Keep at most this many bytes of each
    #[arg(long, value_name = "N", default_value_t = 256 * 1024 * 1024)]
    pub(crate) bytes: u64,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// What errors are counted by.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Grouping {
    /// The code of the failure
    Code,
    /// The day, in UTC
    Day,
    /// The tool, or the provider
    Tool,
}

#[derive(clap::Args)]
pub(crate) struct ErrorsStatsArgs {
    /// Count by this, failed attempts at models too [default: code where only some are counted, else
    /// tool, code and session of what tools reported]
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<Grouping>,
    #[command(flatten)]
    pub(crate) which: WhichErrors,
    /// At most this many lines, those that spared the model most first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = from_one())]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which errors. All conditions have to hold.
#[derive(clap::Args)]
pub(crate) struct WhichErrors {
    /// Only errors of this run
    #[arg(long, value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: Option<String>,
    /// Only errors of this session
    #[arg(long, value_name = "ID", value_parser = not_blank)]
    pub(crate) session: Option<String>,
    /// Only errors that runs of the agent of this name met
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) agent: Option<String>,
    /// Only errors that runs in this state met; may be given more than once
    #[arg(long = "state", value_name = "STATE")]
    pub(crate) states: Vec<ListedState>,
    /// Only errors of this tool
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) tool: Option<String>,
    /// Only errors with this code, as `backstop codes` lists it, or with one of a family: tool.*
    #[arg(long, value_name = "CODE", value_parser = known_code)]
    pub(crate) code: Option<String>,
    #[command(flatten)]
    pub(crate) time: TimeArgs,
}

#[derive(clap::Args)]
pub(crate) struct ErrorsListArgs {
    #[command(flatten)]
    pub(crate) which: WhichErrors,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = from_one())]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ErrorsShowArgs {
    /// The error's id, a beginning of it that no other has, or `last`
    #[arg(value_name = "ID", value_parser = not_blank)]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ResultsArgs {
    #[command(subcommand)]
    pub(crate) command: ResultsCommand,
}

#[derive(Subcommand)]
pub(crate) enum ResultsCommand {
    /// List stored results, newest first
    List(ResultsListArgs),
    /// Show a whole result
    Show(ResultsShowArgs),
}

#[derive(clap::Args)]
pub(crate) struct ResultsListArgs {
    /// Only results of this run
    #[arg(long, value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: Option<String>,
    /// Only results of this session
    #[arg(long, value_name = "ID", value_parser = not_blank)]
    pub(crate) session: Option<String>,
    /// Only results of this tool
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) tool: Option<String>,
    #[command(flatten)]
    pub(crate) time: TimeArgs,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = from_one())]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ResultsShowArgs {
    /// The result's id, a beginning of it that no other has, or `last`
    #[arg(value_name = "ID", value_parser = not_blank)]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
