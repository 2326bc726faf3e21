//! Runs that wait for a worker, and those that a worker can go on with.

mod enqueue;
mod entry;
mod error;
mod listing;
mod lookup;
mod ready;
mod stranded;
mod take;
mod unserved;
mod values;
mod worker_row;

use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::LogError;
use layer0::id::RunId;
use sqlx::PgConnection;
use sqlx::postgres::PgListener;

use crate::database::Database;
use crate::fault::Fault;
use crate::lookout::QUEUE_CHANNEL;
use crate::pool::Pool;
use crate::text::stored;
use crate::transact::transact;

pub use self::enqueue::{Enqueue, Enqueued};
pub use self::entry::{QueueEntry, QueueState, Refusal};
pub use self::error::QueueError;
pub use self::listing::QueueFilter;
pub use self::ready::{Look, Ready};
pub use self::stranded::StrandedRun;
pub use self::take::{QueueLimit, Taken};
pub use self::unserved::UnservedQueue;
pub use self::worker_row::WorkerRow;

/// How long rows are kept that are not needed, in milliseconds.
const KEPT: i64 = 24 * 60 * 60 * 1_000;

/// The queue of runs in a database. Clones are the same queue.
///
/// ```no_run
/// use backstop_store_postgres::{Database, Enqueue};
/// use layer0::operator::Task;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let database = Database::connect("postgres://backstop@localhost/agents").await?;
/// let queued = database
///     .queue()
///     .enqueue(&Enqueue::new("support", Task::text("Where is order 7?")).key("mail-7"))
///     .await?;
/// println!("{}", queued.run);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Queue(Database);

impl Database {
    /// Returns the queue of runs.
    #[must_use]
    pub fn queue(&self) -> Queue {
        Queue(self.clone())
    }
}

impl Queue {
    /// The queue of runs and workers that name none.
    pub const DEFAULT: &str = values::DEFAULT;

    /// Puts a run in, unless its key stands for one already.
    ///
    /// # Errors
    ///
    /// [`QueueError::Invalid`], [`QueueError::KeyReused`], [`QueueError::Log`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the run is put in or not; with a key it can be asked for again.
    pub async fn enqueue(&self, request: &Enqueue) -> Result<Enqueued, QueueError> {
        let entry = request.entry(SystemClock.now())?;
        let put_in = enqueue::PutIn(&entry);
        let enqueued = transact(self.pool()?, self.0.options().patience, &put_in).await?;
        if enqueued.is_new {
            self.0.lookout().ring_queue();
        }
        Ok(enqueued)
    }

    /// Puts a run in as [`Queue::enqueue`] does, in a transaction of the caller's on the same database: it is there
    /// when that commits, and not where it is rolled back. Call it late in the transaction, which holds up others
    /// with the same key until it ends. Workers find it when they look next, within half a second. Behind a proxy that
    /// shares connections the transaction begins with `DEALLOCATE ALL`, on a connection that caches no statements.
    ///
    /// # Errors
    ///
    /// As [`Queue::enqueue`]. The transaction can be gone on with after [`QueueError::Invalid`] and
    /// [`QueueError::KeyReused`] alone.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, roll the transaction back.
    pub async fn enqueue_in(
        connection: &mut PgConnection,
        request: &Enqueue,
    ) -> Result<Enqueued, QueueError> {
        enqueue::put(connection, &request.entry(SystemClock.now())?).await
    }

