//! One of the tasks that append; its appends share commits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::LogError;
use layer0::id::RunId;
use sqlx::{Connection, PgConnection};
use tokio::sync::{mpsc, oneshot};

use super::job::{Job, Queued, WriterSetup};
use crate::append::{self, Append, AppendRefusal};
use crate::claims;
use crate::connect::Connect;
use crate::fault::Fault;
use crate::limits;
use crate::transact::Transient;

/// Maximum number of appends in a commit, which bounds the time to the first answer.
const MAX_APPENDS: usize = 256;
/// Maximum number of events in a commit, unless one append has more.
const MAX_EVENTS: usize = 4_096;
/// Maximum bytes of events in a commit, unless one append has more.
const MAX_BYTES: usize = 32 << 20;
/// Initial delay before the same appends are retried.
const WAIT: Duration = Duration::from_millis(20);
const MAX_WAIT: Duration = Duration::from_millis(500);

/// The task that appends to some of the runs.
pub(super) struct Lane {
    setup: Arc<WriterSetup>,
    connection: Option<PgConnection>,
    commits: Arc<AtomicU64>,
    /// The last acknowledged event of each run that is written to.
    acknowledged: HashMap<RunId, u64>,
}

/// An append without an answer.
struct QueuedAppend {
    append: Box<Append>,
    answer: oneshot::Sender<Result<(), LogError>>,
}

impl Lane {
    pub(super) fn new(setup: Arc<WriterSetup>, commits: Arc<AtomicU64>) -> Self {
        Self { setup, connection: None, commits, acknowledged: HashMap::new() }
    }

