//! A run: begun, copied, resumed, ended.

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

/// The resolved agent that a run was started with, or continues with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentRecord {
    /// The agent's name.
    pub name: Arc<str>,
    /// SHA-256, in hex, of what makes it this agent: name, instructions, limits, guards, budget, memory,
    /// hooks and tools. Another model or price is the same agent.
    pub digest: Arc<str>,
    /// Everything the run needs to be rebuilt, without secrets.
    pub definition: JsonText,
}

impl AgentRecord {
    /// Makes the record of an agent.
    #[must_use]
    pub fn new(
        name: impl Into<Arc<str>>,
        digest: impl Into<Arc<str>>,
        definition: impl Into<JsonText>,
    ) -> Self {
        Self { name: name.into(), digest: digest.into(), definition: definition.into() }
    }

    /// Returns the definition of a workflow that dispatches these operators. It is no agent: its run is rebuilt
    /// by its code, from the steps that are recorded.
    #[must_use]
    pub fn workflow(calls: &[&str], name: &str) -> JsonText {
        JsonText::from(&json!({ "calls": calls, "workflow": name }))
    }

    /// Returns whether this is a workflow.
    #[must_use]
    pub fn is_workflow(&self) -> bool {
        // Keys are sorted, and no other definition begins so.
        self.definition.get().starts_with(r#"{"calls":"#)
    }
}

payload! {
    /// A run began.
    RunStarted {
        /// The run itself, because no hash covers the envelope's; null in records of the first layout.
        #[serde(default)]
        run: Option<RunId>,
        /// The caller's input.
        input: Arc<str>,
        /// The images of its input.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        images: Arc<[Image]>,
        /// The session it belongs to.
        session: SessionId,
        /// The agent that answers.
        agent: Box<AgentRecord>,
        /// SHA-256 of everything that was resolved for the run, in hex: the agent's definition as it is here. Null in
        /// records of the first layout, which have it in `agent.digest`.
        #[serde(default)]
        definition_digest: Option<Arc<str>>,
        /// The run at the head of its callers, as far as they are known: itself, where nothing
        /// dispatched it. Null in records of the first layout.
        #[serde(default)]
        root: Option<RunId>,
        /// The run that started this one.
        parent: Option<RunId>,
        /// The run of the session that this one follows.
        #[serde(default)]
        follows: Option<Box<Follows>>,
        /// The run of the session that was dispatched together with this one and began first. The messages of this run
        /// are then no part of the session's transcript.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch_of: Option<RunId>,
        /// The version of the machine that decides; 0 in records that do not say.
        #[serde(default)]
        machine: u32,
        /// The number of dispatches above the run.
        #[serde(default)]
        depth: u32,
        /// The part of its caller's budget that it may use; null without a caller that has one.
        #[serde(default)]
        allowance: Option<Box<Allowance>>,
        /// Its deadline, on the clock of its events; null without a bound of its caller's.
        #[serde(default)]
        deadline: Option<Timestamp>,
        /// JSON Schema that the final answer has to fit, where the caller wants one.
        #[serde(default)]
        output_schema: Option<Box<JsonText>>,
        /// The tools that its MCP servers listed; null without one.
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
        /// The id of the key that the record is sealed with; null for an unkeyed one.
        #[serde(default)]
        key_id: Option<Arc<str>>,
        /// Whether the row of the run, and each erasure of one of its events, are sealed with the key too.
        #[serde(default, skip_serializing_if = "is_false")]
        row_sealed: bool,
        /// The messages before, if the caller brought them along.
        #[serde(default, skip_serializing_if = "Transcript::is_empty")]
        history: Transcript,
        /// Other sessions whose stored errors and results it may read, since its history and its input may refer to
        /// them.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        sessions: Arc<[SessionId]>,
        /// Whether a workflow's task may be done again after it may have acted.
        #[serde(default, skip_serializing_if = "is_false")]
        idempotent: bool,
        /// Whether the steps of a workflow read what was said in the session before.
        #[serde(default, skip_serializing_if = "is_false")]
        with_history: bool,
        /// The longest time that a workflow may be parked, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_park_ms: Option<u64>,
    }
}

impl RunStarted {
    /// Makes the first event of a run that nothing dispatched, that follows no other one, and that has no other
    /// properties.
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

/// The owner of the journal that decides a run's next step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JournalKind {
    /// That of the process that has the run: its record is the journal.
    #[default]
    Local,
}

/// The state of a session's transcript when a run began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RecordedFollows")]
#[non_exhaustive]
pub struct Follows {
    /// The run before.
    pub run: RunId,
    /// Its last event.
    pub seq: u64,
    /// The last event's hash, which covers all messages until then.
    pub digest: Hash,
    /// The number of messages in the transcript.
    pub messages: u64,
}

impl Follows {
    /// Names the run and its last event, with its hash, and states how many messages there were.
    #[must_use]
    pub fn new(run: impl Into<RunId>, seq: u64, digest: Hash, messages: u64) -> Self {
        Self { run: run.into(), seq, digest, messages }
    }
}

/// The stored form: the first layout named the run alone.
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
        /// The run it was copied from.
        parent: RunId,
        /// The last event that was copied.
        at: u64,
        /// The session of the copy; null in records of the first layout.
        #[serde(default)]
        session: Option<SessionId>,
    }
}

