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
    /// Delete errors and results beyond 30 days or 256 MiB, the limits that also apply without this command
    Prune(ErrorsPruneArgs),
    /// Count errors by tool, code and session, with the characters kept from the model
    Stats(ErrorsStatsArgs),
}

#[derive(clap::Args)]
pub(crate) struct ErrorsPruneArgs {
    /// Number of days for which errors and results are kept
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    pub(crate) days: u32,
    /// Maximum number of errors, and of results, to keep
    #[arg(long, value_name = "N")]
    pub(crate) rows: Option<u64>,
    /// Maximum bytes of errors, and of results, to keep
    #[arg(long, value_name = "N", default_value_t = 256 * 1024 * 1024)]
    pub(crate) bytes: u64,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A grouping of stored errors.
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
    /// Group by this, and count failed attempts of model calls too [default: code where a filter is given, else tool,
    /// code and session of the errors that tools reported]
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<Grouping>,
    #[command(flatten)]
    pub(crate) which: WhichErrors,
    /// Maximum number of lines; lines that kept the most characters from the model come first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = from_one())]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A filter for errors. All conditions must hold.
#[derive(clap::Args)]
pub(crate) struct WhichErrors {
    /// Select only errors of this run
    #[arg(long, value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: Option<String>,
    /// Select only errors of this session
    #[arg(long, value_name = "ID", value_parser = not_blank)]
    pub(crate) session: Option<String>,
    /// Select only errors from runs of the agent with this name
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) agent: Option<String>,
    /// Select only errors from runs in this state; may be given more than once
    #[arg(long = "state", value_name = "STATE")]
    pub(crate) states: Vec<ListedState>,
    /// Select only errors of this tool
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) tool: Option<String>,
    /// Select only errors with this code, as `backstop codes` lists it, or of a family of codes, such as tool.*
    #[arg(long, value_name = "CODE", value_parser = known_code)]
    pub(crate) code: Option<String>,
    #[command(flatten)]
    pub(crate) time: TimeArgs,
}

#[derive(clap::Args)]
pub(crate) struct ErrorsListArgs {
    #[command(flatten)]
    pub(crate) which: WhichErrors,
    /// Maximum number of entries to list
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
    /// Error: its id, a unique prefix of its id, or `last`
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
    /// List only results of this run
    #[arg(long, value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: Option<String>,
    /// List only results of this session
    #[arg(long, value_name = "ID", value_parser = not_blank)]
    pub(crate) session: Option<String>,
    /// List only results of this tool
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) tool: Option<String>,
    #[command(flatten)]
    pub(crate) time: TimeArgs,
    /// Maximum number of entries to list
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
    /// Result: its id, a unique prefix of its id, or `last`
    #[arg(value_name = "ID", value_parser = not_blank)]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
