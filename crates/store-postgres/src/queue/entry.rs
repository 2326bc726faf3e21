use std::borrow::Cow;
use std::collections::BTreeMap;

use backstop_event_log::LogError;
use layer0::id::{RunId, SessionId};
use layer0::operator::Task;
use layer0::{Timestamp, code};
use serde::{Deserialize, Serialize};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::fault::Fault;
use crate::text::{self, column, optional};

/// What a run of the queue is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QueueState {
    /// It waits for a worker, or for its time.
    Queued,
    /// A worker is about to start it, or at work on it.
    Running,
    /// It waits for a person.
    WaitingApproval,
    /// It waits for a time, without a process.
    Parked,
    /// It cannot be started.
    Refused,
}

/// Why a run cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Refusal {
    /// The code.
    pub code: String,
    /// What went wrong, in words.
    pub message: String,
}

impl Refusal {
    /// States why.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

/// A run of the queue, until it is over.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueueEntry {
    /// The run.
    pub run: RunId,
    /// The queue.
    pub queue: String,
    /// The agent that is to run.
    pub agent: String,
    /// Its session.
    pub session: SessionId,
    /// What it is doing.
    pub state: QueueState,
    /// When it was put in.
    pub queued_at: Timestamp,
    /// Before when it is not started.
    pub not_before: Timestamp,
    /// The process that is at work on it.
    pub process: Option<String>,
    /// Why it cannot be started.
    pub refused: Option<Refusal>,
}

impl QueueEntry {
    pub(super) fn of(row: &PgRow) -> Result<Self, LogError> {
        let number = |column| row.try_get::<i64, _>(column).map_err(Fault::from);
        let owner = optional(row, "owner").map_err(Fault::from)?;
        // A reason that cannot be read is one all the same.
        let unreadable = |error: LogError| Refusal::new(code::LOG_UNREADABLE, error.to_string());
        let refused = optional(row, "refused").map_err(Fault::from)?;
        let refused = refused.map(|text| read::<Refusal>(&text).unwrap_or_else(unreadable));
        let recorded: Option<String> = row.try_get("state").map_err(Fault::from)?;
        let state = match (recorded.as_deref(), &refused, &owner) {
            (Some("waiting_approval"), ..) => QueueState::WaitingApproval,
            (Some("parked"), ..) => QueueState::Parked,
            (Some(_), ..) | (None, None, Some(_)) => QueueState::Running,
            (None, Some(_), _) => QueueState::Refused,
            (None, None, None) => QueueState::Queued,
        };
        Ok(Self {
            run: column(row, "run").map_err(Fault::from)?.into(),
            queue: column(row, "queue").map_err(Fault::from)?,
            agent: column(row, "agent").map_err(Fault::from)?,
            session: column(row, "session").map_err(Fault::from)?.into(),
            state,
            queued_at: Timestamp::from_millis(number("queued_at")?),
            not_before: Timestamp::from_millis(number("not_before")?),
            process: owner,
            refused,
        })
    }
}

/// A task and its labels, as they stand in the queue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StoredTask<'a> {
    pub(super) task: Cow<'a, Task>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: Cow<'a, BTreeMap<String, String>>,
}

/// Reads JSON that this crate has written.
pub(super) fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, LogError> {
    serde_json::from_str(&text::read(text.to_owned()))
        .map_err(|error| LogError::Failed(error.into()))
}
