//! Requests that enqueue runs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use async_trait::async_trait;
use backstop_event_log::{InvalidStartKey, KeyBinding, StartDifference, StartKey};
use layer0::id::{RunId, SessionId};
use layer0::name::{check_name, check_session};
use layer0::operator::Task;
use layer0::{JsonText, Timestamp};
use serde::Serialize;
use sqlx::PgConnection;
use uuid::Uuid;

use super::entry::StoredTask;
use super::error::QueueError;
use super::values::{DEFAULT, millis};
use crate::fault::Fault;
use crate::server_time::server_ms;
use crate::start_keys;
use crate::text::{column, encode_text};
use crate::transact::TransactionWork;

/// Maximum size of a task, in bytes of JSON.
const MAX_TASK_BYTES: usize = 64 * 1024 * 1024;

/// Start of the year 9999, in milliseconds: not all later times can be shown.
const LATEST: i64 = 253_370_764_800_000;

/// A request to enqueue a run.
///
/// ```
/// use backstop_store_postgres::Enqueue;
/// use layer0::operator::Task;
///
/// let request = Enqueue::new("support", Task::text("Where is order 7?"))
///     .session("customer-9")
///     .key("mail-7")
///     .label("tenant", "acme");
/// assert_eq!(request.queue, "default");
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Enqueue {
    /// Name of the agent or other operator at the workers.
    pub agent: String,
    /// The task.
    pub task: Task,
    /// Name of the queue.
    pub queue: String,
    /// The session; a new one if `None`.
    pub session: Option<SessionId>,
    /// Key that identifies a repeated request.
    pub key: Option<String>,
    /// Time before which the run is not started.
    pub not_before: Option<Timestamp>,
    /// Labels of the run.
    pub labels: BTreeMap<String, String>,
}

impl Enqueue {
    /// Requests a run in [`Queue::DEFAULT`](crate::Queue::DEFAULT), in its own session, as soon as a worker is free.
    pub fn new(agent: impl Into<String>, task: Task) -> Self {
        Self {
            agent: agent.into(),
            task,
            queue: DEFAULT.to_owned(),
            session: None,
            key: None,
            not_before: None,
            labels: BTreeMap::new(),
        }
    }

    /// Sets the queue.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Sets the session. Runs of a session start in the order in which they were enqueued, one after the other.
    #[must_use]
    pub fn session(mut self, session: impl Into<SessionId>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Sets the key, which is unique for the agent: a repeated request with the same key and input returns the same
    /// run.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the time before which the run is not started.
    #[must_use]
    pub const fn not_before(mut self, time: Timestamp) -> Self {
        self.not_before = Some(time);
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Checks the request, and creates the id of its run.
    pub(super) fn entry(&self) -> Result<NewEntry, QueueError> {
        let invalid =
            |what: &str, why: &dyn std::fmt::Display| QueueError::Invalid(format!("{what}: {why}"));
        check_name(&self.agent).map_err(|error| invalid("agent", &error))?;
        check_name(&self.queue).map_err(|error| invalid("queue", &error))?;
        if self.queue.contains(is_invisible) {
            return Err(invalid("queue", &"it has characters that cannot be seen"));
        }
        if self.not_before.is_some_and(|time| time.as_millis() >= LATEST) {
            return Err(invalid("time", &"it is later than any that can be shown"));
        }
        if let Some(session) = &self.session {
            check_session(session.as_str()).map_err(|error| invalid("session", &error))?;
        }
        let key = self.key.as_ref().map(|key| {
            StartKey::new(&*self.agent, key, &self.task, self.session.as_ref(), &self.labels)
                .map_err(|error| match error {
                    InvalidStartKey::Task(why) => invalid("task", &why),
                    error => invalid("key", &error),
                })
        });
        let key = key.transpose()?;
        let (task, labels) = (Cow::Borrowed(&self.task), Cow::Borrowed(&self.labels));
        let task = StoredTask { task, labels };
        let task =
            JsonText::from_value(&task).map_err(|error| invalid("task", &error))?.get().to_owned();
        if task.len() > MAX_TASK_BYTES {
            return Err(invalid("task", &format!("it has more than {MAX_TASK_BYTES} bytes")));
        }
        let session = self.session.clone();
        Ok(NewEntry {
            run: RunId::new(format!("run_{}", Uuid::now_v7())),
            agent: self.agent.clone(),
            queue: self.queue.clone(),
            session: session.unwrap_or_else(|| format!("ses_{}", Uuid::now_v7()).into()),
            key,
            task,
            not_before: self.not_before,
        })
    }
}

/// Returns whether a character is invisible, or changes the direction of others, so that two names could look alike.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// A checked request.
pub(super) struct NewEntry {
    run: RunId,
    agent: String,
    queue: String,
    session: SessionId,
    key: Option<StartKey>,
    task: String,
    /// Due at once if `None`.
    not_before: Option<Timestamp>,
}

/// A run that was enqueued, now or earlier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Enqueued {
    /// The run.
    pub run: RunId,
    /// The queue of the run, which its first request named. If the run is not in a queue, because it has ended or was
    /// started in another way, the requested queue.
    pub queue: String,
    /// The key of the request.
    pub key: Option<String>,
    /// Whether the run was enqueued now; otherwise its key was already bound to it.
    #[serde(skip)]
    pub is_new: bool,
}

/// Enqueues a run, in a transaction.
pub(super) struct PutIn<'a>(pub(super) &'a NewEntry);

