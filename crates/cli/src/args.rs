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
    after_help = "Runs, errors, results and approvals are named by their id, by a beginning of it that no \
                  other has, or as `last`.\n\n\
                  Exit codes: 0 finished, 1 run failed, 2 usage or configuration, 3 stopped (incomplete, budget, cancelled), \
                  4 waiting for approval, 5 storage, 6 replay diverged or log tampered.\n\n\
                  With --json, an error is one JSON object on standard error: code, message, hint, retry, effect.\n\
                  BACKSTOP_LOG or RUST_LOG says what of the runtime is logged, such as `debug`."
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
    /// Say what became of a call whose outcome is unknown
    Resolve(ResolveArgs),
    /// Check that records are what was recorded: chain, head and summary
    Verify(VerifyArgs),
    /// Write a record in the published format, for other programs to verify
    Export(ExportArgs),
    /// Erase what one event of a run says; the record still verifies, and cannot be replayed
    Redact(RedactArgs),
    /// List recorded runs, newest first; take old ones away
    Runs(RunsArgs),
    /// Sum up what model calls cost: by day, agent, model or label
    Costs(CostsArgs),
    /// List sessions; forget one: its runs, their errors and results
    Sessions(SessionsArgs),
    /// Copy the store to a new file, while others write to it
    Backup(BackupArgs),
    /// Carry records of runs that are over to another store
    Copy(CopyArgs),
    /// Give the room of what was deleted back to the file system
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
    /// List the tools of an agent, those of its MCP servers too: schema, needs, walls, and what is left out
    Tools(ToolsArgs),
    /// Serve agents as tools to MCP clients, over standard input and output or HTTP
    Mcp(McpArgs),
    /// Work on queued runs, and go on with those that other processes left, together with other workers
    Worker(WorkerArgs),
    /// Queue a run for the workers of a PostgreSQL store
    Enqueue(EnqueueArgs),
    /// See what is queued, and take runs out
    Queue(QueueArgs),
    /// See what behaviours did, and deliver again
    Behaviors(BehaviorsArgs),
    /// Write an agent file that runs at once
    Init(InitArgs),
    /// Find every mistake of an agent file; needs no key
    Check(CheckArgs),
    /// See whether everything is in order: keys, endpoints, store, clock, disk
    Doctor(DoctorArgs),
    /// List every code: what it means and what to do
    Codes(CodesArgs),
    /// Run scenario files: how an agent fails, before it does
    Rehearse(RehearseArgs),
    /// Print what completes our commands in a shell
    Completions(CompletionsArgs),
    /// Print the manual page (roff)
    Man,
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