    /// Returns what is in the queue, in order.
    ///
    /// # Errors
    ///
    /// [`LogError::Unreachable`], [`LogError::Closed`], [`LogError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn list(&self, filter: &QueueFilter) -> Result<Vec<QueueEntry>, LogError> {
        listing::list(self.0.pool(), filter).await
    }

    /// Returns runs of the queue whose ids begin with `prefix`, at most so many, in the order of their ids.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn find(&self, prefix: &str, most: usize) -> Result<Vec<RunId>, LogError> {
        lookup::find(self.0.pool(), prefix, most).await
    }

    /// Takes a run out that no worker has started, and frees its key; says whether there was one. One that has started
    /// is cancelled as any run is.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the run is taken out or not.
    pub async fn cancel(&self, run: &RunId) -> Result<bool, LogError> {
        let mut lent = self.pool()?.lend().await?;
        let taken = sqlx::query(
            "WITH taken AS (DELETE FROM backstop.queue AS queue WHERE run = $1 AND owner IS NULL \
             AND NOT EXISTS (SELECT 1 FROM backstop.runs WHERE runs.run = queue.run) RETURNING run), \
             freed AS (DELETE FROM backstop.start_keys USING taken WHERE start_keys.run = taken.run), \
             unmarked AS (DELETE FROM backstop.lost_tails USING taken WHERE lost_tails.run = taken.run) \
             SELECT 1 FROM taken",
        )
        .bind(&*stored(run.as_str()))
        .execute(&mut *lent)
        .await
        .map_err(Fault::from)?;
        lent.end().await?;
        Ok(taken.rows_affected() > 0)
    }

    /// Takes runs out to start them, at most so many, in the order in which they are due. Of a session there is one at
    /// a time, in the order in which they were put in, and none while a run of it is open. None of `paused` is taken. A
    /// row that cannot be read is refused.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, runs may stay taken until the lease of this process ends.
    pub async fn take(
        &self,
        queues: &[QueueLimit],
        agents: &[&str],
        most: usize,
        paused: &[&str],
    ) -> Result<Vec<Taken>, LogError> {
        let (owner, _) = self.0.owner().get().await?;
        let now = SystemClock.now();
        let turn = self.0.next_turn();
        let take = take::TakeQueued { owner: &owner, queues, agents, most, paused, now, turn };
        transact(self.pool()?, self.0.options().patience, &take).await
    }

    /// Takes a run of the queue that has a record, to go on with it; says whether the limit of its queue lets it, and no
    /// other process was faster. One that was never in the queue is for any that claims it.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::take`].
    pub async fn take_again(&self, run: &RunId, queues: &[QueueLimit]) -> Result<bool, LogError> {
        let (owner, _) = self.0.owner().get().await?;
        let again = take::TakeAgain { owner: &owner, run, queues };
        transact(self.pool()?, self.0.options().patience, &again).await
    }

    /// Gives a run back that this process is not at work on any more: one that is over leaves the queue.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the run may stay taken until the lease of this process ends.
    pub async fn give_back(&self, run: &RunId) -> Result<(), LogError> {
        let Some((owner, _)) = self.0.owner().known().await else { return Ok(()) };
        let give_back = take::GiveBack { owner: &owner, run };
        transact(self.pool()?, self.0.options().patience, &give_back).await
    }

    /// Notes why a run cannot be started; it stays in the queue for a person to see, and is not taken again.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::give_back`].
    pub async fn refuse(&self, run: &RunId, refusal: &Refusal) -> Result<(), LogError> {
        let text =
            serde_json::to_string(refusal).map_err(|error| LogError::Failed(error.into()))?;
        let Some((owner, _)) = self.0.owner().known().await else { return Ok(()) };
        let mut lent = self.pool()?.lend().await?;
        sqlx::query(
            "UPDATE backstop.queue SET owner = NULL, refused = $2 WHERE run = $1 AND owner = $3",
        )
        .bind(&*stored(run.as_str()))
        .bind(&*stored(&text))
        .bind(&*owner)
        .execute(&mut *lent)
        .await
        .map_err(Fault::from)?;
        lent.end().await?;
        Ok(())
    }

    /// Frees what processes had that have died, and returns the runs that can be gone on with by agents of these
    /// names and digests: open without an owner, parked and due, or waiting with something in their inbox. Of runs of the
    /// queue, those of the worker's own queues.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing that another look does not mend.
    pub async fn ready(&self, worker: &WorkerRow, look: Look<'_>) -> Result<Vec<Ready>, LogError> {
        ready::ready(&self.0, worker, look, SystemClock.now()).await
    }

    /// Returns the open runs whose agent no live worker has, oldest first: those of the queue, and all of a database in
    /// which a worker was ever announced. Where none was, a run that its process left is open, and not stranded.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn stranded(&self) -> Result<Vec<StrandedRun>, LogError> {
        stranded::stranded(self.0.pool()).await
    }

    /// Returns the queues in which runs wait that no live worker takes: no worker takes runs from the queue, or none of
    /// those that do has the agent.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn unserved(&self) -> Result<Vec<UnservedQueue>, LogError> {
        unserved::unserved(self.0.pool(), None).await
    }

    /// Says whether a run of an agent in a queue is one that no live worker takes, as [`Queue::unserved`] does of those
    /// that wait. No run is counted.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// ```no_run
    /// use backstop_store_postgres::Database;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let database = Database::connect("postgres://backstop@localhost/agents").await?;
    /// if let Some(unserved) = database.queue().unserved_by("mail", "support").await? {
    ///     println!("none of {} workers takes runs of `support` from `mail`", unserved.workers);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn unserved_by(
        &self,
        queue: &str,
        agent: &str,
    ) -> Result<Option<UnservedQueue>, LogError> {
        Ok(unserved::unserved(self.0.pool(), Some((queue, agent))).await?.pop())
    }

    /// Says what this process goes on with, so that others know which runs are stranded; for as long as its lease
    /// lasts.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it was said or not.
    pub async fn announce(&self, worker: &WorkerRow) -> Result<(), LogError> {
        let (owner, _) = self.0.owner().get().await?;
        worker_row::announce(self.pool()?, &owner, worker, SystemClock.now()).await
    }

    /// Removes runs that were over a day ago, and workers that are gone.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some may be left for the next time.
    pub async fn clean(&self) -> Result<(), LogError> {
        let until = SystemClock.now().as_millis().saturating_sub(KEPT);
        for statement in [
            "DELETE FROM backstop.queue USING backstop.runs WHERE runs.run = queue.run \
             AND runs.ended_at IS NOT NULL AND runs.started_at < $1",
            "DELETE FROM backstop.workers WHERE started_at < $1 \
             AND NOT EXISTS (SELECT 1 FROM backstop.processes WHERE processes.id = workers.process)",
        ] {
            let mut lent = self.pool()?.lend().await?;
            let cleaned = sqlx::query(statement).bind(until).execute(&mut *lent).await;
            cleaned.map_err(Fault::from)?;
            lent.end().await?;
        }
        Ok(())
    }

    /// Returns what hears of runs that are put in.
    #[must_use]
    pub fn watch(&self) -> QueueWatch {
        QueueWatch { queue: self.clone(), listener: None }
    }

    fn pool(&self) -> Result<&Pool, LogError> {
        match self.0.writer() {
            Some(_) => Ok(self.0.pool()),
            None => Err(LogError::Failed("the database was opened for reading".into())),
        }
    }
}

/// Hears of runs that are put into a queue. What is lost with a connection is found by looking.
#[derive(Debug)]
pub struct QueueWatch {
    queue: Queue,
    listener: Option<PgListener>,
}

impl QueueWatch {
    /// Waits until something was put in, or so long at most.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing that a look does not find.
    pub async fn changed(&mut self, at_most: Duration) {
        let told = async {
            if self.listener.is_none() {
                self.listener = self.queue.0.pool().listener(QUEUE_CHANNEL).await;
            }
            match &mut self.listener {
                Some(listener) => {
                    if !matches!(listener.try_recv().await, Ok(Some(_))) {
                        self.listener = None;
                        SystemClock.sleep(at_most).await;
                    }
                }
                None => SystemClock.sleep(at_most).await,
            }
        };
        tokio::select! {
            () = told => {}
            () = SystemClock.sleep(at_most) => {}
        }
    }
}
