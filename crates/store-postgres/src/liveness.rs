//! Detection of dead processes that own runs.
//!
//! A process is dead once its lock was free for a while, or its lease was not renewed for a while. Both are measured
//! here on a monotonic clock, because the server's clock may be set by any amount.
//!
//! A dead process is removed from the table of processes before any of its runs is claimed. The removal and a renewal
//! exclude each other: either a process that is alive after all finds that it has lost its runs, or the process that
//! wants to remove it finds that it is alive.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::rows::to_u64;

/// Time for which a lock must be free before its owner counts as dead.
pub(crate) const TAKEN_AFTER: Duration = Duration::from_millis(1_500);
/// Maximum delay of a renewal.
const RENEWAL_SLACK: Duration = Duration::from_secs(1);

/// Condition that a process holds its lock, or has none.
macro_rules! has_lock {
    () => {
        "(lock IS NULL OR EXISTS (SELECT 1 FROM pg_locks \
         WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         AND classid::bigint = (lock >> 32) & 4294967295 \
         AND objid::bigint = lock & 4294967295))"
    };
}
pub(crate) use has_lock;

/// The end of a lease, as a number that changes with each renewal.
macro_rules! renewal {
    () => {
        "(extract(epoch FROM lease_until) * 1000000)::bigint"
    };
}

/// Earlier observations of processes. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Liveness(Arc<Mutex<HashMap<Arc<str>, ProcessObservation>>>);

/// The observation of a process since its last renewal.
#[derive(Debug, Clone, Copy)]
struct ProcessObservation {
    renewal: i64,
    since: Duration,
    /// Time at which its lock was first seen free.
    free_since: Option<Duration>,
}

/// The row of a process.
#[derive(Debug, Clone, Copy)]
struct ProcessRow {
    renewal: i64,
    /// Remaining time of the lease, by the server's clock.
    left_ms: i64,
    lease: Duration,
    /// Whether the lock is held; `None` for a process without a lock.
    is_locked: Option<bool>,
}

/// The observed state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessState {
    Alive,
    Dead,
    /// Dead at this time, unless it shows signs of life before.
    Doubtful(Duration),
    /// Removed already.
    Gone,
}

impl Liveness {
    /// Returns whether a process is dead, once that is certain. A dead process is removed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the process may or may not be removed.
    pub(crate) async fn is_dead(
        &self,
        pool: &ConnectionPool,
        id: &Arc<str>,
    ) -> Result<bool, Fault> {
        loop {
            let verdicts = self.look(pool, std::slice::from_ref(id)).await?;
            match verdicts.first().map(|(_, verdict)| *verdict) {
                Some(ProcessState::Dead) => {
                    if self.remove(pool, id).await? {
                        return Ok(true);
                    }
                }
                Some(ProcessState::Doubtful(until)) => {
                    SystemClock.sleep(until.saturating_sub(SystemClock.monotonic())).await;
                }
                Some(ProcessState::Gone) => return Ok(true),
                Some(ProcessState::Alive) | None => return Ok(false),
            }
        }
    }

    /// Removes and returns the dead processes among `ids`. Waits at most `at_most` for a doubtful process; a later call
    /// decides about the others.
    ///
    /// # Cancel safety
    ///
    /// As [`Liveness::is_dead`].
    pub(crate) async fn dead(
        &self,
        pool: &ConnectionPool,
        ids: &[Arc<str>],
        at_most: Duration,
    ) -> Result<Vec<Arc<str>>, Fault> {
        self.lock().retain(|id, _| ids.contains(id));
        let mut verdicts = self.look(pool, ids).await?;
        let now = SystemClock.monotonic();
        let soonest = verdicts.iter().filter_map(|(_, verdict)| match verdict {
            ProcessState::Doubtful(until) => Some(until.saturating_sub(now)),
            ProcessState::Alive | ProcessState::Dead | ProcessState::Gone => None,
        });
        if let Some(wait) = soonest.min().filter(|wait| *wait <= at_most) {
            SystemClock.sleep(wait).await;
            verdicts = self.look(pool, ids).await?;
        }
        let mut dead = Vec::new();
        for (id, verdict) in verdicts {
            let is_gone = match verdict {
                ProcessState::Gone => true,
                ProcessState::Dead => self.remove(pool, &id).await?,
                ProcessState::Alive | ProcessState::Doubtful(_) => false,
            };
            if is_gone {
                dead.push(id);
            }
        }
        Ok(dead)
    }

