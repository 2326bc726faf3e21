use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use layer0::Timestamp;
use layer0::id::{ErrorId, SessionId};

use crate::{
    ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, NewError, Pruned, Retention, StoreError,
    Stored, error_id,
};

/// An error store that lives as long as the process.
#[derive(Debug, Default)]
pub struct MemoryErrorStore {
    rows: Mutex<Rows>,
}

/// Errors, and where each is found: a store is asked in every failing call.
#[derive(Debug, Default)]
struct Rows {
    all: Vec<Row>,
    by_id: HashMap<ErrorId, usize>,
    by_fingerprint: HashMap<(SessionId, String), usize>,
}

impl Rows {
    fn add(&mut self, row: Row) {
        let place = self.all.len();
        self.by_id.insert(row.record.id.clone(), place);
        self.by_fingerprint.insert((row.record.session.clone(), row.fingerprint.clone()), place);
        self.all.push(row);
    }

    /// Puts other rows in the place of all.
    fn replace(&mut self, rows: Vec<Row>) {
        *self = Self::default();
        rows.into_iter().for_each(|row| self.add(row));
    }
}

#[derive(Debug)]
struct Row {
    fingerprint: String,
    last_at: Timestamp,
    record: ErrorRecord,
}

impl MemoryErrorStore {
    /// Makes an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl ErrorStore for MemoryErrorStore {
    async fn store(&self, error: NewError) -> Result<Stored, StoreError> {
        let fingerprint = error.fingerprint();
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (error.session.clone(), fingerprint);
        let known = rows.by_fingerprint.get(&key).copied();
        if let Some(Row { record, last_at, .. }) = known.and_then(|at| rows.all.get_mut(at)) {
            record.occurrences += 1;
            *last_at = error.at.max(*last_at);
            return Ok(Stored { id: record.id.clone(), occurrences: record.occurrences });
        }
        let id = loop {
            let id = error_id(error.at)?;
            if !rows.by_id.contains_key(&id) {
                break id;
            }
        };
        let record = ErrorRecord {
            id: id.clone(),
            tool: error.tool,
            call_id: error.call_id,
            reason: error.reason,
            code: error.code,
            summary: error.summary,
            raw: error.raw,
            occurrences: 1,
            run: error.run,
            session: error.session,
            at: error.at,
        };
        let (_, fingerprint) = key;
        rows.add(Row { fingerprint, last_at: record.at, record });
        Ok(Stored { id, occurrences: 1 })
    }

