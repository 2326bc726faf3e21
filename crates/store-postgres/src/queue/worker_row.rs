use backstop_event_log::LogError;

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::server_time::server_ms;
use crate::text::encode_text;

/// The capabilities of a worker: agents by name and digest, and the queues that it takes runs from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerRow {
    /// Names and digests of its agents.
    pub agents: Vec<(String, String)>,
    /// Names of its queues.
    pub queues: Vec<String>,
    /// Whether it resumes runs whose agent had another definition.
    pub adopts: bool,
}

impl WorkerRow {
    /// Creates a row from agents and queues.
    #[must_use]
    pub const fn new(agents: Vec<(String, String)>, queues: Vec<String>) -> Self {
        Self { agents, queues, adopts: false }
    }

    /// Sets whether it resumes runs whose agent had another definition.
    #[must_use]
    pub const fn adopts(mut self, adopts: bool) -> Self {
        self.adopts = adopts;
        self
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.agents.iter().map(|(name, _)| encode_text(name).into_owned()).collect()
    }

    pub(super) fn queue_names(&self) -> Vec<String> {
        self.queues.iter().map(|queue| encode_text(queue).into_owned()).collect()
    }

    /// Returns the digests; empty ones, which match any, if the worker adopts.
    pub(super) fn digests(&self) -> Vec<String> {
        match self.adopts {
            true => self.agents.iter().map(|_| String::new()).collect(),
            false => self.agents.iter().map(|(_, digest)| digest.clone()).collect(),
        }
    }
}

pub(super) async fn announce(
    pool: &ConnectionPool,
    owner: &str,
    worker: &WorkerRow,
) -> Result<(), LogError> {
    let mut lent = pool.lend().await?;
    sqlx::query(concat!(
        "INSERT INTO backstop.workers (process, agents, digests, queues, started_at) VALUES ($1, $2, $3, $4, ",
        server_ms!(),
        ") ON CONFLICT (process) DO UPDATE \
         SET agents = excluded.agents, digests = excluded.digests, queues = excluded.queues",
    ))
    .bind(owner)
    .bind(worker.names())
    .bind(worker.digests())
    .bind(worker.queue_names())
    .execute(&mut *lent)
    .await
    .map_err(Fault::from)?;
    lent.end().await?;
    Ok(())
}
