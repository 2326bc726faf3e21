//! What the command line takes.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Run LLM agents whose failures have one place to land, and read the record they leave.
#[derive(Parser)]
#[command(
    name = "backstop",
    version,
    after_help = "Exit codes: 0 finished, 1 run failed, 2 usage or configuration, 3 stopped (incomplete, budget, cancelled), \
                  4 waiting for approval, 5 storage, 6 replay diverged or log tampered.\n\
                  Set BACKSTOP_LOG=debug to see the spans and events of the runtime."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run an agent file
    Run(RunArgs),
    /// Go on with a run whose process died or that waited for a person
    Resume(ResumeArgs),
    /// Check that a run's decisions follow from its record; runs no model and no tool
    Replay(ReplayArgs),
    /// Copy a run up to an event and go on from there
    Fork(ForkArgs),
    /// Show where two runs part
    Diff(DiffArgs),
    /// List the calls that wait for a person
    Approvals(ApprovalsArgs),
    /// Let a call run that waits for a person
    Approve(ApproveArgs),
    /// Keep a call from running that waits for a person
    Deny(DenyArgs),
    /// List recorded runs, newest first
    Runs(RunsArgs),
    /// Show what happened in a run, one line per event
    Trace(TraceArgs),
    /// Read the errors that tools reported
    Errors(ErrorsArgs),
    /// Read the large results that tools returned
    Results(ResultsArgs),
    /// List every code: what it means and what to do
    Codes(CodesArgs),
    /// Run scenario files: how an agent fails, before it does
    Rehearse(RehearseArgs),
}

/// Where the record is kept.
#[derive(clap::Args)]
pub(crate) struct StoreArgs {
    /// Store to use: sqlite:PATH or sqlite::memory: [default: the agent file's, else
    /// $BACKSTOP_STORE, else the platform's data folder]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
}

#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// The agent file
    #[arg(value_name = "AGENT.toml")]
    pub(crate) agent: PathBuf,
    /// What to ask: text, - for standard input, @FILE for a file [default: the agent file's]
    #[arg(long, value_name = "TEXT|-|@FILE", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,
    /// Show the model a picture (PNG, JPEG, GIF or WebP); may be given more than once
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<PathBuf>,
    /// Go on with this conversation; a new one otherwise
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object with everything
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ResumeArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Use this agent file instead of the recorded one
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object with everything
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ReplayArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Hold the run against this agent file; another agent diverges at the start
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ForkArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// The last event that is copied, as `trace` numbers it
    #[arg(long, value_name = "SEQ")]
    pub(crate) at: u64,
    /// Say this to the model before it is asked next
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,
    /// Use model and tools of this agent file instead of the recorded one
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    /// Record the copy in another store
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object with everything
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct DiffArgs {
    /// A run
    #[arg(value_name = "RUN")]
    pub(crate) one: String,
    /// Another run, such as a copy of it
    #[arg(value_name = "RUN")]
    pub(crate) other: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ApprovalsArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ApproveArgs {
    /// The question, as `approvals` lists it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Who decides
    #[arg(long, value_name = "NAME")]
    pub(crate) by: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(clap::Args)]
pub(crate) struct DenyArgs {
    /// The question, as `approvals` lists it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Who decides
    #[arg(long, value_name = "NAME")]
    pub(crate) by: String,
    /// Why; the model reads it
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(clap::Args)]
pub(crate) struct RunsArgs {
    /// Only runs of this session
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct TraceArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one event as JSON per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Write one page that shows the run, to open in a browser or to send
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) html: Option<PathBuf>,
}

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
    /// Take away old errors; what is kept otherwise too: 30 days, 256 MiB
    Prune(ErrorsPruneArgs),
    /// Count errors by tool, code and session, with the characters kept from the model
    Stats(ErrorsStatsArgs),
}

#[derive(clap::Args)]
pub(crate) struct ErrorsPruneArgs {
    /// Keep errors seen within this many days
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    pub(crate) days: u32,
    /// Keep at most this many errors
    #[arg(long, value_name = "N")]
    pub(crate) rows: Option<u64>,
    /// Keep at most this many bytes of raw errors
    #[arg(long, value_name = "N", default_value_t = 256 * 1024 * 1024)]
    pub(crate) bytes: u64,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ErrorsStatsArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ErrorsListArgs {
    /// Only errors of this run
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Only errors of this session
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Only errors of this tool
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ErrorsShowArgs {
    /// The error's id
    #[arg(value_name = "ID")]
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
    /// Show a whole result
    Show(ResultsShowArgs),
}

#[derive(clap::Args)]
pub(crate) struct ResultsShowArgs {
    /// The result's id
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct CodesArgs {
    /// Only codes that begin with this
    #[arg(value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct RehearseArgs {
    /// The scenario files
    #[arg(value_name = "SCENARIO.toml", required = true)]
    pub(crate) scenarios: Vec<PathBuf>,
    /// Print one JSON object per scenario
    #[arg(long)]
    pub(crate) json: bool,
}
