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
    /// Delete runs that ended long ago, with their stored errors and results; open runs are kept, and runs that a kept
    /// run continues
    Prune(RunsPruneArgs),
    /// Delete a run, with its child runs and their stored errors and results
    Delete(RunsDeleteArgs),
}

#[derive(clap::Args)]
pub(crate) struct RunsListArgs {
    /// List only runs of this session
    #[arg(long, value_name = "ID", value_parser = not_blank)]
    pub(crate) session: Option<String>,
    /// List only runs of the agent with this name
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) agent: Option<String>,
    /// Select only runs in this state; may be given more than once
    #[arg(long = "state", value_name = "STATE")]
    pub(crate) states: Vec<ListedState>,
    /// List only runs that failed
    #[arg(long, conflicts_with = "states")]
    pub(crate) failed: bool,
    /// List only runs with this label; may be given again with other keys; all labels must match
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// List only runs that failed or stopped with this code, or with a code of a family, such as provider.*
    #[arg(long, value_name = "CODE", value_parser = code)]
    pub(crate) code: Option<String>,
    #[command(flatten)]
    pub(crate) time: TimeArgs,
    /// List only runs whose record contains this text, in upper or lower case; the agent's definition is not searched
    #[arg(long, value_name = "TEXT", value_parser = not_blank, conflicts_with = "stuck")]
    pub(crate) search: Option<String>,
    /// List only runs that need attention: interrupted, stranded, with lost events, parked for more than an hour, ended
    /// by a crash loop, decided and not resumed, or with an approval that expired or has waited for more than a day;
    /// oldest first
    #[arg(long)]
    pub(crate) stuck: bool,
    /// Maximum number of entries to list
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
    /// The run is running
    Running,
    /// The process died while the run was running
    Interrupted,
    /// The run waits for a person
    WaitingApproval,
    /// The run waits for a time, without a process
    Parked,
    /// The run ended without a failure
    Finished,
    /// The run failed
    Failed,
}

#[derive(clap::Args)]
pub(crate) struct RunsPruneArgs {
    /// Delete only runs that ended longer ago than this, such as 30d, 12h or 90m
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) older_than: Duration,
    /// Select only runs in this state; may be given more than once
    #[arg(long = "state", value_name = "STATE")]
    pub(crate) states: Vec<EndedState>,
    /// List the runs that would be deleted, and delete nothing
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
    /// The run ended without a failure
    Finished,
    /// The run failed
    Failed,
}

#[derive(clap::Args)]
pub(crate) struct RunsDeleteArgs {
    /// Run: its id, a unique prefix of its id, or `last`
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    /// List the runs that would be deleted, and delete nothing
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
    /// List sessions, the one with the latest run first
    List(SessionsListArgs),
    /// Erase everything in a session; only which runs existed, when they were forgotten and by whom remains
    Forget(SessionsForgetArgs),
}

#[derive(clap::Args)]
pub(crate) struct SessionsListArgs {
    /// List only sessions with a run of the agent with this name
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) agent: Option<String>,
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
pub(crate) struct SessionsForgetArgs {
    /// Session to forget
    #[arg(value_name = "ID", value_parser = not_blank)]
    pub(crate) session: String,
    /// Erase the sessions that were copied from this session too
    #[arg(long)]
    pub(crate) with_forks: bool,
    /// Name recorded as the person who requests it [default: the current user]
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: Option<String>,
    /// List the runs that would be deleted, and delete nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
