//! Taking runs from the queue, and returning them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use backstop_event_log::LogError;
use layer0::code;
use layer0::failure::Chain;
use layer0::id::{RunId, SessionId};
use layer0::operator::Task;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::entry::{StartRefusal, StoredTask, read};
use super::values::count;
use crate::fault::Fault;
use crate::server_time::server_ms;
use crate::text::{column, encode_text};
use crate::transact::TransactionWork;

/// A queue to take runs from, with the maximum number of its running runs in all processes together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueLimit {
    /// Name of the queue.
    pub queue: String,
    /// Maximum number of running runs; no limit if `None`.
    pub limit: Option<usize>,
}

impl QueueLimit {
    /// Creates a queue without a limit.
    pub fn new(queue: impl Into<String>) -> Self {
        Self { queue: queue.into(), limit: None }
    }

    /// Sets the maximum number of running runs, in all processes together.
    #[must_use]
    pub const fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// A run that was taken to be started.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TakenRun {
    /// Id of the run.
    pub run: RunId,
    /// Name of the agent.
    pub agent: String,
    /// Its session.
    pub session: SessionId,
    /// The task.
    pub task: Task,
    /// Labels of the run.
    pub labels: BTreeMap<String, String>,
}

impl TakenRun {
    fn from_row(row: &PgRow) -> Result<Self, LogError> {
        let text = |name| column(row, name).map_err(Fault::from);
        let stored: StoredTask<'_> = read(&text("task")?)?;
        Ok(Self {
            run: text("run")?.into(),
            agent: text("agent")?,
            session: text("session")?.into(),
            task: stored.task.into_owned(),
            labels: stored.labels.into_owned(),
        })
    }
}

/// Takes runs to start them.
pub(super) struct TakeQueued<'a> {
    pub(super) owner: &'a str,
    pub(super) queues: &'a [QueueLimit],
    pub(super) agents: &'a [&'a str],
    pub(super) most: usize,
    /// Runs to skip for a while.
    pub(super) paused: &'a [&'a str],
    /// Number of earlier searches.
    pub(super) turn: usize,
}

/// Takes the first run of its session in the queue, while the session has no open run. Another worker that searches at
/// the same moment sees this run before the later ones.
///
/// Conditions on other rows are scalar subqueries and not joins, so that they are evaluated for the first few runs in
/// order, however many runs there are, and however outdated the server's statistics are. Runs behind a running one are
/// skipped together. The server's clock decides what is due, because workers may have other ones.
const TAKE: &str = concat!(
    "UPDATE backstop.queue AS taken SET owner = $1 FROM (\
    SELECT number FROM backstop.queue WHERE queue = $2 AND owner IS NULL AND refused IS NULL \
    AND not_before <= ",
    server_ms!(),
    " AND agent = ANY($3) AND run <> ALL($5) \
    AND coalesce((SELECT false FROM backstop.runs WHERE runs.run = queue.run), true) \
    AND coalesce((SELECT false FROM backstop.lost_tails WHERE lost_tails.run = queue.run), true) \
    AND session NOT IN (SELECT at_work.session FROM backstop.queue AS at_work WHERE at_work.owner IS NOT NULL) \
    AND coalesce((SELECT false FROM backstop.queue AS earlier WHERE earlier.session = queue.session \
        AND earlier.number < queue.number AND earlier.refused IS NULL AND coalesce((SELECT begun.ended_at IS NULL \
            FROM backstop.runs AS begun WHERE begun.run = earlier.run), true) \
        ORDER BY earlier.session, earlier.number LIMIT 1), true) \
    AND coalesce((SELECT false FROM backstop.runs AS open WHERE open.session = queue.session \
        AND open.parent IS NULL AND open.branch_of IS NULL AND open.ended_at IS NULL LIMIT 1), true) \
    ORDER BY not_before, number LIMIT $4 FOR UPDATE SKIP LOCKED) AS next \
    WHERE taken.number = next.number RETURNING taken.*"
);

#[async_trait]
impl TransactionWork for TakeQueued<'_> {
    type Done = Vec<TakenRun>;
    type Error = LogError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<Vec<TakenRun>, LogError> {
        let mut open = self.open_queues(connection).await?;
        let (mut taken, mut left) = (Vec::new(), self.most);
        // Each queue gets its share, and unused shares are divided among the others.
        while left > 0 && !open.is_empty() {
            let share = left.div_ceil(open.len());
            let mut still_open = Vec::new();
            for OpenQueue { name, room } in open {
                let asked = share.min(room).min(left);
                if asked == 0 {
                    continue;
                }
                let (rows, mut found) = self.take_from(connection, name, asked).await?;
                left = left.saturating_sub(rows);
                taken.append(&mut found);
                if rows == asked {
                    still_open.push(OpenQueue { name, room: room - rows });
                }
            }
            open = still_open;
        }
        Ok(taken)
    }
}

/// A queue with capacity for more runs.
struct OpenQueue<'a> {
    name: &'a str,
    room: usize,
}