    /// Observes processes.
    async fn look(
        &self,
        pool: &ConnectionPool,
        ids: &[Arc<str>],
    ) -> Result<Vec<(Arc<str>, ProcessState)>, Fault> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = ids.iter().map(|id| &**id).collect();
        let rows = sqlx::query(concat!(
            "SELECT id, ",
            renewal!(),
            " AS renewal, (extract(epoch FROM lease_until - clock_timestamp()) * 1000)::bigint AS left_ms, \
             lease_ms, CASE WHEN lock IS NOT NULL THEN ",
            has_lock!(),
            " END AS is_locked FROM backstop.processes WHERE id = ANY($1)"
        ))
        .bind(names)
        .fetch_all(&mut *pool.lend().await?)
        .await?;
        let mut found: HashMap<String, ProcessRow> = HashMap::new();
        for row in &rows {
            found.insert(row.try_get("id")?, ProcessRow::read(row)?);
        }
        let now = SystemClock.monotonic();
        let mut seen = self.lock();
        let verdicts = ids.iter().map(|id| match found.get(&**id) {
            Some(row) => (Arc::clone(id), judge(&mut seen, id, row, now)),
            None => {
                seen.remove(id);
                (Arc::clone(id), ProcessState::Gone)
            }
        });
        Ok(verdicts.collect())
    }

    /// Removes a dead process. Returns whether it is gone: a process that renewed its lease meanwhile, or holds its
    /// lock again, is alive.
    async fn remove(&self, pool: &ConnectionPool, id: &Arc<str>) -> Result<bool, Fault> {
        let seen = self.lock().get(id).copied();
        let mut transaction = pool.begin().await?;
        if let Some(seen) = seen {
            sqlx::query(concat!(
                "DELETE FROM backstop.processes WHERE id = $1 AND ",
                renewal!(),
                " = $2 AND NOT ($3 AND ",
                has_lock!(),
                ")"
            ))
            .bind(&**id)
            .bind(seen.renewal)
            .bind(seen.free_since.is_some())
            .execute(&mut *transaction)
            .await?;
        }
        let is_there: bool =
            sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM backstop.processes WHERE id = $1)")
                .bind(&**id)
                .fetch_one(&mut *transaction)
                .await?;
        transaction.commit().await?;
        if !is_there {
            self.lock().remove(id);
        }
        Ok(!is_there)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, ProcessObservation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProcessRow {
    fn read(row: &PgRow) -> Result<Self, Fault> {
        Ok(Self {
            renewal: row.try_get("renewal")?,
            left_ms: row.try_get("left_ms")?,
            lease: Duration::from_millis(to_u64(row.try_get("lease_ms")?)),
            is_locked: row.try_get("is_locked")?,
        })
    }
}

/// Decides about a process from its row and the earlier observation.
fn judge(
    seen: &mut HashMap<Arc<str>, ProcessObservation>,
    id: &Arc<str>,
    row: &ProcessRow,
    now: Duration,
) -> ProcessState {
    let first = ProcessObservation { renewal: row.renewal, since: now, free_since: None };
    let seen = seen.entry(Arc::clone(id)).or_insert(first);
    if seen.renewal != row.renewal {
        *seen = first;
    }
    if row.is_locked == Some(false) {
        return dead_at(*seen.free_since.get_or_insert(now) + TAKEN_AFTER, now);
    }
    seen.free_since = None;
    let left = Duration::from_millis(u64::try_from(row.left_ms).unwrap_or(0));
    let is_over = left.is_zero();
    // A lease with more than its full length left means that the server's clock was set back.
    let is_plausible = !is_over && left <= row.lease;
    let patience = match row.is_locked {
        // A process that holds a lock and is not stopped renews in time.
        Some(_) if is_over => row.lease / 3 + RENEWAL_SLACK,
        _ => row.lease,
    };
    match dead_at(seen.since + patience, now) {
        ProcessState::Doubtful(_) if is_plausible => ProcessState::Alive,
        verdict => verdict,
    }
}

