//! Large results: a preview for the model, the whole for whoever asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use layer0::Timestamp;
use layer0::id::{CallId, ResultId, RunId, SessionId};

use crate::StoreError;
use crate::id::random_hex;

/// How many characters of a large result the model reads at once.
pub const PREVIEW_CHARS: usize = 2_000;

/// A result to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewResult {
    /// When the tool returned it.
    pub at: Timestamp,
    /// The conversation; only it can read the result again through a tool.
    pub session: SessionId,
    /// The run.
    pub run: RunId,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: Arc<str>,
    /// The whole text.
    pub body: String,
}

/// A stored result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultRecord {
    /// Its id.
    pub id: ResultId,
    /// When the tool returned it.
    pub at: Timestamp,
    /// The conversation.
    pub session: SessionId,
    /// The run.
    pub run: RunId,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: Arc<str>,
    /// The whole text; `None` when it was kept for its time and taken away.
    pub body: Option<String>,
}

/// Keeps large results.
#[async_trait]
pub trait ResultStore: Send + Sync {
    /// Stores a result. When it returns, the result is as durable as the store was opened to be.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the result is stored whole or not at all.
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError>;

    /// Keeps a result of another store under its own id; one that is there already stays as it is.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// As [`ResultStore::put`].
    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError>;

    /// Returns a result; `None` when there is none of this id. With a session, only one of that.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn get(
        &self,
        session: Option<&SessionId>,
        id: &ResultId,
    ) -> Result<Option<ResultRecord>, StoreError>;
}

/// Makes an id for a result of this moment: `res_YYYYMMDD_HHMMSS_` and 6 hex digits, 26 characters.
///
/// # Errors
///
/// [`StoreError::Failed`], when the operating system has no randomness.
pub fn result_id(at: Timestamp) -> Result<ResultId, StoreError> {
    Ok(ResultId::new(format!("res_{}_{}", at.compact(), random_hex()?)))
}

/// Returns what the model reads of a large result that was stored.
#[must_use]
pub fn preview_text(body: &str, id: &ResultId) -> String {
    let end = body.char_indices().nth(PREVIEW_CHARS).map_or(body.len(), |(at, _)| at);
    format!(
        "{}\n[Result ID: {id}] {} bytes in all, {end} shown.\n\
         Use get_tool_result(result_id=\"{id}\", offset={end}) to read on.",
        &body[..end],
        body.len(),
    )
}

/// Returns what the model reads of a large result that could not be stored: as much as is allowed,
/// and that it was cut.
#[must_use]
pub fn truncated_text(body: &str, max_bytes: usize) -> String {
    let end = body.floor_char_boundary(max_bytes);
    format!("{}\n[Cut: {end} of {} bytes shown; the rest was not kept]", &body[..end], body.len())
}

/// A result store that lives as long as the process.
#[derive(Debug, Default)]
pub struct MemoryResultStore {
    rows: Mutex<BTreeMap<ResultId, ResultRecord>>,
}

impl MemoryResultStore {
    /// Makes an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl ResultStore for MemoryResultStore {
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let id = loop {
            let id = result_id(result.at)?;
            if !rows.contains_key(&id) {
                break id;
            }
        };
        let record = ResultRecord {
            id: id.clone(),
            at: result.at,
            session: result.session,
            run: result.run,
            call_id: result.call_id,
            tool: result.tool,
            body: Some(result.body),
        };
        rows.insert(id.clone(), record);
        Ok(id)
    }

    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.entry(result.id.clone()).or_insert(result);
        Ok(())
    }

    async fn get(
        &self,
        session: Option<&SessionId>,
        id: &ResultId,
    ) -> Result<Option<ResultRecord>, StoreError> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(rows.get(id).filter(|row| session.is_none_or(|s| *s == row.session)).cloned())
    }
}
