//! The start, copies, resumptions and end of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::code::Code;
use crate::event::Cause;
use crate::event::hash::Hash;
use crate::failure::RetryFacts;
use crate::id::{CallId, RunId, SessionId};
use crate::json_text::JsonText;
use crate::message::{Image, Transcript};
use crate::stop::Outcome;
use crate::time::Timestamp;
use crate::usage::{Allowance, BudgetIncrease, Usage};

/// The resolved agent with which a run started, or continues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentRecord {
    /// The agent's name.
    pub name: Arc<str>,
    /// SHA-256, in hex, of everything that identifies the agent: name, instructions, limits, guards, budget, memory,
    /// hooks and tools. The digest does not depend on the model and its price.
    pub digest: Arc<str>,
    /// Everything that is needed to rebuild the run, without secrets.
    pub definition: JsonText,
}

impl AgentRecord {
    /// Creates the record of an agent.
    #[must_use]
    pub fn new(
        name: impl Into<Arc<str>>,
        digest: impl Into<Arc<str>>,
        definition: impl Into<JsonText>,
    ) -> Self {
        Self { name: name.into(), digest: digest.into(), definition: definition.into() }
    }

    /// Returns the definition of a workflow that dispatches these operators. A workflow is no agent: its run is rebuilt
    /// by its code, from the recorded steps.
    #[must_use]
    pub fn workflow(calls: &[&str], name: &str) -> JsonText {
        JsonText::from(&json!({ "calls": calls, "workflow": name }))
    }

