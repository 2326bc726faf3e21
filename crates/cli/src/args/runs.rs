//! Commands about runs and sessions of a store.

use std::time::Duration;

use clap::Subcommand;

use super::store::StoreArgs;
use super::values::{TimeArgs, age, code, from_one, label, not_blank};

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
pub(crate) struct RunsListArgs {
    /// Only runs of this session
    #[arg(long, value_name = "ID", value_parser = not_blank)]
    pub(crate) session: Option<String>,
    /// Only runs of the agent of this name
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) agent: Option<String>,
    /// Only runs in this state; may be given more than once
    #[arg(long = "state", value_name = "STATE")]
    pub(crate) states: Vec<ListedState>,
    /// Only runs that failed
    #[arg(long, conflicts_with = "states")]
    pub(crate) failed: bool,
    /// Only runs that are filed under this label; may be given again, for all of them
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Only runs that failed or stopped with this code, or with one of a family: provider.*
    #[arg(long, value_name = "CODE", value_parser = code)]
    pub(crate) code: Option<String>,
    #[command(flatten)]
    pub(crate) time: TimeArgs,
    /// Only runs whose record contains this text, in upper or lower case; the definition of the agent does not count
    #[arg(long, value_name = "TEXT", value_parser = not_blank, conflicts_with = "stuck")]
    pub(crate) search: Option<String>,
    /// Only runs that need a look: interrupted, stranded, parked for more than an hour, ended by a crash loop, or with an approval
    /// that expired or waits for more than a day; the oldest first
    #[arg(long)]
    pub(crate) stuck: bool,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = from_one())]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A state of a run.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ListedState {
    /// It is running
    Running,
    /// It was running when its process died
    Interrupted,
    /// It waits for a person
    WaitingApproval,
    /// It waits for a time, without a process
    Parked,
    /// It ended without failing
    Finished,
    /// It failed
    Failed,
}

#[derive(clap::Args)]
pub(crate) struct RunsPruneArgs {
    /// Only runs that ended longer ago than this, such as 30d, 12h or 90m
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) older_than: Duration,
    /// Only runs in this state; may be given more than once
    #[arg(long = "state", value_name = "STATE")]
    pub(crate) states: Vec<EndedState>,
    /// List the runs that would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
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
    /// The run: its id, a beginning of it that no other has, or `last`
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    /// List the runs that would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
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
    /// List sessions, the one whose last run began last first
    List(SessionsListArgs),
    /// Erase everything of a session; what is left says only which runs there were, when they were
    /// forgotten and by whom
    Forget(SessionsForgetArgs),
}

#[derive(clap::Args)]
pub(crate) struct SessionsListArgs {
    /// Only sessions with a run of the agent of this name
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) agent: Option<String>,
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
    /// List the runs that would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
