//! Cache of positions in long runs.
//!
//! The events of a run are linked from the newest to the oldest, and no index finds them by their run. A page that
//! walks back from the newest event costs as much as the rest of the run is long, so that reading all pages would be
//! quadratic. Therefore one event in [`STRIDE`] is cached as a waypoint, and a page walks back from the first waypoint
//! after its cursor.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use backstop_event_log::LogError;
use layer0::id::RunId;
use sqlx::Row;
use sqlx::sqlite::SqlitePool;

use crate::fault::Fault;
use crate::rows::{to_i64, to_u64};

/// Distance between two waypoints, in events of the run.
const STRIDE: u64 = 512;
/// Maximum number of runs whose waypoints are cached. A run of a million events has 2,000 of them.
const MAX_RUNS: usize = 64;

/// Finds the waypoints of the run `$2` after its event `$3`, along the links back from its newest event `$1`; their
/// numbers are multiples of `$4`.
const WALK: &str = "WITH RECURSIVE linked (id, prev, run_id, seq) AS \
    (SELECT id, prev, run_id, seq FROM events WHERE id = $1 AND run_id = $2 \
    UNION ALL SELECT events.id, events.prev, events.run_id, events.seq FROM linked JOIN events \
    ON events.id = linked.prev AND events.id < linked.id AND events.run_id = linked.run_id \
    WHERE events.id > $3) \
    SELECT id FROM linked WHERE seq % $4 = 0 ORDER BY id";
/// Finds the event `$1` if it belongs to the run `$2`. The row id of a removed run may be reused for another run.
const IS_CURRENT: &str = "SELECT 1 FROM events WHERE id = $1 AND run_id = $2 AND NOT EXISTS \
    (SELECT 1 FROM removed WHERE removed.run_id = events.run_id AND events.id <= removed.event)";

/// The waypoints of the runs that were read last.
#[derive(Debug, Default)]
pub(crate) struct Waypoints(Mutex<VecDeque<(RunId, WalkedRun)>>);

/// The waypoints of a run between two of its events.
#[derive(Debug, Clone)]
struct WalkedRun {
    /// The row id of the run.
    id: i64,
    /// The event after which the walk started.
    from: u64,
    /// The newest event of the walk.
    to: u64,
    events: Vec<u64>,
}

/// The row of a long run.
struct LongRun {
    id: i64,
    last_event: u64,
}

impl Waypoints {
    /// Returns the event that ends the page of a run after the event `after`; `None` for a page that ends with the run.
    pub(crate) async fn page_end(
        &self,
        readers: &SqlitePool,
        run: &RunId,
        after: u64,
    ) -> Result<Option<u64>, LogError> {
        let Some(long) = read_long_run(readers, run).await? else { return Ok(None) };
        if long.last_event <= after {
            return Ok(None);
        }
        let next = self.walk(readers, run, &long, after).await?;
        let Some(next) = next.filter(|next| *next < long.last_event) else { return Ok(None) };
        let is_current: Option<i64> = sqlx::query_scalar(IS_CURRENT)
            .bind(to_i64(next))
            .bind(long.id)
            .fetch_optional(readers)
            .await
            .map_err(Fault::from)?;
        if is_current.is_none() {
            self.lock().retain(|(other, _)| other != run);
            return Ok(None);
        }
        Ok(Some(next))
    }

    /// Walks the part of the run that was not walked yet, and returns the first waypoint after an event.
    async fn walk(
        &self,
        readers: &SqlitePool,
        run: &RunId,
        long: &LongRun,
        after: u64,
    ) -> Result<Option<u64>, LogError> {
        let known = self.known_end(run, long, after);
        let (first, to) = known.unwrap_or((None, after));
        if to >= long.last_event {
            return Ok(first);
        }
        let events: Vec<i64> = sqlx::query_scalar(WALK)
            .bind(to_i64(long.last_event))
            .bind(long.id)
            .bind(to_i64(to))
            .bind(to_i64(STRIDE))
            .fetch_all(readers)
            .await
            .map_err(Fault::from)?;
        let events: Vec<u64> = events.into_iter().map(to_u64).collect();
        let first = first.or_else(|| events.iter().find(|event| **event > after).copied());
        let walked = WalkedRun { id: long.id, from: to, to: long.last_event, events };
        self.remember(run, walked, known.is_some());
        Ok(first)
    }

    /// Returns the first waypoint after an event and the newest event of the walk, if the cached walk covers the event.
    fn known_end(&self, run: &RunId, long: &LongRun, after: u64) -> Option<(Option<u64>, u64)> {
        let runs = self.lock();
        let (_, known) = runs.iter().find(|(other, _)| other == run)?;
        let covers = known.id == long.id && known.from <= after;
        covers.then(|| {
            let place = known.events.partition_point(|event| *event <= after);
            (known.events.get(place).copied(), known.to)
        })
    }

    /// Caches a walk; one that `continues` the cached walk is appended to it.
    fn remember(&self, run: &RunId, walked: WalkedRun, continues: bool) {
        let mut runs = self.lock();
        let place = runs.iter().position(|(other, _)| other == run);
        let kept = match place.and_then(|place| runs.remove(place)) {
            Some((_, mut kept)) if continues && kept.to == walked.from => {
                kept.events.extend(walked.events);
                WalkedRun { to: walked.to, ..kept }
            }
            _ => walked,
        };
        runs.push_back((run.clone(), kept));
        if runs.len() > MAX_RUNS {
            runs.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(RunId, WalkedRun)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the row of a run, if the run is longer than a few pages.
async fn read_long_run(readers: &SqlitePool, run: &RunId) -> Result<Option<LongRun>, LogError> {
    let row = sqlx::query("SELECT id, last_event FROM runs WHERE run = $1 AND last_seq > $2")
        .bind(run.as_str())
        .bind(to_i64(2 * STRIDE))
        .fetch_optional(readers)
        .await
        .map_err(Fault::from)?;
    let Some(row) = row else { return Ok(None) };
    let last_event: Option<i64> = row.try_get("last_event").map_err(Fault::from)?;
    let id = row.try_get("id").map_err(Fault::from)?;
    Ok(last_event.map(|event| LongRun { id, last_event: to_u64(event) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Database;
    use crate::plan::plan;

    /// Spec: X2, D9
    #[tokio::test]
    async fn waypoints_are_found_by_row_id() {
        let database = Database::in_memory().await.unwrap();
        for statement in [WALK, IS_CURRENT] {
            let plan = plan(&database, statement).await;
            let tables: Vec<&String> = plan.iter().filter(|line| line.contains("events")).collect();
            assert!(!tables.is_empty(), "{plan:#?}");
            assert!(tables.iter().all(|line| line.starts_with("SEARCH")), "{plan:#?}");
        }
    }
}
