//! Arguments of the command line.

mod approval;
mod behaviors;
mod costs;
mod errors;
mod groups;
mod mcp;
mod output;
mod record;
mod run;
mod setup;
mod runs;
mod state;
mod store;
mod values;
mod worker;

use clap::{Parser, Subcommand};

pub(crate) use approval::{ApprovalsArgs, ApproveArgs, CancelArgs, DenyArgs, ResolveArgs};
pub(crate) use behaviors::{
    BehaviorsArgs, BehaviorsCommand, BehaviorsFailuresArgs, BehaviorsListArgs,
    BehaviorsRedeliverArgs, WatchArgs,
};
pub(crate) use costs::{CostGrouping, CostsArgs};
pub(crate) use errors::{
    ErrorsArgs, ErrorsCommand, ErrorsListArgs, ErrorsPruneArgs, ErrorsShowArgs, ErrorsStatsArgs,
    Grouping, ResultsArgs, ResultsCommand, ResultsListArgs, ResultsShowArgs, WhichErrors,
};
pub(crate) use mcp::{McpArgs, ToolsArgs};
pub(crate) use output::{LogFormat, OutputArgs};
pub(crate) use record::{ExportArgs, RedactArgs, TraceArgs, VerifyArgs};
pub(crate) use run::{
    ChatArgs, DiffArgs, ForkArgs, ForkTools, RehearseArgs, ReplayArgs, ResumeArgs, RunArgs,
};
pub(crate) use runs::{
    EndedState, ListedState, RunsArgs, RunsCommand, RunsDeleteArgs, RunsListArgs, RunsPruneArgs,
    SessionsArgs, SessionsCommand, SessionsForgetArgs, SessionsListArgs,
};
pub(crate) use setup::{CheckArgs, CompletionsArgs, DoctorArgs, InitArgs};
pub(crate) use state::{
    StateArgs, StateCommand, StateGetArgs, StateListArgs, StateRmArgs, StateSetArgs, WhereArgs,
};
pub(crate) use store::{BackupArgs, CopyArgs, StoreArgs, VacuumArgs};
pub(crate) use worker::{
    EnqueueArgs, QueueArgs, QueueCancelArgs, QueueCommand, QueueListArgs, WorkerArgs,
};

/// Run LLM agents whose failures have one place to land, and read the record they leave.
#[derive(Parser)]
#[command(
    name = "backstop",
    bin_name = "backstop",
    version,
    help_template = groups::template(),
    after_help = "Name a run, error, result or approval by its id, by a unique prefix of its id, or as `last`.\n\n\
                  Exit codes: 0 finished, 1 run failed, 2 usage or configuration, 3 stopped (incomplete, budget, cancelled), \
                  4 waiting for approval, 5 storage, 6 replay diverged or log tampered.\n\n\
                  With --json, an error is one JSON object on standard error: code, message, hint, retry, effect.\n\
                  BACKSTOP_LOG or RUST_LOG sets the filter for logs of the runtime, such as `debug`."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run an agent file
    Run(RunArgs),
    /// Talk with an agent: turns of one session, with tools and approvals inline
    Chat(ChatArgs),
    /// Resume a run whose process died or that waited for a person
    Resume(ResumeArgs),
    /// Check that a run's decisions follow from its record; runs no model and no tool
    Replay(ReplayArgs),
    /// Copy a run up to an event and continue from there
    Fork(ForkArgs),
    /// Show where two runs diverge
    Diff(DiffArgs),
    /// List the calls that wait for a person
    Approvals(ApprovalsArgs),
    /// Approve a call that waits for a person
    Approve(ApproveArgs),
    /// Deny a call that waits for a person
    Deny(DenyArgs),
    /// Stop a run, whichever process runs it
    Cancel(CancelArgs),
    /// Record whether a call of unknown outcome happened
    Resolve(ResolveArgs),
    /// Verify that records are unchanged: hash chain, head and summary
    Verify(VerifyArgs),
    /// Export a record in the published format, for other programs to verify
    Export(ExportArgs),
    /// Erase the content of one event of a run; the record still verifies, but cannot be replayed
    Redact(RedactArgs),
    /// List recorded runs, newest first; prune or delete old ones
    Runs(RunsArgs),
    /// Sum up the costs of model calls by day, agent, model or label
    Costs(CostsArgs),
    /// List sessions, or forget one with its runs, their errors and results
    Sessions(SessionsArgs),
    /// Copy the store to a new file, while others write to it
    Backup(BackupArgs),
    /// Copy the records of ended runs to another store
    Copy(CopyArgs),
    /// Return the space of deleted data to the file system
    Vacuum(VacuumArgs),
    /// Show what happened in a run, one line per event
    Trace(TraceArgs),
    /// Read the errors that tools reported
    Errors(ErrorsArgs),
    /// Read the large results that tools returned
    Results(ResultsArgs),
    /// Read and write the state that outlives runs
    State(StateArgs),
    /// Serve the behaviours of agent files until Ctrl-C, for every run of the store
    Watch(WatchArgs),
    /// List the tools of an agent, including those of its MCP servers: schema, needs, walls, and tools left out
    Tools(ToolsArgs),
    /// Serve agents as tools to MCP clients, over standard input and output or HTTP
    Mcp(McpArgs),
    /// Run queued runs and resume interrupted ones, together with other workers
    Worker(WorkerArgs),
    /// Queue a run for the workers of a PostgreSQL store
    Enqueue(EnqueueArgs),
    /// List queued runs, or remove one
    Queue(QueueArgs),
    /// List the subscriptions and failed deliveries of behaviours, or deliver an event again
    Behaviors(BehaviorsArgs),
    /// Create an agent file that is ready to run
    Init(InitArgs),
    /// Check an agent file and report every mistake; needs no key
    Check(CheckArgs),
    /// Check the setup: keys, endpoints, store, clock, disk
    Doctor(DoctorArgs),
    /// List every code with its meaning and what to do
    Codes(CodesArgs),
    /// Run scenario files, which rehearse how an agent fails
    Rehearse(RehearseArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page (roff)
    Man,
}

#[derive(clap::Args)]
pub(crate) struct CodesArgs {
    /// List only codes that begin with this prefix
    #[arg(value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}