    pub(super) async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Queued>) {
        let mut queued = Vec::new();
        while !queued.is_empty() || jobs.recv_many(&mut queued, MAX_APPENDS).await > 0 {
            // Callers just answered usually send the next job at once; after a yield their jobs share this commit.
            tokio::task::yield_now().await;
            while queued.len() < MAX_APPENDS
                && let Ok(job) = jobs.try_recv()
            {
                queued.push(job);
            }
            let rest = queued.split_off(together(&queued));
            let (mut appends, mut releases) = (Vec::new(), Vec::new());
            // The permits are returned once the jobs are answered.
            let mut permits = Vec::new();
            for Queued { job, _permit } in std::mem::replace(&mut queued, rest) {
                permits.push(_permit);
                match job {
                    Job::Append(append, answer) => appends.push(QueuedAppend { append, answer }),
                    Job::Release(run, epoch) => {
                        self.acknowledged.remove(&run);
                        releases.push((run, epoch));
                    }
                }
            }
            self.write(appends).await;
            self.free(&releases).await;
        }
        if let Some(connection) = self.leave().await
            && let Err(error) = connection.close().await
        {
            tracing::debug!(%error, "closing a connection failed");
        }
    }

    /// If this is the last task, releases all claims and ends the owner.
    async fn leave(self) -> Option<PgConnection> {
        let Self { setup, connection, commits, acknowledged } = self;
        let Some(setup) = Arc::into_inner(setup).map(Arc::new) else { return connection };
        let mut last = Self { setup, connection, commits, acknowledged };
        let held = last.setup.claims.still_held();
        let held: Vec<_> = held.into_iter().map(|(run, epoch)| (run, Some(epoch))).collect();
        last.free(&held).await;
        last.setup.owner.leave().await;
        last.connection
    }

    /// Writes appends in one transaction. After a conflict with another transaction or an error of the server, all are
    /// retried together; if a single append is the cause, each is written alone.
    async fn write(&mut self, appends: Vec<QueuedAppend>) {
        if appends.is_empty() {
            return;
        }
        let mut waiting = self.without_lost(appends).await;
        let until = SystemClock.monotonic() + self.setup.patience;
        let mut wait = WAIT;
        let mut was_lost = false;
        while !waiting.is_empty() {
            let written = match was_lost {
                // An answer may have been lost: the head of each run in the log shows whether the append was written.
                true => match self.settle(&mut waiting).await {
                    Ok(()) if waiting.is_empty() => break,
                    Ok(()) => self.transact(&waiting).await,
                    Err(error) => Err(error),
                },
                false => self.transact(&waiting).await,
            };
            let error = match written {
                Ok(refused) => {
                    self.answer(waiting, refused, was_lost).await;
                    return;
                }
                Err(error) => error,
            };
            if !error.is_transient() {
                return self.write_alone(waiting, error).await;
            }
            if matches!(error, LogError::Unreachable(_)) {
                self.connection = None;
                was_lost = true;
            }
            if SystemClock.monotonic() + wait > until {
                return answer_all(waiting, &error);
            }
            SystemClock.sleep(wait).await;
            wait = MAX_WAIT.min(wait * 2);
            waiting = self.without_lost(waiting).await;
        }
    }

    /// Refuses the appends whose claims are lost.
    async fn without_lost(&self, appends: Vec<QueuedAppend>) -> Vec<QueuedAppend> {
        // Checks whether the lease has ended.
        let _ = self.setup.owner.get_live().await;
        let is_lost = |waiting: &QueuedAppend| self.setup.claims.is_lost(waiting.append.run());
        let (lost, left): (Vec<_>, Vec<_>) = appends.into_iter().partition(is_lost);
        for QueuedAppend { append, answer } in lost {
            let _ = answer.send(Err(LogError::LeaseEnded(append.run().clone())));
        }
        left
    }

    async fn ensure_connection(&mut self) -> Result<&mut PgConnection, LogError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.setup.connect.connect().await.map_err(Fault::from)?,
        };
        Ok(self.connection.insert(connection))
    }

    async fn transact(
        &mut self,
        waiting: &[QueuedAppend],
    ) -> Result<Vec<Option<AppendRefusal>>, LogError> {
        let appends: Vec<&Append> = waiting.iter().map(|waiting| &*waiting.append).collect();
        let begins = appends.iter().any(|append| append.begins());
        let owner = match begins {
            true => self.setup.owner.get().await?.0,
            false => "".into(),
        };
        let connect = self.setup.connect.clone();
        let connection = self.ensure_connection().await?;
        let refused = match appends.iter().any(|append| append.needs_more()) {
            // One statement, which is its own transaction.
            false => {
                let moved = write_rows(&connect, connection, &appends).await?;
                moved
                    .into_iter()
                    .map(|moved| (!moved).then_some(AppendRefusal::NotAtItsEnd))
                    .collect()
            }
            true => {
                let transaction = connect.begin(connection, append::BEGIN).await;
                let mut transaction = transaction.map_err(Fault::from)?;
                let refused = append::write(&mut transaction, &appends, &owner).await?;
                transaction.commit().await.map_err(Fault::from)?;
                refused
            }
        };
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(refused)
    }

    /// Answers the appends that were written although their answer was lost, and those that can no longer be written.
    async fn settle(&mut self, waiting: &mut Vec<QueuedAppend>) -> Result<(), LogError> {
        let heads = self.read_heads(waiting).await?;
        let mut left = Vec::new();
        let mut has_events = false;
        for QueuedAppend { append, answer } in waiting.drain(..) {
            let head = heads.iter().find(|(run, _)| run == append.run()).map(|(_, head)| head);
            let (last_seq, hash) = append.head();
            match head {
                Some(head)
                    if !append.is_empty() && head.last_seq == last_seq && head.hash == hash.0 =>
                {
                    has_events = true;
                    self.acknowledge(&append);
                    let _ = answer.send(Ok(()));
                }
                // Unchanged.
                None if append.begins() => left.push(QueuedAppend { append, answer }),
                Some(head) if head.last_seq == append.before() && !append.begins() => {
                    left.push(QueuedAppend { append, answer });
                }
                head => drop(answer.send(Err(self.refusal(&append, head)))),
            }
        }
        *waiting = left;
        if has_events {
            self.ring();
        }
        Ok(())
    }

    async fn answer(
        &mut self,
        waiting: Vec<QueuedAppend>,
        refused: Vec<Option<AppendRefusal>>,
        was_lost: bool,
    ) {
        let mut has_events = false;
        let mut late = Vec::new();
        for (QueuedAppend { append, answer }, refused) in waiting.into_iter().zip(refused) {
            match refused {
                None => {
                    has_events |= !append.is_empty();
                    self.acknowledge(&append);
                    let _ = answer.send(Ok(()));
                }
                Some(AppendRefusal::By(error)) => drop(answer.send(Err(error))),
                // A statement in flight when the connection was lost may have been written just before.
                Some(AppendRefusal::NotAtItsEnd) => late.push(QueuedAppend { append, answer }),
            }
        }
        if has_events {
            self.ring();
        }
        if late.is_empty() {
            return;
        }
        let asked = match was_lost {
            true => self.settle(&mut late).await,
            false => Ok(()),
        };
        if let Err(error) = asked {
            return answer_all(late, &error);
        }
        let heads = self.read_heads(&late).await.unwrap_or_default();
        for QueuedAppend { append, answer } in late {
            let head = heads.iter().find(|(run, _)| run == append.run()).map(|(_, head)| head);
            let _ = answer.send(Err(self.refusal(&append, head)));
        }
    }

    async fn read_heads(
        &mut self,
        waiting: &[QueuedAppend],
    ) -> Result<Vec<(RunId, append::RunHead)>, LogError> {
        let runs: Vec<RunId> = waiting.iter().map(|waiting| waiting.append.run().clone()).collect();
        let connect = self.setup.connect.clone();
        let connection = self.ensure_connection().await?;
        let transaction = connect.begin(connection, "BEGIN").await;
        let mut transaction = transaction.map_err(Fault::from)?;
        let heads = append::heads(&mut transaction, runs.iter()).await?;
        transaction.rollback().await.map_err(Fault::from)?;
        Ok(heads)
    }

    /// Writes each append in its own transaction, so that a refused one affects no other.
    async fn write_alone(&mut self, mut waiting: Vec<QueuedAppend>, error: LogError) {
        if let [_] = &waiting[..] {
            let one = waiting.remove(0);
            let _ = one.answer.send(Err(error));
            return;
        }
        for one in waiting {
            Box::pin(self.write(vec![one])).await;
        }
    }

    /// Releases runs. A run that could not be released is free when this process ends.
    async fn free(&mut self, runs: &[(RunId, Option<u64>)]) {
        if runs.is_empty() {
            return;
        }
        let Some((owner, _)) = self.setup.owner.get_live().await else { return };
        let connect = self.setup.connect.clone();
        let until = SystemClock.monotonic() + self.setup.patience;
        let mut wait = WAIT;
        loop {
            let freed = match self.ensure_connection().await {
                Ok(connection) => free(&connect, connection, runs, &owner).await,
                Err(error) => Err(error),
            };
            let Err(error) = freed else { return };
            if matches!(error, LogError::Unreachable(_)) {
                self.connection = None;
            }
            if !error.is_transient() || SystemClock.monotonic() + wait > until {
                tracing::warn!(%error, "runs could not be freed");
                return;
            }
            SystemClock.sleep(wait).await;
            wait = MAX_WAIT.min(wait * 2);
        }
    }

    fn acknowledge(&mut self, append: &Append) {
        if append.frees() {
            self.setup.claims.mark_released(append.run());
            self.acknowledged.remove(append.run());
        } else {
            self.acknowledged.insert(append.run().clone(), append.head().0);
        }
    }

    /// Returns the error of a refused append: its run does not end where it begins, has a newer claim, or even ends
    /// before an acknowledged event.
    fn refusal(&self, append: &Append, head: Option<&append::RunHead>) -> LogError {
        let known = self.acknowledged.get(append.run()).copied().unwrap_or(0);
        match head.map_or(0, |head| head.last_seq) < known {
            true => LogError::Lost(append.run().clone()),
            false => append.conflict(),
        }
    }

    fn ring(&self) {
        self.setup.watches.events.ring();
        self.setup.notify.notify_one();
    }
}