fn dead_at(at: Duration, now: Duration) -> ProcessState {
    if now >= at { ProcessState::Dead } else { ProcessState::Doubtful(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);
    const HOUR_MS: i64 = 3_600_000;

    fn row(renewal: i64, left_ms: i64, is_locked: Option<bool>) -> ProcessRow {
        ProcessRow { renewal, left_ms, lease: LEASE, is_locked }
    }

    /// Observes rows at these times, in seconds, and returns the last verdict.
    fn last(looks: &[(u64, ProcessRow)]) -> ProcessState {
        let (mut seen, id) = (HashMap::new(), Arc::from("p"));
        let judged =
            looks.iter().map(|(at, row)| judge(&mut seen, &id, row, Duration::from_secs(*at)));
        judged.last().unwrap()
    }

    fn doubtful(ms: u64) -> ProcessState {
        ProcessState::Doubtful(Duration::from_millis(ms))
    }

    /// Spec: J2
    #[test]
    fn free_lock_is_looked_at_again() {
        let free = row(1, 9_000, Some(false));
        let held = row(1, 9_000, Some(true));
        assert_eq!(last(&[(0, held)]), ProcessState::Alive);
        assert_eq!(last(&[(0, free)]), doubtful(1_500));
        assert_eq!(last(&[(0, free), (1, free)]), doubtful(1_500));
        assert_eq!(last(&[(0, free), (2, free)]), ProcessState::Dead);
        assert_eq!(last(&[(0, free), (1, held), (2, free)]), doubtful(3_500));
        let renewed = row(2, 9_000, Some(false));
        assert_eq!(last(&[(0, free), (2, renewed)]), doubtful(3_500), "it was held in between");
    }

    /// Spec: J2. A step forward ends each lease by the clock of the server, and a step back makes it last for long.
    #[test]
    fn step_of_server_clock_kills_nobody() {
        for (lock, patience) in [(Some(true), 6_000), (None, 15_000)] {
            let before = row(1, 14_000, lock);
            let ahead = row(1, 14_000 - HOUR_MS, lock);
            assert_eq!(last(&[(0, before), (1, ahead)]), doubtful(patience));
            assert_eq!(
                last(&[(0, before), (1, ahead), (5, row(2, 15_000, lock))]),
                ProcessState::Alive
            );
            let back = row(1, 14_000 + HOUR_MS, lock);
            assert_eq!(last(&[(0, before), (1, back)]), doubtful(15_000));
            assert_eq!(
                last(&[(0, before), (1, back), (5, row(2, 15_000, lock))]),
                ProcessState::Alive
            );
        }
    }

    /// Spec: J2
    #[test]
    fn step_of_server_clock_revives_nobody() {
        for lock in [Some(true), None] {
            let back = row(1, HOUR_MS, lock);
            assert_eq!(last(&[(0, back), (15, back)]), ProcessState::Dead);
            let slightly = row(1, 10_000, lock);
            assert_eq!(last(&[(0, slightly), (14, slightly)]), ProcessState::Alive);
            assert_eq!(last(&[(0, slightly), (15, slightly)]), ProcessState::Dead);
        }
        let back = row(1, HOUR_MS, Some(false));
        assert_eq!(last(&[(0, back), (2, back)]), ProcessState::Dead, "its lock is free");
    }

    /// Spec: J2. A process that was stopped holds its lock.
    #[test]
    fn lease_that_is_not_renewed_ends() {
        let over = row(1, -1, Some(true));
        assert_eq!(last(&[(0, over)]), doubtful(6_000));
        assert_eq!(last(&[(0, over), (6, over)]), ProcessState::Dead);
        let seen_before = [(0, row(1, 5_000, Some(true))), (6, over)];
        assert_eq!(last(&seen_before), ProcessState::Dead, "it was watched while it lasted");
    }
}
