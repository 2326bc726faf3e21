//! Commands that run agents, or copies and rehearsals of their runs.

use std::path::PathBuf;

use layer0::id::RunId;
use layer0::usage::BudgetIncrease;

use super::store::StoreArgs;
use super::values::{increase, label, not_blank, session};

#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// The agent file
    #[arg(value_name = "AGENT.toml")]
    pub(crate) agent: PathBuf,
    /// What to ask
    #[arg(value_name = "TEXT", conflicts_with = "input", value_parser = not_blank)]
    pub(crate) text: Option<String>,
    /// What to ask: text, - for standard input, @FILE for a file, of at most 16 MiB [default: the
    /// agent file's]
    #[arg(long, value_name = "TEXT|-|@FILE", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,
    /// Show the model an image (PNG, JPEG, GIF or WebP) of at most 20 MiB; may be given more than
    /// once
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<PathBuf>,
    /// Go on with this session; a new one otherwise
    #[arg(long, value_name = "ID", value_parser = session)]
    pub(crate) session: Option<String>,
    /// File the run under a label; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object with everything
    #[arg(long)]
    pub(crate) json: bool,
    /// Print each event as one line of JSON when it is durable, then the object that --json prints
    #[arg(long, conflicts_with = "json")]
    pub(crate) events: bool,
}

#[derive(clap::Args)]
pub(crate) struct ChatArgs {
    /// The agent file
    #[arg(value_name = "AGENT.toml")]
    pub(crate) agent: PathBuf,
    /// Go on with this session; a new one otherwise
    #[arg(long, value_name = "ID", value_parser = session)]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Clone, clap::Args)]
pub(crate) struct ResumeArgs {
    /// The run: its id, a beginning of it that no other has, or `last`
    #[arg(value_name = "RUN", value_parser = not_blank, required_unless_present = "all")]
    pub(crate) run: Option<String>,
    /// Resume every run whose process is dead, one after the other; `runs --state interrupted` lists them
    #[arg(long, conflicts_with_all = ["run", "reopen", "accept_lost_tail", "agent"])]
    pub(crate) all: bool,
    /// Go on with a run that failed or was stopped, in the same record
    #[arg(long)]
    pub(crate) reopen: bool,
    /// With `--reopen`: let it use so much more, such as max_model_calls=+20; may be given again
    #[arg(long, value_name = "KEY=+N", value_parser = increase, requires = "reopen")]
    pub(crate) budget: Vec<BudgetIncrease>,
    /// With `--reopen`: say this to the model before it is asked next
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = not_blank, requires = "reopen")]
    pub(crate) input: Option<String>,
    /// Resume it although its record has lost events that were acknowledged; the record notes it
    #[arg(long)]
    pub(crate) accept_lost_tail: bool,
    /// Who goes on with it [default: the user]
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: Option<String>,
    /// Go on with this agent file instead of the recorded one; the record says so from then on. With --reopen, go on
    /// with its tools and models
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object with everything
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
    /// The run: its id, a beginning of it that no other has, or `last`
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
    /// The run: its id, a beginning of it that no other has, or `last`
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    /// The last event that is copied, as `trace` numbers it
    #[arg(long, value_name = "SEQ")]
    pub(crate) at: u64,
    /// Say this to the model before it is asked next
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,
    /// Let a copy that is over where it ends use so much more, such as max_model_calls=+20; may be given
    /// again
    #[arg(long, value_name = "KEY=+N", value_parser = increase)]
    pub(crate) budget: Vec<BudgetIncrease>,
    /// Use model and tools of this agent file instead of the recorded one
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    /// Ask this model instead of the file's
    #[arg(long, value_name = "MODEL", value_parser = not_blank)]
    pub(crate) model: Option<String>,
    /// Answer calls from the record instead of running tools; a call that it does not have is answered as
    /// unavailable
    #[arg(long, value_name = "HOW")]
    pub(crate) tools: Option<ForkTools>,
    /// Record the copy in another store
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object with everything
    #[arg(long)]
    pub(crate) json: bool,
}

/// What becomes of the tools of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ForkTools {
    /// They answer as the record says.
    Recorded,
}

#[derive(clap::Args)]
pub(crate) struct DiffArgs {
    /// A run: its id, a beginning of it that no other has, or `last`
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
pub(crate) struct RehearseArgs {
    /// The scenario files
    #[arg(value_name = "SCENARIO.toml", required = true)]
    pub(crate) scenarios: Vec<PathBuf>,
    /// Print one JSON object per scenario
    #[arg(long)]
    pub(crate) json: bool,
}
