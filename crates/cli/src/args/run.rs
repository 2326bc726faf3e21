//! Commands that run agents, or copies and rehearsals of their runs.

use std::path::PathBuf;

use layer0::id::RunId;
use layer0::usage::BudgetIncrease;

use super::store::StoreArgs;
use super::values::{increase, label, not_blank, session};

#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// Agent file
    #[arg(value_name = "AGENT.toml")]
    pub(crate) agent: PathBuf,
    /// Input for the agent
    #[arg(value_name = "TEXT", conflicts_with = "input", value_parser = not_blank)]
    pub(crate) text: Option<String>,
    /// Input for the agent: text, - for standard input, or @FILE for a file, of at most 16 MiB [default: the input in
    /// the agent file]
    #[arg(long, value_name = "TEXT|-|@FILE", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,
    /// Send the model an image (PNG, JPEG, GIF or WebP) of at most 20 MiB; may be given more than once
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<PathBuf>,
    /// Continue this session [default: a new session]
    #[arg(long, value_name = "ID", value_parser = session)]
    pub(crate) session: Option<String>,
    /// Label the run; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Print each event as one line of JSON once it is durable, then the object that --json prints
    #[arg(long, conflicts_with = "json")]
    pub(crate) events: bool,
}

#[derive(clap::Args)]
pub(crate) struct ChatArgs {
    /// Agent file
    #[arg(value_name = "AGENT.toml")]
    pub(crate) agent: PathBuf,
    /// Continue this session [default: a new session]
    #[arg(long, value_name = "ID", value_parser = session)]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Clone, clap::Args)]
pub(crate) struct ResumeArgs {
    /// Run: its id, a unique prefix of its id, or `last`
    #[arg(value_name = "RUN", value_parser = not_blank, required_unless_present = "all")]
    pub(crate) run: Option<String>,
    /// Resume every run whose process is dead, one after the other; `runs --state interrupted` lists them
    #[arg(long, conflicts_with_all = ["run", "reopen", "accept_lost_tail", "agent"])]
    pub(crate) all: bool,
    /// Reopen a run that failed or was stopped, in the same record
    #[arg(long)]
    pub(crate) reopen: bool,
    /// With `--reopen`: increase a budget, such as max_model_calls=+20; may be given more than once
    #[arg(long, value_name = "KEY=+N", value_parser = increase, requires = "reopen")]
    pub(crate) budget: Vec<BudgetIncrease>,
    /// With `--reopen`: message for the model, added before its next call
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = not_blank, requires = "reopen")]
    pub(crate) input: Option<String>,
    /// Resume the run although its record has lost acknowledged events; the record notes it
    #[arg(long)]
    pub(crate) accept_lost_tail: bool,
    /// Name recorded as the person who resumes the run [default: the current user]
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: Option<String>,
    /// Use this agent file instead of the recorded definition; the record notes the change. With --reopen, use its
    /// tools and models
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl ResumeArgs {
    /// Returns the arguments to resume one run of all.
    pub(crate) fn for_run(&self, run: &RunId) -> Self {
        Self { run: Some(run.to_string()), all: false, ..self.clone() }
    }
}

#[derive(clap::Args)]
pub(crate) struct ReplayArgs {
    /// Run: its id, a unique prefix of its id, or `last`
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    /// Replay the run against this agent file; another agent diverges at the start
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
    /// Run: its id, a unique prefix of its id, or `last`
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    /// Sequence number of the last event to copy, as `trace` shows it
    #[arg(long, value_name = "SEQ")]
    pub(crate) at: u64,
    /// Message for the model, added before its next call
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,
    /// Increase a budget of a copy that has ended at its last event, such as max_model_calls=+20; may be given more
    /// than once
    #[arg(long, value_name = "KEY=+N", value_parser = increase)]
    pub(crate) budget: Vec<BudgetIncrease>,
    /// Use the model and tools of this agent file instead of the recorded ones
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    /// Call this model instead of the agent file's
    #[arg(long, value_name = "MODEL", value_parser = not_blank)]
    pub(crate) model: Option<String>,
    /// Answer tool calls from the record instead of running tools; a call that is not recorded is answered as
    /// unavailable
    #[arg(long, value_name = "HOW")]
    pub(crate) tools: Option<ForkTools>,
    /// Record the copy in another store
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The source of tool answers in a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ForkTools {
    /// Answers from the record
    Recorded,
}

#[derive(clap::Args)]
pub(crate) struct DiffArgs {
    /// First run: its id, a unique prefix of its id, or `last`
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) one: String,
    /// Second run, such as a fork of the first
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) other: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct RehearseArgs {
    /// Scenario files
    #[arg(value_name = "SCENARIO.toml", required = true)]
    pub(crate) scenarios: Vec<PathBuf>,
    /// Print one JSON object per scenario
    #[arg(long)]
    pub(crate) json: bool,
}
