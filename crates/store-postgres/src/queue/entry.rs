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

/// The state of a run in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QueueState {
    /// It waits for a worker, or for its time.
    Queued,
    /// A worker is about to start it, or runs it.
    Running,
    /// It waits for a person.
    WaitingApproval,
    /// It waits for a time, without a process.
    Parked,
    /// It cannot be started.
    Refused,
}

/// The reason why a run cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StartRefusal {
    /// Code of the failure.
    pub code: String,
    /// Message of the failure.
    pub message: String,
}

impl StartRefusal {
    /// Creates a refusal.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

/// A run of the queue that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueueEntry {
    /// The run.
    pub run: RunId,
    /// Name of the queue.
    pub queue: String,
    /// Name of the agent.
    pub agent: String,
    /// Its session.
    pub session: SessionId,
    /// State of the run.
    pub state: QueueState,
    /// Time at which it was enqueued.
    pub queued_at: Timestamp,
    /// Time before which it is not started.
    pub not_before: Timestamp,
    /// The process that runs it.
    pub process: Option<String>,
    /// The reason why it cannot be started.
    pub refused: Option<StartRefusal>,
}

impl QueueEntry {
    pub(super) fn from_row(row: &PgRow) -> Result<Self, LogError> {
        let number = |column| row.try_get::<i64, _>(column).map_err(Fault::from);
        let owner = optional(row, "owner").map_err(Fault::from)?;
        // An unreadable reason is shown as a refusal too.
        let unreadable =
            |error: LogError| StartRefusal::new(code::LOG_UNREADABLE, error.to_string());
        let refused = optional(row, "refused").map_err(Fault::from)?;
        let refused = refused.map(|text| read::<StartRefusal>(&text).unwrap_or_else(unreadable));
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

/// A task and its labels, in the form of the queue's column.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StoredTask<'a> {
    pub(super) task: Cow<'a, Task>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: Cow<'a, BTreeMap<String, String>>,
}

/// Decodes JSON that this crate has written.
pub(super) fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, LogError> {
    serde_json::from_str(&text::read(text.to_owned()))
        .map_err(|error| LogError::Failed(error.into()))
}
