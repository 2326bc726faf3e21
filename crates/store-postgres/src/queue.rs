//! Runs that wait for a worker, and runs that a worker can resume.

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
use crate::pool::ConnectionPool;
use crate::server_time::server_ms;
use crate::text::encode_text;
use crate::transact::transact;

pub use self::enqueue::{Enqueue, Enqueued};
pub use self::entry::{QueueEntry, QueueState, StartRefusal};
pub use self::error::QueueError;
pub use self::listing::QueueFilter;
pub use self::ready::{Look, Ready};
pub use self::stranded::StrandedRun;
pub use self::take::{QueueLimit, TakenRun};
pub use self::unserved::UnservedQueue;
pub use self::worker_row::WorkerRow;

/// The queue of runs in a database. Clones share it.
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
    /// Name of the default queue of runs and workers.
    pub const DEFAULT: &str = values::DEFAULT;

    /// Enqueues a run, unless its key is already bound to one.
    ///
    /// # Errors
    ///
    /// [`QueueError::Invalid`], [`QueueError::KeyReused`], [`QueueError::Log`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the run may or may not be enqueued; with a key the call can be repeated.
    pub async fn enqueue(&self, request: &Enqueue) -> Result<Enqueued, QueueError> {
        let entry = request.entry()?;
        let put_in = enqueue::PutIn(&entry);
        let enqueued = transact(self.pool()?, self.0.options().patience, &put_in).await?;
        if enqueued.is_new {
            self.0.lookout().ring_queue();
        }
        Ok(enqueued)
    }

    /// Enqueues a run as [`Queue::enqueue`] does, in the caller's transaction on the same database: the run is in the
    /// queue once that commits, and not if it is rolled back.
    ///
    /// Call this late in the transaction, which blocks others with the same key until it ends. Workers find the run
    /// when they next poll, within half a second. Behind a proxy that shares connections the transaction must begin
    /// with `DEALLOCATE ALL`, on a connection that caches no statements.
    ///
    /// # Errors
    ///
    /// As [`Queue::enqueue`]. The transaction can continue only after [`QueueError::Invalid`] and
    /// [`QueueError::KeyReused`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, roll the transaction back.
    pub async fn enqueue_in(
        connection: &mut PgConnection,
        request: &Enqueue,
    ) -> Result<Enqueued, QueueError> {
        enqueue::put(connection, &request.entry()?).await
    }

    /// Returns the entries of the queue, in order.
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

    /// Returns runs of the queue whose ids begin with `prefix`, at most `most`, in the order of their ids.
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

    /// Removes a run that no worker has started, and frees its key; returns whether there was one. A started run is
    /// cancelled as any run is.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the run may or may not be removed.
    pub async fn cancel(&self, run: &RunId) -> Result<bool, LogError> {
        let mut lent = self.pool()?.lend().await?;
        let taken = sqlx::query(
            "WITH taken AS (DELETE FROM backstop.queue AS queue WHERE run = $1 AND owner IS NULL \
             AND NOT EXISTS (SELECT 1 FROM backstop.runs WHERE runs.run = queue.run) RETURNING run), \
             freed AS (DELETE FROM backstop.start_keys USING taken WHERE start_keys.run = taken.run), \
             unmarked AS (DELETE FROM backstop.lost_tails USING taken WHERE lost_tails.run = taken.run) \
             SELECT 1 FROM taken",
        )
        .bind(&*encode_text(run.as_str()))
        .execute(&mut *lent)
        .await
        .map_err(Fault::from)?;
        lent.end().await?;
        Ok(taken.rows_affected() > 0)
    }

    /// Takes runs from the queue to start them, at most `most`, in the order in which they are due.
    ///
    /// Runs of a session are started one at a time, in the order in which they were enqueued, and only while no run of
    /// the session is open. No run in `paused` is taken. A row that cannot be decoded is refused.
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
    ) -> Result<Vec<TakenRun>, LogError> {
        let (owner, _) = self.0.owner().get().await?;
        let turn = self.0.next_turn();
        let take = take::TakeQueued { owner: &owner, queues, agents, most, paused, turn };
        transact(self.pool()?, self.0.options().patience, &take).await
    }

    /// Takes a run of the queue that has a record, to resume it. Returns whether the limit of its queue allows it and
    /// no other process was faster. A run that was never in the queue can be resumed by any process that claims it.
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

    /// Returns a run to the queue that this process no longer runs; an ended run is removed from the queue.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the run may stay taken until the lease of this process ends.
    pub async fn give_back(&self, run: &RunId) -> Result<(), LogError> {
        let Some((owner, _)) = self.0.owner().get_live().await else { return Ok(()) };
        let give_back = take::GiveBack { owner: &owner, run };
        transact(self.pool()?, self.0.options().patience, &give_back).await
    }

    /// Records why a run cannot be started. The run stays in the queue, visible to people, and is not taken again.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::give_back`].
    pub async fn refuse(&self, run: &RunId, refusal: &StartRefusal) -> Result<(), LogError> {
        let text =
            serde_json::to_string(refusal).map_err(|error| LogError::Failed(error.into()))?;
        let Some((owner, _)) = self.0.owner().get_live().await else { return Ok(()) };
        let mut lent = self.pool()?.lend().await?;
        sqlx::query(
            "UPDATE backstop.queue SET owner = NULL, refused = $2 WHERE run = $1 AND owner = $3",
        )
        .bind(&*encode_text(run.as_str()))
        .bind(&*encode_text(&text))
        .bind(&*owner)
        .execute(&mut *lent)
        .await
        .map_err(Fault::from)?;
        lent.end().await?;
        Ok(())
    }

    /// Releases the runs of processes that died, and returns the runs that can be resumed by agents with these names
    /// and digests.
    ///
    /// These are runs that are open without an owner, parked and due, or waiting with a row in their inbox. Of queued
    /// runs, only those in the worker's own queues are returned.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, another call completes the work.
    pub async fn ready(&self, worker: &WorkerRow, look: Look<'_>) -> Result<Vec<Ready>, LogError> {
        ready::ready(&self.0, worker, look).await
    }

    /// Returns the open runs whose agent no live worker has, oldest first: queued runs, and all runs of a database in
    /// which a worker was ever announced. Without any worker, a run without a process is open and not stranded.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn list_stranded(&self) -> Result<Vec<StrandedRun>, LogError> {
        stranded::list_stranded(self.0.pool()).await
    }

    /// Returns the queues with waiting runs that no live worker takes: no worker takes runs from the queue, or none of
    /// those that do has the agent.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn list_unserved(&self) -> Result<Vec<UnservedQueue>, LogError> {
        unserved::list_unserved(self.0.pool(), None).await
    }

    /// Returns whether a run of an agent in a queue would be taken by no live worker, as [`Queue::list_unserved`] returns
    /// for waiting runs. No runs are counted.
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
        Ok(unserved::list_unserved(self.0.pool(), Some((queue, agent))).await?.pop())
    }

    /// Announces which agents and queues this process serves, so that other processes know which runs are stranded. The
    /// announcement lasts as long as the lease of this process.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the announcement may or may not be written.
    pub async fn announce(&self, worker: &WorkerRow) -> Result<(), LogError> {
        let (owner, _) = self.0.owner().get().await?;
        worker_row::announce(self.pool()?, &owner, worker).await
    }

    /// Removes runs that have ended, and workers that are gone and were announced more than a day ago, by the server's
    /// clock.
    ///
    /// # Errors
    ///
    /// As [`Queue::list`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some rows may be left for the next call.
    pub async fn clean(&self) -> Result<(), LogError> {
        for statement in [
            "DELETE FROM backstop.queue USING backstop.runs WHERE runs.run = queue.run \
             AND runs.ended_at IS NOT NULL",
            concat!(
                "DELETE FROM backstop.workers WHERE started_at < ",
                server_ms!(),
                " - 24 * 60 * 60 * 1000 AND NOT EXISTS \
                 (SELECT 1 FROM backstop.processes WHERE processes.id = workers.process)"
            ),
        ] {
            let mut lent = self.pool()?.lend().await?;
            let cleaned = sqlx::query(statement).execute(&mut *lent).await;
            cleaned.map_err(Fault::from)?;
            lent.end().await?;
        }
        Ok(())
    }

    /// Returns a watch for enqueued runs.
    #[must_use]
    pub fn watch(&self) -> QueueWatch {
        QueueWatch { queue: self.clone(), listener: None }
    }

    fn pool(&self) -> Result<&ConnectionPool, LogError> {
        match self.0.writer() {
            Some(_) => Ok(self.0.pool()),
            None => Err(LogError::Failed("the database was opened for reading".into())),
        }
    }
}

/// Watch for enqueued runs. A notification that is lost with a connection is made up for by polling.
#[derive(Debug)]
pub struct QueueWatch {
    queue: Queue,
    listener: Option<PgListener>,
}

impl QueueWatch {
    /// Waits until a run was enqueued, or for at most `at_most`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing that the next poll does not find.
    pub async fn wait_for_change(&mut self, at_most: Duration) {
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
