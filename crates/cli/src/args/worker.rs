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
    /// Agent files; the worker runs only these agents
    #[arg(value_name = "AGENT.toml", required = true)]
    pub(crate) agents: Vec<PathBuf>,
    /// Take runs from this queue, with at most LIMIT running at once in all workers together; may be given more than
    /// once [default: default]
    #[arg(long = "queue", value_name = "NAME[=LIMIT]", value_parser = queue_limit)]
    pub(crate) queues: Vec<(String, Option<usize>)>,
    /// Maximum number of runs at once in this worker
    #[arg(long, value_name = "RUNS", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrency: u16,
    /// Seconds to wait for open tool calls after SIGTERM or Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    drain: u64,
    /// Longest pause in seconds that an endpoint may request, during which a run is parked; a longer pause fails the
    /// run
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(0..=31_536_000))]
    max_park: u64,
    /// Adopt runs that began under another definition of these agents; their records note it
    #[arg(long)]
    pub(crate) adopt: bool,
    #[command(flatten)]
    pub(crate) store: SharedStoreArgs,
    /// Print one JSON object for each run that starts, leaves this worker, is refused or is postponed, when the
    /// database is lost or reached again, and when the lease is lost
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
    /// Agent file
    #[arg(value_name = "AGENT.toml")]
    pub(crate) agent: PathBuf,
    /// Input for the agent: text, - for standard input, or @FILE for a file, of at most 16 MiB [default: the input in
    /// the agent file]
    #[arg(long, value_name = "TEXT|-|@FILE", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,
    /// Queue for the run
    #[arg(long, value_name = "NAME", default_value = Queue::DEFAULT, value_parser = queue)]
    pub(crate) queue: String,
    /// Idempotency key: the same key with the same input names the same run
    #[arg(long, value_name = "KEY", value_parser = not_blank)]
    pub(crate) key: Option<String>,
    /// Start the run no earlier than this: RFC 3339, a day such as 2026-01-31 (UTC), or a time from now such as 2h, 3d
    /// or 2w
    #[arg(long, value_name = "TIME", value_parser = from_now)]
    pub(crate) not_before: Option<Timestamp>,
    /// Continue this session, after its earlier queued runs [default: a new session]
    #[arg(long, value_name = "ID", value_parser = session)]
    pub(crate) session: Option<String>,
    /// Label the run; may be given more than once
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
    /// List the runs that are queued or have not ended, in order
    List(QueueListArgs),
    /// Remove a run that no worker has started
    Cancel(QueueCancelArgs),
}

#[derive(clap::Args)]
pub(crate) struct QueueListArgs {
    /// List only runs of this queue
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) queue: Option<String>,
    /// Maximum number of runs to list
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
    /// Run to remove
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) store: SharedStoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