    /// Returns whether this is a workflow.
    #[must_use]
    pub fn is_workflow(&self) -> bool {
        // Keys are sorted, and no other definition has this beginning.
        self.definition.get().starts_with(r#"{"calls":"#)
    }
}

payload! {
    /// A run started.
    RunStarted {
        /// The run itself, because no hash covers the envelope's; null in records of the first layout.
        #[serde(default)]
        run: Option<RunId>,
        /// The caller's input.
        input: Arc<str>,
        /// The images of the input.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        images: Arc<[Image]>,
        /// The session that the run belongs to.
        session: SessionId,
        /// The agent of the run.
        agent: Box<AgentRecord>,
        /// SHA-256 of everything that was resolved for the run, in hex: the agent's definition in this record. Null in
        /// records of the first layout, which have it in `agent.digest`.
        #[serde(default)]
        definition_digest: Option<Arc<str>>,
        /// The first run in the chain of its callers, as far as it is known: the run itself, if nothing dispatched it.
        /// Null in records of the first layout.
        #[serde(default)]
        root: Option<RunId>,
        /// The run that started this one.
        parent: Option<RunId>,
        /// The previous run of the session.
        #[serde(default)]
        follows: Option<Box<Follows>>,
        /// The run of the session that was dispatched together with this one and began first. In this case the messages
        /// of this run are not part of the session's transcript.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch_of: Option<RunId>,
        /// The version of the machine that decides; 0 in records without it.
        #[serde(default)]
        machine: u32,
        /// The number of dispatches above the run.
        #[serde(default)]
        depth: u32,
        /// The part of its caller's budget that it may use; null if its caller has none.
        #[serde(default)]
        allowance: Option<Box<Allowance>>,
        /// Its deadline, on the clock of its events; null if its caller sets none.
        #[serde(default)]
        deadline: Option<Timestamp>,
        /// JSON Schema that the final answer has to fit, if the caller requires one.
        #[serde(default)]
        output_schema: Option<Box<JsonText>>,
        /// The tools that its MCP servers listed; null without a server.
        #[serde(default)]
        mcp: Option<Box<JsonText>>,
        /// The caller's labels for the run.
        #[serde(default)]
        labels: Arc<BTreeMap<String, String>>,
        /// The caller's place in a distributed trace, as W3C `traceparent`.
        #[serde(default)]
        trace_parent: Option<Arc<str>>,
        /// The delivery to a behaviour that led to it.
        #[serde(default)]
        cause: Option<Box<Cause>>,
        /// The journal that decides the next step.
        #[serde(default)]
        journal: JournalKind,
        /// The id of the key that seals the record; null for a record without a key.
        #[serde(default)]
        key_id: Option<Arc<str>>,
        /// Whether the key also seals the row of the run and each erasure of its events.
        #[serde(default, skip_serializing_if = "is_false")]
        row_sealed: bool,
        /// The earlier messages, if the caller provided them.
        #[serde(default, skip_serializing_if = "Transcript::is_empty")]
        history: Transcript,
        /// Other sessions whose stored errors and results it may read, because its history and its input may refer to
        /// them.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        sessions: Arc<[SessionId]>,
        /// Whether a workflow's task may be repeated after it may have acted.
        #[serde(default, skip_serializing_if = "is_false")]
        idempotent: bool,
        /// Whether the steps of a workflow read the earlier messages of the session.
        #[serde(default, skip_serializing_if = "is_false")]
        with_history: bool,
        /// The longest time that the run may be parked, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_park_ms: Option<u64>,
    }
}

impl RunStarted {
    /// Creates the first event of a run without a caller, a previous run or other properties.
    #[must_use]
    pub fn new(input: impl Into<Arc<str>>, session: SessionId, agent: AgentRecord) -> Self {
        Self {
            run: None,
            input: input.into(),
            images: Arc::default(),
            session,
            agent: Box::new(agent),
            definition_digest: None,
            root: None,
            parent: None,
            follows: None,
            branch_of: None,
            machine: 0,
            depth: 0,
            allowance: None,
            deadline: None,
            output_schema: None,
            mcp: None,
            labels: Arc::default(),
            trace_parent: None,
            cause: None,
            journal: JournalKind::default(),
            key_id: None,
            row_sealed: false,
            history: Transcript::default(),
            sessions: Arc::default(),
            idempotent: false,
            with_history: false,
            max_park_ms: None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The owner of the journal that decides the next step of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JournalKind {
    /// The process that has the run: its record is the journal.
    #[default]
    Local,
}

/// The state of a session's transcript at the start of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RecordedFollows")]
#[non_exhaustive]
pub struct Follows {
    /// The previous run.
    pub run: RunId,
    /// The seq of its last event.
    pub seq: u64,
    /// The hash of its last event, which covers all messages until then.
    pub digest: Hash,
    /// The number of messages in the transcript.
    pub messages: u64,
}

impl Follows {
    /// Creates the state from the previous run, its last event and the number of messages.
    #[must_use]
    pub fn new(run: impl Into<RunId>, seq: u64, digest: Hash, messages: u64) -> Self {
        Self { run: run.into(), seq, digest, messages }
    }
}

/// The stored form: the first layout had only the run.
#[derive(Deserialize)]
#[serde(untagged)]
enum RecordedFollows {
    Run(RunId),
    Place { run: RunId, seq: u64, digest: Hash, messages: u64 },
}

impl From<RecordedFollows> for Follows {
    fn from(recorded: RecordedFollows) -> Self {
        match recorded {
            RecordedFollows::Run(run) => Self { run, seq: 0, digest: Hash::default(), messages: 0 },
            RecordedFollows::Place { run, seq, digest, messages } => {
                Self { run, seq, digest, messages }
            }
        }
    }
}

payload! {
    /// A run was copied from another one up to an event.
    RunForked {
        /// The run itself; null in records of the first layout.
        #[serde(default)]
        run: Option<RunId>,
        /// The run that it was copied from.
        parent: RunId,
        /// The seq of the last copied event.
        at: u64,
        /// The session of the copy; null in records of the first layout.
        #[serde(default)]
        session: Option<SessionId>,
    }
}

impl RunForked {
    /// Creates the first event of a copy.
    #[must_use]
    pub fn new(
        run: impl Into<RunId>,
        session: impl Into<SessionId>,
        parent: impl Into<RunId>,
        at: u64,
    ) -> Self {
        Self { run: Some(run.into()), session: Some(session.into()), parent: parent.into(), at }
    }
}

payload! {
    /// A run was resumed.
    RunResumed {
        /// The process or person that resumed it.
        by: Arc<str>,
        /// The current definition of the agent, if it changed.
        #[serde(default)]
        agent: Option<Box<AgentRecord>>,
        /// The newest lost event of the record, if a person accepted the loss.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost_tail: Option<LostTail>,
    }
}

/// An acknowledged event that is missing from its record, because an older state of the store was restored.
///
/// ```
/// use layer0::event::{Hash, LostTail};
///
/// let lost = LostTail::new(12, Hash([7; 32]));
/// assert_eq!(lost.seq, 12);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LostTail {
    /// The seq of the event.
    pub seq: u64,
    /// The hash of the event.
    pub hash: Hash,
}

impl LostTail {
    /// Creates the value for the newest event that is known to be lost.
    #[must_use]
    pub const fn new(seq: u64, hash: Hash) -> Self {
        Self { seq, hash }
    }
}

impl RunResumed {
    /// Creates the event for a resumption by a process or person.
    #[must_use]
    pub fn new(by: impl Into<Arc<str>>) -> Self {
        Self { by: by.into(), agent: None, lost_tail: None }
    }

    /// Accepts that the record has lost its events up to this one.
    #[must_use]
    pub const fn accepting(mut self, lost: LostTail) -> Self {
        self.lost_tail = Some(lost);
        self
    }

    /// Sets the current definition of the agent.
    #[must_use]
    pub fn adopting(mut self, agent: AgentRecord) -> Self {
        self.agent = Some(Box::new(agent));
        self
    }
}

payload! {
    /// A run was reopened after its end: a new episode starts.
    RunReopened {
        /// The process or person that reopened it.
        by: Arc<str>,
        /// The code of the run's end; null exactly in a copy of a completed run.
        reason: Option<Code>,
        /// The increase of its budget.
        #[serde(default)]
        budget: Option<Box<BudgetIncrease>>,
        /// A message to the model before its next call; null if there is none.
        #[serde(default)]
        message: Option<Arc<str>>,
        /// The delivery to a behaviour that led to it.
        #[serde(default)]
        cause: Option<Box<Cause>>,
        /// The newest lost event of the record, if a person accepted the loss.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost_tail: Option<LostTail>,
    }
}

impl RunReopened {
    /// Creates the event for a run with this end, without a message to its model and an increase of its budget.
    #[must_use]
    pub fn new(by: impl Into<Arc<str>>, reason: Option<Code>) -> Self {
        Self { by: by.into(), reason, budget: None, message: None, cause: None, lost_tail: None }
    }
}

payload! {
    /// The calls and model attempts that a dead process left open were classified.
    RunRecovered {
        /// Calls to be run again.
        rerun: Vec<CallId>,
        /// Calls answered as interrupted.
        interrupted: Vec<CallId>,
        /// Calls whose tools are probed.
        #[serde(default)]
        probing: Vec<CallId>,
        /// Number of lost model attempts.
        models: u32,
    }
}

impl RunRecovered {
    /// Creates the event for calls to be run again, interrupted calls and lost attempts; without probes.
    #[must_use]
    pub const fn new(rerun: Vec<CallId>, interrupted: Vec<CallId>, models: u32) -> Self {
        Self { rerun, interrupted, probing: Vec::new(), models }
    }
}

payload! {
    /// The run ended without a failure.
    RunFinished {
        /// The outcome.
        outcome: Outcome,
        /// The code of the stop; null exactly when completed.
        reason: Option<Code>,
        /// The description of the stop for people.
        message: Option<Arc<str>>,
        /// The model's answer.
        output: Arc<str>,
        /// The usage of the run.
        usage: Usage,
    }
}

impl RunFinished {
    /// Creates the event for an outcome; unless it is completed, `reason` and `message` have to be set.
    #[must_use]
    pub fn new(outcome: Outcome, output: impl Into<Arc<str>>, usage: Usage) -> Self {
        Self { outcome, output: output.into(), usage, reason: None, message: None }
    }
}

payload! {
    /// The run failed.
    RunFailed {
        /// The code of the failure.
        reason: Code,
        /// The description of the failure for people.
        message: Arc<str>,
        /// The failure and its causes, outermost first.
        chain: Vec<String>,
        /// The usage of the run.
        usage: Usage,
        /// The failure's retry answers, if they differ from those of its code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry: Option<RetryFacts>,
    }
}

impl RunFailed {
    /// Creates the event for a failed run; its message is the first of the chain.
    #[must_use]
    pub fn new(reason: impl Into<Code>, chain: Vec<String>, usage: Usage) -> Self {
        let message = chain.first().map_or("", String::as_str).into();
        Self { reason: reason.into(), message, chain, usage, retry: None }
    }
}