impl TakeQueued<'_> {
    /// Returns the queues below their limits, in the caller's order rotated by one at each search, so that a single
    /// free place goes to each queue in turn.
    async fn open_queues(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Vec<OpenQueue<'_>>, LogError> {
        // The locks are taken in the order of names, so that two workers never deadlock.
        let mut by_name: Vec<(usize, &QueueLimit)> = self.queues.iter().enumerate().collect();
        by_name.sort_by(|(_, one), (_, other)| one.queue.cmp(&other.queue));
        let mut open = Vec::new();
        for (place, queue) in by_name {
            let room = match queue.limit {
                Some(limit) => limit.saturating_sub(at_work(connection, &queue.queue).await?),
                None => self.most,
            };
            if room > 0 {
                open.push((place, OpenQueue { name: &queue.queue, room }));
            }
        }
        open.sort_by_key(|(place, _)| *place);
        if let Some(first) = self.turn.checked_rem(open.len()) {
            open.rotate_left(first);
        }
        Ok(open.into_iter().map(|(_, queue)| queue).collect())
    }

    /// Takes runs from one queue. Returns the number of rows found, and the runs whose rows can be decoded.
    async fn take_from(
        &self,
        connection: &mut PgConnection,
        queue: &str,
        most: usize,
    ) -> Result<(usize, Vec<TakenRun>), LogError> {
        let mut rows = sqlx::query(TAKE)
            .bind(self.owner)
            .bind(&*encode_text(queue))
            .bind(self.agents)
            .bind(count(most))
            .bind(self.paused)
            .fetch_all(&mut *connection)
            .await
            .map_err(Fault::from)?;
        let number = |row: &PgRow, name| row.try_get::<i64, _>(name).unwrap_or_default();
        rows.sort_by_key(|row| (number(row, "not_before"), number(row, "number")));
        let mut taken = Vec::new();
        for row in &rows {
            match TakenRun::from_row(row) {
                Ok(one) => taken.push(one),
                Err(error) => refuse_unreadable(connection, row, &error).await?,
            }
        }
        Ok((rows.len(), taken))
    }
}

/// Leaves an unreadable row in the queue, visible to people, so that it does not block others.
async fn refuse_unreadable(
    connection: &mut PgConnection,
    row: &PgRow,
    error: &LogError,
) -> Result<(), LogError> {
    let refusal = StartRefusal::new(code::LOG_UNREADABLE, Chain(error).to_string());
    let refusal =
        serde_json::to_string(&refusal).map_err(|error| LogError::Failed(error.into()))?;
    let number: i64 = row.try_get("number").map_err(Fault::from)?;
    sqlx::query("UPDATE backstop.queue SET owner = NULL, refused = $2 WHERE number = $1")
        .bind(number)
        .bind(&*encode_text(&refusal))
        .execute(connection)
        .await
        .map_err(Fault::from)?;
    Ok(())
}

/// Counts the running runs of a queue; none is added until the transaction ends.
async fn at_work(connection: &mut PgConnection, queue: &str) -> Result<usize, LogError> {
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('backstop queue ' || $1, 0))")
        .bind(&*encode_text(queue))
        .execute(&mut *connection)
        .await
        .map_err(Fault::from)?;
    let at_work: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM backstop.queue LEFT JOIN backstop.runs ON runs.run = queue.run \
         WHERE queue.queue = $1 AND queue.owner IS NOT NULL AND runs.ended_at IS NULL",
    )
    .bind(&*encode_text(queue))
    .fetch_one(connection)
    .await
    .map_err(Fault::from)?;
    Ok(usize::try_from(at_work).unwrap_or(usize::MAX))
}

/// Takes a run to resume it.
pub(super) struct TakeAgain<'a> {
    pub(super) owner: &'a str,
    pub(super) run: &'a RunId,
    pub(super) queues: &'a [QueueLimit],
}

#[async_trait]
impl TransactionWork for TakeAgain<'_> {
    type Done = bool;
    type Error = LogError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<bool, LogError> {
        let run = encode_text(self.run.as_str());
        let row = sqlx::query("SELECT queue, owner FROM backstop.queue WHERE run = $1")
            .bind(&*run)
            .fetch_optional(&mut *connection)
            .await
            .map_err(Fault::from)?;
        let Some(row) = row else { return Ok(true) };
        let queue = column(&row, "queue").map_err(Fault::from)?;
        let owner: Option<String> = row.try_get("owner").map_err(Fault::from)?;
        // The limit of another queue is unknown here: its own workers resume its runs.
        let Some(own) = self.queues.iter().find(|it| it.queue == queue) else { return Ok(false) };
        if let Some(limit) = own.limit
            && owner.is_none()
            && at_work(connection, &queue).await? >= limit
        {
            return Ok(false);
        }
        let taken = sqlx::query(
            "UPDATE backstop.queue SET owner = $2 WHERE run = $1 AND (owner IS NULL OR owner = $2)",
        )
        .bind(&*run)
        .bind(self.owner)
        .execute(connection)
        .await
        .map_err(Fault::from)?;
        Ok(taken.rows_affected() > 0)
    }
}

/// Returns a run to the queue.
pub(super) struct GiveBack<'a> {
    pub(super) owner: &'a str,
    pub(super) run: &'a RunId,
}

#[async_trait]
impl TransactionWork for GiveBack<'_> {
    type Done = ();
    type Error = LogError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<(), LogError> {
        let run = encode_text(self.run.as_str());
        for statement in [
            "DELETE FROM backstop.queue USING backstop.runs WHERE queue.run = $1 AND queue.owner = $2 \
             AND runs.run = $1 AND runs.ended_at IS NOT NULL",
            "UPDATE backstop.queue SET owner = NULL WHERE run = $1 AND owner = $2",
        ] {
            let done = sqlx::query(statement).bind(&*run).bind(self.owner);
            let done = done.execute(&mut *connection).await;
            done.map_err(Fault::from)?;
        }
        Ok(())
    }
}
