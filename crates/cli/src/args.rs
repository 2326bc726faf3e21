//! What the command line takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

/// Run LLM agents whose failures have one place to land, and read the record they leave.
#[derive(Parser)]
#[command(
    name = "backstop",
    bin_name = "backstop",
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
    /// Stop a run, whichever process runs it
    Cancel(CancelArgs),
    /// Check that records are what was recorded: chain, head and summary
    Verify(VerifyArgs),
    /// Erase what one event of a run says; the record still verifies, and cannot be replayed
    Redact(RedactArgs),
    /// List recorded runs, newest first; take old ones away
    Runs(RunsArgs),
    /// Forget a session: its runs, their errors and results
    Sessions(SessionsArgs),
    /// Copy the store to a new file, while others write to it
    Backup(BackupArgs),
    /// Give the room of what was deleted back to the file system
    Vacuum(VacuumArgs),
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
    /// What to ask: text, - for standard input, @FILE for a file, of at most 16 MiB [default: the
    /// agent file's]
    #[arg(long, value_name = "TEXT|-|@FILE", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,
    /// Show the model a picture (PNG, JPEG, GIF or WebP) of at most 20 MiB; may be given more than
    /// once
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<PathBuf>,
    /// Go on with this conversation; a new one otherwise
    #[arg(long, value_name = "ID", value_parser = not_blank)]
    pub(crate) session: Option<String>,
    /// File the run under a label; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object with everything
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ResumeArgs {
    /// The run
    #[arg(value_name = "RUN", value_parser = not_blank)]
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
    #[arg(value_name = "RUN", value_parser = not_blank)]
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
    #[arg(value_name = "RUN", value_parser = not_blank)]
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
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) one: String,
    /// Another run, such as a copy of it
    #[arg(value_name = "RUN", value_parser = not_blank)]
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
    /// The approval, as `approvals` lists it
    #[arg(value_name = "ID", value_parser = not_blank)]
    pub(crate) id: String,
    /// Who decides
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: String,
    /// Why
    #[arg(long, value_name = "TEXT", value_parser = not_blank)]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(clap::Args)]
pub(crate) struct DenyArgs {
    /// The approval, as `approvals` lists it
    #[arg(value_name = "ID", value_parser = not_blank)]
    pub(crate) id: String,
    /// Who decides
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: String,
    /// Why; the model reads it
    #[arg(long, value_name = "TEXT", value_parser = not_blank)]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(clap::Args)]
pub(crate) struct CancelArgs {
    /// The run
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    /// Who stops it; the user by default
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(clap::Args)]
pub(crate) struct RedactArgs {
    /// The run
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

#[derive(clap::Args)]
pub(crate) struct VerifyArgs {
    /// The run; all runs of the store without one
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
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RunsCommand>,
    #[command(flatten)]
    pub(crate) list: RunsListArgs,
}

#[derive(Subcommand)]
pub(crate) enum RunsCommand {
    /// Take away runs that ended long ago, with what they stored; open ones stay, and those that a
    /// run which is kept goes on with
    Prune(RunsPruneArgs),
    /// Take a run away, with the runs it dispatched and what they stored
    Delete(RunsDeleteArgs),
}

#[derive(clap::Args)]
pub(crate) struct RunsPruneArgs {
    /// Only runs that ended longer ago than this, such as 30d, 12h or 90m
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) older_than: Duration,
    /// Only runs in this state; may be given more than once
    #[arg(long = "state", value_name = "STATE")]
    pub(crate) states: Vec<EndedState>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A state of a run that is over.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum EndedState {
    /// It ended without failing
    Finished,
    /// It failed
    Failed,
}

#[derive(clap::Args)]
pub(crate) struct RunsDeleteArgs {
    /// The run
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(crate) command: SessionsCommand,
}

#[derive(Subcommand)]
pub(crate) enum SessionsCommand {
    /// Erase everything of a session; what is left says only which runs there were, when they were
    /// forgotten and by whom
    Forget(SessionsForgetArgs),
}

#[derive(clap::Args)]
pub(crate) struct SessionsForgetArgs {
    /// The session
    #[arg(value_name = "ID", value_parser = not_blank)]
    pub(crate) session: String,
    /// Erase the sessions that were copied from it too
    #[arg(long)]
    pub(crate) with_forks: bool,
    /// Who wants it [default: the user]
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
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

/// Reads how many to show.
fn from_one() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// Parts a label into its key and its value.
fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err("it is KEY=VALUE".to_owned()),
    }
}

/// Reads text that says something.
fn not_blank(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it must not be empty".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// Reads an age such as `30d`.
fn age(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is no age; write a whole number and d, h, m or s, such as 30d");
    let (number, seconds) = match text.char_indices().last() {
        Some((at, 'd')) => (&text[..at], 24 * 60 * 60),
        Some((at, 'h')) => (&text[..at], 60 * 60),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 's')) => (&text[..at], 1),
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(bad)
}

#[derive(clap::Args)]
pub(crate) struct RunsListArgs {
    /// Only runs of this session
    #[arg(long, value_name = "ID", value_parser = not_blank)]
    pub(crate) session: Option<String>,
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
pub(crate) struct TraceArgs {
    /// The run
    #[arg(value_name = "RUN", value_parser = not_blank)]
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

#[derive(clap::Args)]
pub(crate) struct ErrorsStatsArgs {
    /// At most this many lines, those that spared the model most first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = from_one())]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ErrorsListArgs {
    /// Only errors of this run
    #[arg(long, value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: Option<String>,
    /// Only errors of this session
    #[arg(long, value_name = "ID", value_parser = not_blank)]
    pub(crate) session: Option<String>,
    /// Only errors of this tool
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) tool: Option<String>,
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
    /// The error's id
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
    /// Show a whole result
    Show(ResultsShowArgs),
}

#[derive(clap::Args)]
pub(crate) struct ResultsShowArgs {
    /// The result's id
    #[arg(value_name = "ID", value_parser = not_blank)]
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