/// Writes appends that need only one statement, which is its own transaction except behind a proxy.
async fn write_rows(
    connect: &Connect,
    connection: &mut PgConnection,
    appends: &[&Append],
) -> Result<Vec<bool>, LogError> {
    if !connect.is_shared() {
        return append::write_rows(connection, appends).await;
    }
    let transaction = connect.begin(connection, append::BEGIN).await;
    let mut transaction = transaction.map_err(Fault::from)?;
    let moved = append::write_rows(&mut transaction, appends).await?;
    transaction.commit().await.map_err(Fault::from)?;
    Ok(moved)
}

async fn free(
    connect: &Connect,
    connection: &mut PgConnection,
    runs: &[(RunId, Option<u64>)],
    owner: &str,
) -> Result<(), LogError> {
    let transaction = connect.begin(connection, "BEGIN").await;
    let mut transaction = transaction.map_err(Fault::from)?;
    claims::free(&mut transaction, runs, owner).await?;
    Ok(transaction.commit().await.map_err(Fault::from)?)
}

/// Returns the number of queued jobs to write together: each run once, and within the limit of events.
fn together(queued: &[Queued]) -> usize {
    let mut runs: HashSet<&RunId> = HashSet::new();
    let (mut events, mut bytes) = (0, 0_usize);
    for (place, queued) in queued.iter().enumerate() {
        if let Job::Append(append, _) = &queued.job {
            events += append.batch.records.len();
            bytes = bytes.saturating_add(limits::bytes(&append.batch));
            let is_too_much = events > MAX_EVENTS || bytes > MAX_BYTES;
            if !runs.insert(append.run()) || (place > 0 && is_too_much) {
                return place;
            }
        }
    }
    queued.len()
}

/// Answers appends that all failed with the same error.
fn answer_all(waiting: Vec<QueuedAppend>, error: &LogError) {
    let said = layer0::failure::Chain(error).to_string();
    for QueuedAppend { answer, .. } in waiting {
        let why = said.clone().into();
        let _ = answer.send(Err(match error {
            LogError::Locked(_) => LogError::Locked(why),
            LogError::Unreachable(_) => LogError::Unreachable(why),
            _ => LogError::Failed(why),
        }));
    }
}