impl RunForked {
    /// Names the copy, its session, the run it was copied from and the last event that was.
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
        /// The agent that it continues with from here, if its definition changed.
        #[serde(default)]
        agent: Option<Box<AgentRecord>>,
        /// The newest event that the record had lost, if a person accepted the loss.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost_tail: Option<LostTail>,
    }
}

/// An acknowledged event that is missing from its record: the store came back older than it was.
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
    /// Its hash.
    pub hash: Hash,
}

impl LostTail {
    /// Names the newest event that is known to be lost.
    #[must_use]
    pub const fn new(seq: u64, hash: Hash) -> Self {
        Self { seq, hash }
    }
}

impl RunResumed {
    /// Names the process or person that resumed it.
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

    /// Continues with another definition of the agent.
    #[must_use]
    pub fn adopting(mut self, agent: AgentRecord) -> Self {
        self.agent = Some(Box::new(agent));
        self
    }
}

payload! {
    /// A run was reopened after its end: a new episode begins.
    RunReopened {
        /// The process or person that reopened it.
        by: Arc<str>,
        /// The code of how the run had ended; null exactly in a copy of a run that had completed.
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
        /// The newest event that the record had lost, if a person accepted the loss.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost_tail: Option<LostTail>,
    }
}

impl RunReopened {
    /// Reopens a run that ended so, with no message to its model and no increase of its budget.
    #[must_use]
    pub fn new(by: impl Into<Arc<str>>, reason: Option<Code>) -> Self {
        Self { by: by.into(), reason, budget: None, message: None, cause: None, lost_tail: None }
    }
}

payload! {
    /// The calls and model attempts that a dead process left open were sorted.
    RunRecovered {
        /// Calls that are run again.
        rerun: Vec<CallId>,
        /// Calls answered as interrupted.
        interrupted: Vec<CallId>,
        /// Calls whose tools are asked whether they happened.
        #[serde(default)]
        probing: Vec<CallId>,
        /// Model attempts that were lost.
        models: u32,
    }
}

impl RunRecovered {
    /// States which calls are run again and which are not, and how many attempts were lost; no tool is
    /// asked whether a call happened.
    #[must_use]
    pub const fn new(rerun: Vec<CallId>, interrupted: Vec<CallId>, models: u32) -> Self {
        Self { rerun, interrupted, probing: Vec::new(), models }
    }
}

payload! {
    /// The run ended without failing.
    RunFinished {
        /// The outcome.
        outcome: Outcome,
        /// The code of the stop; null exactly when completed.
        reason: Option<Code>,
        /// The stop for people.
        message: Option<Arc<str>>,
        /// The model's answer.
        output: Arc<str>,
        /// The usage of the run.
        usage: Usage,
    }
}

impl RunFinished {
    /// States a run's outcome; one that did not complete has the reason in `reason` and `message`.
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
        /// The failure for people.
        message: Arc<str>,
        /// The failure and its causes, outermost first.
        chain: Vec<String>,
        /// The usage of the run.
        usage: Usage,
        /// The failure's retry answers, if they differ from its code's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry: Option<RetryFacts>,
    }
}

impl RunFailed {
    /// Takes the reason a run failed: its message is the outermost of the chain.
    #[must_use]
    pub fn new(reason: impl Into<Code>, chain: Vec<String>, usage: Usage) -> Self {
        let message = chain.first().map_or("", String::as_str).into();
        Self { reason: reason.into(), message, chain, usage, retry: None }
    }
}
