//! Which runs this process writes to: rows that name it as their owner.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backstop_event_log::{Claim, LogError};
use layer0::id::RunId;
use sqlx::{Row, SqliteConnection};
use tokio::sync::mpsc::WeakUnboundedSender;

use crate::job::{Claiming, Job, Queued};
use crate::job_error::JobError;
use crate::owner::Owner;
use crate::rows::{signed, unsigned};

/// The claims that an open database holds.
#[derive(Debug)]
pub(crate) struct Claims {
    owner: Owner,
    /// The claims by run, each with the epoch under which it writes; 0 while it is asked for.
    held: Mutex<HashMap<RunId, u64>>,
    /// The epoch of the next claim of a new run.
    next_epoch: AtomicU64,
}

impl Claims {
    pub(crate) fn new(owner: Owner) -> Self {
        Self { owner, held: Mutex::default(), next_epoch: AtomicU64::new(Claim::FIRST) }
    }

    pub(crate) const fn owner(&self) -> &Owner {
        &self.owner
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, u64>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the epoch of a new run's claim. No two are the same: a run that was refused is begun again
    /// under its id, and what frees the first claim must not free the second.
    pub(crate) fn new_epoch(&self) -> u64 {
        self.next_epoch.fetch_add(1, Ordering::Relaxed)
    }

    /// Reserves a run in this process; `None` when it is claimed here already.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        run: &RunId,
        epoch: u64,
        jobs: WeakUnboundedSender<Queued>,
    ) -> Option<Reserved> {
        let mut held = self.lock();
        if held.contains_key(run) {
            return None;
        }
        held.insert(run.clone(), epoch);
        Some(Reserved { claims: Arc::clone(self), run: run.clone(), jobs, is_asking: false })
    }

    /// The last event of the run frees it in the append itself.
    pub(crate) fn ended(&self, run: &RunId) {
        if let Some(epoch) = self.lock().get_mut(run) {
            *epoch = 0;
        }
    }

    /// Returns the runs that are to be freed when the database is closed.
    pub(crate) fn still_held(&self) -> Vec<(RunId, u64)> {
        let held = self.lock();
        held.iter()
            .filter(|(_, epoch)| **epoch > 0)
            .map(|(run, epoch)| (run.clone(), *epoch))
            .collect()
    }
}

/// A run that is this process's until it is dropped.
pub(crate) struct Reserved {
    claims: Arc<Claims>,
    run: RunId,
    jobs: WeakUnboundedSender<Queued>,
    /// Was the writer asked for the claim, and the answer not heard yet?
    is_asking: bool,
}

impl Reserved {
    /// Notes that the writer is asked for the claim: dropped before the answer is heard, it is freed
    /// whether it was given or not.
    pub(crate) const fn asking(&mut self) {
        self.is_asking = true;
    }

    /// Notes that the writer has answered, and gave no claim.
    pub(crate) const fn refused(&mut self) {
        self.is_asking = false;
    }

    /// Makes a claim of it.
    pub(crate) fn claim(mut self, epoch: u64) -> Claim {
        self.is_asking = false;
        if let Some(held) = self.claims.lock().get_mut(&self.run) {
            *held = epoch;
        }
        Claim::new(epoch, self)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // Behind the appends that are queued already, so that a run is free only when they are written.
        let mut held = self.claims.lock();
        let epoch = held.get(&self.run).copied().unwrap_or(0);
        let release = match epoch {
            0 => self.is_asking.then_some(None),
            epoch => Some(Some(epoch)),
        };
        if let Some(epoch) = release
            && let Some(jobs) = self.jobs.upgrade()
        {
            let _ = jobs.send(Queued::release(Job::Release(self.run.clone(), epoch)));
        }
        held.remove(&self.run);
    }
}

/// The runs of a tree, `$1` being one of them, that others have than `$2` and the dead ones `$3`.
macro_rules! others {
    () => {
        "FROM runs AS other WHERE (other.run = (SELECT coalesce(root, run) FROM runs WHERE run = $1) \
         OR other.root = (SELECT coalesce(root, run) FROM runs WHERE run = $1)) \
         AND other.owner <> $2 AND other.owner NOT IN (SELECT value FROM json_each($3)) "
    };
}

/// Takes a run for an owner, inside a transaction, where no run of its tree has another owner that lives:
/// one that is free, that this process had, or that a dead owner had. A writer of another process
/// that wrote to the runs below it before is refused from then on.
pub(crate) async fn take(
    connection: &mut SqliteConnection,
    run: &RunId,
    owner: &str,
    dead: &[Arc<str>],
) -> Result<Claiming, JobError> {
    let dead = serde_json::to_string(dead).map_err(|error| LogError::Failed(error.into()));
    let dead = dead.map_err(JobError::Log)?;
    let taken = sqlx::query(concat!(
        "UPDATE runs SET epoch = epoch + 1, owner = CASE run WHEN $1 THEN $2 END \
         WHERE (run = $1 OR root = $1 AND owner IS NOT $2) AND NOT EXISTS (SELECT 1 ",
        others!(),
        ") RETURNING run = $1, epoch"
    ))
    .bind(run.as_str())
    .bind(owner)
    .bind(&*dead)
    .fetch_all(&mut *connection)
    .await?;
    for row in taken {
        if row.try_get(0)? {
            return Ok(Claiming::Given(unsigned(row.try_get(1)?)));
        }
    }
    let held: Option<String> =
        sqlx::query_scalar(concat!("SELECT other.owner ", others!(), "LIMIT 1"))
            .bind(run.as_str())
            .bind(owner)
            .bind(&*dead)
            .fetch_optional(connection)
            .await?;
    Ok(held.map_or(Claiming::NoRun, |owner| Claiming::Held(owner.into())))
}

/// Frees a run, inside a transaction, unless it was claimed again; without an epoch, whichever it is
/// under which this owner has it.
pub(crate) async fn free(
    connection: &mut SqliteConnection,
    run: &RunId,
    owner: &str,
    epoch: Option<u64>,
) -> Result<(), JobError> {
    sqlx::query(
        "UPDATE runs SET owner = NULL WHERE run = $1 AND owner = $2 AND epoch = coalesce($3, epoch)",
    )
        .bind(run.as_str())
        .bind(owner)
        .bind(epoch.map(signed))
        .execute(connection)
        .await?;
    Ok(())
}

/// Makes the error of a claim that another owner has, or of one that cannot be given.
pub(crate) fn refused(run: &RunId, claiming: &Claiming) -> LogError {
    match claiming {
        Claiming::NoRun => LogError::NotFound(run.clone()),
        Claiming::Given(_) | Claiming::Held(_) => LogError::Claimed(run.clone()),
    }
}