    async fn keep(&self, record: ErrorRecord) -> Result<(), StoreError> {
        let fingerprint = record.fingerprint();
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (record.session.clone(), fingerprint);
        if !rows.by_id.contains_key(&record.id) && !rows.by_fingerprint.contains_key(&key) {
            let (_, fingerprint) = key;
            rows.add(Row { fingerprint, last_at: record.at, record });
        }
        Ok(())
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ErrorId,
    ) -> Result<Option<ErrorRecord>, StoreError> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let row = rows.by_id.get(id).and_then(|at| rows.all.get(*at));
        let record = row.map(|row| &row.record).filter(|record| record.session == *session);
        Ok(record.cloned())
    }

    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let mut records: Vec<ErrorRecord> = rows
            .all
            .iter()
            .map(|row| &row.record)
            .filter(|record| filter.id.as_ref().is_none_or(|id| *id == record.id))
            .filter(|record| filter.session.as_ref().is_none_or(|s| *s == record.session))
            .filter(|record| filter.run.as_ref().is_none_or(|run| *run == record.run))
            .filter(|record| filter.tool.as_ref().is_none_or(|tool| **tool == *record.tool))
            .filter(|record| filter.from.is_none_or(|from| record.at >= from))
            .filter(|record| filter.to.is_none_or(|to| record.at < to))
            .cloned()
            .collect();
        records.sort_by(|a, b| (b.at, &b.id).cmp(&(a.at, &a.id)));
        records.truncate(filter.limit.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX));
        Ok(records)
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = std::mem::take(&mut rows.all);
        all.sort_by_key(|row| std::cmp::Reverse(row.last_at));
        let (mut kept_rows, mut kept_bytes, mut pruned) = (0, 0, Pruned::default());
        all.retain(|row| {
            let bytes = u64::try_from(row.record.raw.len()).unwrap_or(u64::MAX);
            let keep = retention.max_age.is_none_or(|age| now.since(row.last_at) <= age)
                && retention.max_rows.is_none_or(|max| kept_rows < max)
                && retention.max_bytes.is_none_or(|max| kept_bytes + bytes <= max);
            if keep {
                kept_rows += 1;
                kept_bytes += bytes;
            } else {
                pruned.rows += 1;
                pruned.bytes += bytes;
            }
            keep
        });
        rows.replace(all);
        Ok(pruned)
    }

    async fn stats(&self) -> Result<Vec<ErrorStats>, StoreError> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let mut groups = BTreeMap::new();
        for Row { record, .. } in &rows.all {
            let key = (&record.tool, &record.reason, &record.code, &record.session);
            let stats = groups.entry(key).or_insert_with(|| ErrorStats {
                tool: record.tool.to_string(),
                reason: record.reason.clone(),
                code: record.code.as_ref().map(ToString::to_string),
                session: record.session.clone(),
                errors: 0,
                occurrences: 0,
                chars_kept: 0,
            });
            let kept = record.raw.chars().count().saturating_sub(record.summary.chars().count());
            stats.errors += 1;
            stats.occurrences += record.occurrences;
            stats.chars_kept += u64::try_from(kept).unwrap_or(u64::MAX) * record.occurrences;
        }
        let mut stats: Vec<ErrorStats> = groups.into_values().collect();
        stats.sort_by_key(|stats| std::cmp::Reverse(stats.chars_kept));
        Ok(stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(session: &str, raw: &str, second: i64) -> NewError {
        NewError {
            at: Timestamp::from_millis(second * 1_000),
            session: session.into(),
            run: "run".into(),
            call_id: "c".into(),
            tool: "sql".into(),
            reason: "tool.execution_failed".into(),
            code: None,
            raw: raw.to_owned(),
            summary: raw.to_owned(),
        }
    }

    /// Spec: S8
    #[tokio::test]
    async fn the_same_error_is_kept_once_in_each_conversation() {
        let store = MemoryErrorStore::new();
        let first = store.store(error("a", "no table", 1)).await.unwrap();
        let again = store.store(error("a", "no table", 2)).await.unwrap();
        assert_eq!((&again.id, again.occurrences), (&first.id, 2));
        let elsewhere = store.store(error("b", "no table", 3)).await.unwrap();
        let another = store.store(error("a", "no column", 4)).await.unwrap();
        assert_eq!((elsewhere.occurrences, another.occurrences), (1, 1));
        let kept = store.get(&"a".into(), &first.id).await.unwrap().unwrap();
        assert_eq!((&*kept.raw, kept.occurrences), ("no table", 2));
        assert!(store.get(&"b".into(), &first.id).await.unwrap().is_none(), "it is another's");
    }

    #[tokio::test]
    async fn what_is_left_after_pruning_is_found() {
        let store = MemoryErrorStore::new();
        let old = store.store(error("a", "old", 1)).await.unwrap();
        let new = store.store(error("a", "new", 9)).await.unwrap();
        let retention = Retention { max_rows: Some(1), ..Retention::default() };
        let pruned = store.prune(retention, Timestamp::from_millis(9_000)).await.unwrap();
        assert_eq!(pruned.rows, 1);
        assert!(store.get(&"a".into(), &old.id).await.unwrap().is_none());
        assert!(store.get(&"a".into(), &new.id).await.unwrap().is_some());
        assert_eq!(store.store(error("a", "new", 10)).await.unwrap().occurrences, 2);
        assert_eq!(store.store(error("a", "old", 11)).await.unwrap().occurrences, 1);
    }
}
