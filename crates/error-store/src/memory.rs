use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use layer0::id::{ErrorId, SessionId};

use crate::{ErrorFilter, ErrorRecord, ErrorStore, NewError, StoreError, Stored, error_id};

/// An error store that lives as long as the process.
#[derive(Debug, Default)]
pub struct MemoryErrorStore {
    rows: Mutex<Vec<(String, ErrorRecord)>>,
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
        let known = rows
            .iter_mut()
            .find(|(known, record)| *known == fingerprint && record.session == error.session);
        if let Some((_, record)) = known {
            record.occurrences += 1;
            return Ok(Stored { id: record.id.clone(), occurrences: record.occurrences });
        }
        let id = loop {
            let id = error_id(error.at)?;
            if !rows.iter().any(|(_, record)| record.id == id) {
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
        rows.push((fingerprint, record));
        Ok(Stored { id, occurrences: 1 })
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ErrorId,
    ) -> Result<Option<ErrorRecord>, StoreError> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let mut records = rows.iter().map(|(_, record)| record);
        Ok(records.find(|record| record.id == *id && record.session == *session).cloned())
    }

    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let mut records: Vec<ErrorRecord> = rows
            .iter()
            .map(|(_, record)| record)
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
}