#[async_trait]
impl TransactionWork for PutIn<'_> {
    type Done = Enqueued;
    type Error = QueueError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<Enqueued, QueueError> {
        put(connection, self.0).await
    }
}

pub(super) async fn put(
    connection: &mut PgConnection,
    entry: &NewEntry,
) -> Result<Enqueued, QueueError> {
    let run = match &entry.key {
        None => entry.run.clone(),
        Some(key) => match start_keys::bind(connection, key, &entry.run, None).await? {
            KeyBinding::New => entry.run.clone(),
            // The process that bound the key may have died before it started the run.
            KeyBinding::Earlier(run) => run,
            KeyBinding::Queued(run) | KeyBinding::Removed(run) => {
                return read_enqueued(connection, entry, run, false).await;
            }
            bound => {
                let (agent, key) = (key.operator.clone(), key.key.clone());
                let differs = match bound {
                    KeyBinding::Reused(differs) => differs,
                    // An unknown answer of the store starts nothing.
                    _ => StartDifference::default(),
                };
                return Err(QueueError::KeyReused { agent, key, differs });
            }
        },
    };
    let is_new = insert(connection, entry, &run).await?;
    read_enqueued(connection, entry, run, is_new).await
}

/// Returns the run that was enqueued now or earlier.
async fn read_enqueued(
    connection: &mut PgConnection,
    entry: &NewEntry,
    run: RunId,
    is_new: bool,
) -> Result<Enqueued, QueueError> {
    let queue = match is_new {
        true => None,
        false => sqlx::query("SELECT queue FROM backstop.queue WHERE run = $1")
            .bind(&*encode_text(run.as_str()))
            .fetch_optional(connection)
            .await
            .and_then(|row| row.map(|row| column(&row, "queue")).transpose())
            .map_err(Fault::from)?,
    };
    let queue = queue.unwrap_or_else(|| entry.queue.clone());
    Ok(Enqueued { run, queue, key: entry.key.as_ref().map(|key| key.key.clone()), is_new })
}

/// Inserts the row of a run that has neither a record nor a row yet, and returns whether it did.
async fn insert(
    connection: &mut PgConnection,
    entry: &NewEntry,
    run: &RunId,
) -> Result<bool, QueueError> {
    // The server's clock: that of this process may be ahead, and the run would wait for it.
    let inserted = sqlx::query(concat!(
        "INSERT INTO backstop.queue (run, queue, agent, session, not_before, queued_at, task) \
         SELECT $1, $2, $3, $4, coalesce($5, now.ms), now.ms, $6 FROM (SELECT ",
        server_ms!(),
        " AS ms) AS now WHERE NOT EXISTS (SELECT 1 FROM backstop.runs WHERE run = $1) \
         AND NOT EXISTS (SELECT 1 FROM backstop.queue WHERE run = $1) ON CONFLICT (run) DO NOTHING",
    ))
    .bind(&*encode_text(run.as_str()))
    .bind(&*encode_text(&entry.queue))
    .bind(&*encode_text(&entry.agent))
    .bind(&*encode_text(entry.session.as_str()))
    .bind(entry.not_before.map(millis))
    .bind(&*encode_text(&entry.task))
    .execute(connection)
    .await
    .map_err(Fault::from)?;
    Ok(inserted.rows_affected() > 0)
}
