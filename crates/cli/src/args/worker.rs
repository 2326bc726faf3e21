//! Commands about the queue and the workers of a PostgreSQL database.

use std::path::PathBuf;
use std::time::Duration;

use backstop_store_postgres::Queue;
use clap::Subcommand;
use layer0::Timestamp;

use super::store::SharedStoreArgs;
use super::values::{from_now, from_one, label, not_blank, queue, queue_limit, session};

#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    /// The agent files; runs of these agents are worked on
    #[arg(value_name = "AGENT.toml", required = true)]
    pub(crate) agents: Vec<PathBuf>,
    /// Take runs from this queue, at most LIMIT at work at once in all workers together; may be given again
    /// [default: default]
    #[arg(long = "queue", value_name = "NAME[=LIMIT]", value_parser = queue_limit)]
    pub(crate) queues: Vec<(String, Option<usize>)>,
    /// Work on at most so many runs at once
    #[arg(long, value_name = "RUNS", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrency: u16,
    /// Once told to stop (SIGTERM, Ctrl-C), wait so many seconds for tools that are open
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    drain: u64,
    /// Let an endpoint ask to be left alone for so many seconds, in which a run is parked, before the run fails
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(0..=31_536_000))]
    max_park: u64,
    /// Go on with runs that had another definition of these agents until now, too; their records say so
    #[arg(long)]
    pub(crate) adopt: bool,
    #[command(flatten)]
    pub(crate) store: SharedStoreArgs,
    /// Print one JSON object for each run that is begun, left, refused or put off, and when the database is away or
    /// back or the lease was lost
    #[arg(long)]
    pub(crate) json: bool,
}

impl WorkerArgs {
    pub(crate) const fn drain(&self) -> Duration {
        Duration::from_secs(self.drain)
    }

    pub(crate) const fn max_park(&self) -> Duration {
        Duration::from_secs(self.max_park)
    }
}

#[derive(clap::Args)]
pub(crate) struct EnqueueArgs {
    /// The agent file
    #[arg(value_name = "AGENT.toml")]
    pub(crate) agent: PathBuf,
    /// What to ask: text, - for standard input, @FILE for a file, of at most 16 MiB [default: the
    /// agent file's]
    #[arg(long, value_name = "TEXT|-|@FILE", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,
    /// Put it into this queue
    #[arg(long, value_name = "NAME", default_value = Queue::DEFAULT, value_parser = queue)]
    pub(crate) queue: String,
    /// Make it known by this key: put in again with the same key and input, it is the same run
    #[arg(long, value_name = "KEY", value_parser = not_blank)]
    pub(crate) key: Option<String>,
    /// Start it not before this moment: RFC 3339, a day such as 2026-01-31 (UTC), or from now on, such as 2h, 3d or 2w
    #[arg(long, value_name = "TIME", value_parser = from_now)]
    pub(crate) not_before: Option<Timestamp>,
    /// Go on with this session, after the runs of it that were put in before; a new one otherwise
    #[arg(long, value_name = "ID", value_parser = session)]
    pub(crate) session: Option<String>,
    /// File the run under a label; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) store: SharedStoreArgs,
    /// Print one JSON object: run, queue and key
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    pub(crate) command: QueueCommand,
}

#[derive(Subcommand)]
pub(crate) enum QueueCommand {
    /// List the runs that are queued or not over yet, in order
    List(QueueListArgs),
    /// Take a run out that no worker has started
    Cancel(QueueCancelArgs),
}

#[derive(clap::Args)]
pub(crate) struct QueueListArgs {
    /// Only those of this queue
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) queue: Option<String>,
    /// Show at most so many
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = from_one())]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) store: SharedStoreArgs,
    /// Print one JSON object per run
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct QueueCancelArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) store: SharedStoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
