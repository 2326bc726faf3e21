//! A run: begun, copied, taken up again, ended.

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

/// The resolved agent that a run was started with, or goes on with.
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

    /// Is this a workflow?
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
        /// What the caller asked.
        input: Arc<str>,
        /// The images of its input.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        images: Arc<[Image]>,
        /// The session it belongs to.
        session: SessionId,
        /// Who answers.
        agent: Box<AgentRecord>,
        /// SHA-256 of everything that was resolved for the run, in hex: the agent's definition as it
        /// stands here. Null in records of the first layout, where `agent.digest` is that.
        #[serde(default)]
        definition_digest: Option<Arc<str>>,
        /// The run at the head of its callers, as far as they are known: itself, where nothing
        /// dispatched it. Null in records of the first layout.
        #[serde(default)]
        root: Option<RunId>,
        /// The run that started this one.
        parent: Option<RunId>,
        /// The run of the session that this one goes on after.
        #[serde(default)]
        follows: Option<Box<Follows>>,
        /// The run of the session that was dispatched together with this one and began first. What is said
        /// here is no part of the session's transcript then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch_of: Option<RunId>,
        /// The version of the machine that decides; 0 in records that do not say.
        #[serde(default)]
        machine: u32,
        /// How many dispatches are above the run.
        #[serde(default)]
        depth: u32,
        /// What it may use of its caller's budget; null without a caller that has one.
        #[serde(default)]
        allowance: Option<Box<Allowance>>,
        /// When it has to be done, on the clock of its events; null without a bound of its caller's.
        #[serde(default)]
        deadline: Option<Timestamp>,
        /// JSON Schema that the final answer has to fit, where the caller wants one.
        #[serde(default)]
        output_schema: Option<Box<JsonText>>,
        /// What its MCP servers listed; null without one.
        #[serde(default)]
        mcp: Option<Box<JsonText>>,
        /// What the caller files the run under.
        #[serde(default)]
        labels: Arc<BTreeMap<String, String>>,
        /// The caller's place in a distributed trace, as W3C `traceparent`.
        #[serde(default)]
        trace_parent: Option<Arc<str>>,
        /// The delivery to a behaviour that led to it.
        #[serde(default)]
        cause: Option<Box<Cause>>,
        /// Whose journal decides what happens next.
        #[serde(default)]
        journal: JournalKind,
        /// The id of the key that the record is sealed with; null for an unkeyed one.
        #[serde(default)]
        key_id: Option<Arc<str>>,
        /// What was said before, where the caller brought it along.
        #[serde(default, skip_serializing_if = "Transcript::is_empty")]
        history: Transcript,
    }
}

impl RunStarted {
    /// Makes the first event of a run that nothing dispatched, that follows no other one, and that
    /// says nothing of itself but this.
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
            history: Transcript::default(),
        }
    }
}

/// Whose journal decides what happens next in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JournalKind {
    /// That of the process that has the run: its record is the journal.
    #[default]
    Local,
}

/// Where the transcript of a session stood when a run began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RecordedFollows")]
#[non_exhaustive]
pub struct Follows {
    /// The run before.
    pub run: RunId,
    /// Its last event.
    pub seq: u64,
    /// The hash of that event, which stands for everything said until then.
    pub digest: Hash,
    /// How many messages the transcript had.
    pub messages: u64,
}

impl Follows {
    /// Names the run and its last event, with its hash, and states how many messages there were.
    #[must_use]
    pub fn new(run: impl Into<RunId>, seq: u64, digest: Hash, messages: u64) -> Self {
        Self { run: run.into(), seq, digest, messages }
    }
}

/// What stands in records: the first layout named the run alone.
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
    /// A run was taken up again.
    RunResumed {
        /// Who did it.
        by: Arc<str>,
        /// The agent that it goes on with from here, where that is defined otherwise than before.
        #[serde(default)]
        agent: Option<Box<AgentRecord>>,
    }
}

impl RunResumed {
    /// Says who did it.
    #[must_use]
    pub fn new(by: impl Into<Arc<str>>) -> Self {
        Self { by: by.into(), agent: None }
    }

    /// Goes on with another definition of the agent.
    #[must_use]
    pub fn adopting(mut self, agent: AgentRecord) -> Self {
        self.agent = Some(Box::new(agent));
        self
    }
}

payload! {
    /// A run that was over goes on: a new episode of it begins.
    RunReopened {
        /// Who did it.
        by: Arc<str>,
        /// The code of how the run had ended; null exactly in a copy of a run that had completed.
        reason: Option<Code>,
        /// What is added to its budget.
        #[serde(default)]
        budget: Option<Box<BudgetIncrease>>,
        /// What is said to the model before it is asked next; null where it is asked as before.
        #[serde(default)]
        message: Option<Arc<str>>,
        /// The delivery to a behaviour that led to it.
        #[serde(default)]
        cause: Option<Box<Cause>>,
    }
}

impl RunReopened {
    /// Goes on with a run that ended so, with nothing said to its model and no more of its budget.
    #[must_use]
    pub fn new(by: impl Into<Arc<str>>, reason: Option<Code>) -> Self {
        Self { by: by.into(), reason, budget: None, message: None, cause: None }
    }
}

payload! {
    /// What was open when the process died was sorted out.
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
        /// How.
        outcome: Outcome,
        /// The code of the stop; null exactly when completed.
        reason: Option<Code>,
        /// The stop for people.
        message: Option<Arc<str>>,
        /// What the model said.
        output: Arc<str>,
        /// What it used.
        usage: Usage,
    }
}

impl RunFinished {
    /// States how a run ended; one that did not complete says why in `reason` and `message`.
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
        /// What it used.
        usage: Usage,
        /// What the failure says of trying again, where its code does not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry: Option<RetryFacts>,
    }
}

impl RunFailed {
    /// Says why a run failed: its message is the outermost of the chain.
    #[must_use]
    pub fn new(reason: impl Into<Code>, chain: Vec<String>, usage: Usage) -> Self {
        let message = chain.first().map_or("", String::as_str).into();
        Self { reason: reason.into(), message, chain, usage, retry: None }
    }
}
