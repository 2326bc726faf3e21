//! Events around the loop: hooks, memory, guards, budgets, other operators, signals.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Number, Value};

use crate::JsonText;
use crate::code::Code;
use crate::event::{Cause, WaitFor};
use crate::failure::{Effect, RetryFacts};
use crate::id::{ApprovalId, CallId, RunId};
use crate::json_text::{MAX_DEPTH, is_deeper};
use crate::stop::Outcome;
use crate::usage::{Allowance, Usage};

payload! {
    /// A hook failed.
    HookFailed {
        /// The hook.
        hook: Arc<str>,
        /// The point in the run.
        point: Arc<str>,
        /// The call it was about.
        call_id: Option<CallId>,
        /// The code.
        reason: Code,
        /// The hook's message.
        message: Arc<str>,
        /// Whether the run continues.
        fail_open: bool,
    }
}

impl HookFailed {
    /// Names the hook, the point and the call, and takes the reason of the failure.
    #[must_use]
    pub fn new(
        hook: impl Into<Arc<str>>,
        point: impl Into<Arc<str>>,
        call_id: Option<CallId>,
        reason: impl Into<Code>,
        message: impl Into<Arc<str>>,
        fail_open: bool,
    ) -> Self {
        Self {
            hook: hook.into(),
            point: point.into(),
            call_id,
            reason: reason.into(),
            message: message.into(),
            fail_open,
        }
    }
}

payload! {
    /// A gate hook stopped something.
    HookAborted {
        /// The hook.
        hook: Arc<str>,
        /// The point in the run.
        point: Arc<str>,
        /// The call it was about.
        call_id: Option<CallId>,
        /// The code.
        reason: Code,
        /// The hook's message.
        message: Arc<str>,
        /// Whether the run would have continued if the hook had failed.
        fail_open: bool,
    }
}

impl HookAborted {
    /// Names the hook, the point and the call, and takes the reason of the stop.
    #[must_use]
    pub fn new(
        hook: impl Into<Arc<str>>,
        point: impl Into<Arc<str>>,
        call_id: Option<CallId>,
        reason: impl Into<Code>,
        message: impl Into<Arc<str>>,
        fail_open: bool,
    ) -> Self {
        Self {
            hook: hook.into(),
            point: point.into(),
            call_id,
            reason: reason.into(),
            message: message.into(),
            fail_open,
        }
    }
}

payload! {
    /// The hooks of a point let the run continue.
    HookPassed {
        /// The point in the run.
        point: Arc<str>,
        /// The call they were asked about.
        call_id: Option<CallId>,
    }
}

impl HookPassed {
    /// Names the point, and the call.
    #[must_use]
    pub fn new(point: impl Into<Arc<str>>, call_id: Option<CallId>) -> Self {
        Self { point: point.into(), call_id }
    }
}

payload! {
    /// Memory was read.
    MemoryRead {
        /// The entries that it returned.
        entries: Vec<Arc<str>>,
    }
}

impl MemoryRead {
    /// States what was remembered.
    #[must_use]
    pub const fn new(entries: Vec<Arc<str>>) -> Self {
        Self { entries }
    }
}

payload! {
    /// Memory was written.
    MemoryWrote {
        /// The number of entries.
        count: u32,
    }
}

impl MemoryWrote {
    /// States how many entries were written.
    #[must_use]
    pub const fn new(count: u32) -> Self {
        Self { count }
    }
}

payload! {
    /// Memory failed; the run continues.
    MemoryDegraded {
        /// `read` or `write`.
        operation: Arc<str>,
        /// The code.
        reason: Code,
        /// The description of the failure.
        message: Arc<str>,
    }
}

impl MemoryDegraded {
    /// Names the operation, `read` or `write`, and takes the reason of the failure.
    #[must_use]
    pub fn new(
        operation: impl Into<Arc<str>>,
        reason: impl Into<Code>,
        message: impl Into<Arc<str>>,
    ) -> Self {
        Self { operation: operation.into(), reason: reason.into(), message: message.into() }
    }
}

payload! {
    /// A budget is used up, or what runs may spend together; that is a fact of the runtime, the others are
    /// decisions of the machine.
    BudgetExhausted {
        /// The code.
        reason: Code,
        /// The part of the code behind the dot.
        dimension: Arc<str>,
        /// The allowed amount; money is a fraction, all else is counted.
        limit: Number,
        /// The used amount.
        used: Number,
        /// The budget for people; it names a spend limit.
        #[serde(default)]
        message: Arc<str>,
    }
}

impl BudgetExhausted {
    /// States which budget is used up, what was allowed and what was used.
    #[must_use]
    pub fn new(
        reason: impl Into<Code>,
        dimension: impl Into<Arc<str>>,
        limit: Number,
        used: Number,
        message: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            reason: reason.into(),
            dimension: dimension.into(),
            limit,
            used,
            message: message.into(),
        }
    }
}

payload! {
    /// A guard found the model stuck.
    GuardTripped {
        /// The code.
        reason: Code,
        /// The part of the code behind the dot.
        guard: Arc<str>,
        /// The count.
        count: u64,
        /// The allowed count.
        limit: u64,
        /// The signature of the repeated batch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<Arc<str>>,
        /// The hash of the repeated text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text_hash: Option<Arc<str>>,
        /// The guard for people.
        message: Arc<str>,
    }
}

impl GuardTripped {
    /// States which guard found something, what was counted and what was allowed.
    #[must_use]
    pub fn new(
        reason: impl Into<Code>,
        guard: impl Into<Arc<str>>,
        count: u64,
        limit: u64,
        message: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            reason: reason.into(),
            guard: guard.into(),
            count,
            limit,
            message: message.into(),
            signature: None,
            text_hash: None,
        }
    }
}

payload! {
    /// Something worth knowing happened.
    Warning {
        /// The text of the warning.
        message: Arc<str>,
    }
}

impl Warning {
    /// Makes a warning with this text.
    #[must_use]
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self { message: message.into() }
    }
}

payload! {
    /// An MCP server lists other tools than the run was given; the run keeps to those it was given.
    McpToolsChanged {
        /// The server.
        server: Arc<str>,
        /// Tools it lists since, by the names that the model would call them by.
        added: Arc<[Arc<str>]>,
        /// Tools it lists no more.
        removed: Arc<[Arc<str>]>,
        /// Tools it describes otherwise.
        changed: Arc<[Arc<str>]>,
    }
}

impl McpToolsChanged {
    /// Names the server, with no change yet.
    #[must_use]
    pub fn new(server: impl Into<Arc<str>>) -> Self {
        Self {
            server: server.into(),
            added: Arc::default(),
            removed: Arc::default(),
            changed: Arc::default(),
        }
    }
}

payload! {
    /// Another operator was called.
    OperatorDispatched {
        /// Its name.
        operator: Arc<str>,
        /// Its run.
        run: RunId,
        /// The number of the attempt: 1, 2, ….
        attempt: u32,
        /// The tool call it serves.
        call_id: Option<CallId>,
        /// The step of a workflow it serves.
        step: Option<Arc<str>>,
        /// SHA-256 of its input, in hex.
        input_digest: Arc<str>,
        /// The part of the caller's budget that its run may use.
        allowance: Box<Allowance>,
        /// The most that its run may use, with everything that is granted to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_most: Option<Box<Allowance>>,
        /// Whether it keeps no record of its run. If the process dies, the work of such an operator is lost.
        #[serde(default, skip_serializing_if = "is_false")]
        unrecorded: bool,
    }
}

impl OperatorDispatched {
    /// Describes a dispatch that serves neither a tool call nor a step.
    #[must_use]
    pub fn new(
        operator: impl Into<Arc<str>>,
        run: impl Into<RunId>,
        attempt: u32,
        input_digest: impl Into<Arc<str>>,
        allowance: Box<Allowance>,
    ) -> Self {
        Self {
            operator: operator.into(),
            run: run.into(),
            attempt,
            input_digest: input_digest.into(),
            allowance,
            call_id: None,
            step: None,
            at_most: None,
            unrecorded: false,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

payload! {
    /// Another operator can do nothing but wait; the call that it serves stays open.
    OperatorWaiting {
        /// Its name.
        operator: Arc<str>,
        /// Its run.
        run: RunId,
        /// The reason of the wait.
        r#for: WaitFor,
        /// The open approvals in it and below.
        approvals: Vec<ApprovalId>,
    }
}

impl OperatorWaiting {
    /// States what an operator waits for, and what people have to decide.
    #[must_use]
    pub fn new(
        operator: impl Into<Arc<str>>,
        run: impl Into<RunId>,
        r#for: WaitFor,
        approvals: Vec<ApprovalId>,
    ) -> Self {
        Self { operator: operator.into(), run: run.into(), r#for, approvals }
    }
}

payload! {
    /// A run below may use more than it was given at first. The event is in the caller's record, then in that of the
    /// run.
    BudgetGranted {
        /// The run below.
        run: RunId,
        /// The amount it may use in addition to earlier grants; null when nothing is left.
        allowance: Option<Box<Allowance>>,
    }
}

impl BudgetGranted {
    /// States the amount that a run below may use in addition to earlier grants.
    #[must_use]
    pub fn new(run: impl Into<RunId>, allowance: Option<Allowance>) -> Self {
        Self { run: run.into(), allowance: allowance.map(Box::new) }
    }
}

payload! {
    /// Another operator came back.
    OperatorReturned {
        /// Its name.
        operator: Arc<str>,
        /// Its run.
        run: RunId,
        /// The outcome.
        outcome: Outcome,
        /// The code of the failure or stop; null exactly when completed.
        reason: Option<Code>,
        /// The usage of its run, dispatches included.
        usage: Usage,
        /// The output, if it keeps no record of its run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<JsonText>,
        /// Whether trying again can help; null unless it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry: Option<RetryFacts>,
        /// Whether it may have acted on the world: `none`, `unknown` or `happened`; null unless it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effect: Option<Effect>,
        /// The messages of the failure, the outermost first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        messages: Vec<Arc<str>>,
        /// Whether the workflow stopped it because no step waited for its answer any more.
        #[serde(default, skip_serializing_if = "is_false")]
        superseded: bool,
    }
}

impl OperatorReturned {
    /// States how the run of an operator ended; `reason` is `None` exactly when it completed.
    #[must_use]
    pub fn new(
        operator: impl Into<Arc<str>>,
        run: impl Into<RunId>,
        outcome: Outcome,
        reason: Option<Code>,
        usage: Usage,
    ) -> Self {
        let (operator, run) = (operator.into(), run.into());
        Self {
            operator,
            run,
            outcome,
            reason,
            usage,
            output: None,
            retry: None,
            effect: None,
            messages: Vec::new(),
            superseded: false,
        }
    }
}

payload! {
    /// A step of a workflow was refused before a run of its operator began.
    OperatorRefused {
        /// The operator's name.
        operator: Arc<str>,
        /// The step.
        step: Arc<str>,
        /// The code.
        reason: Code,
        /// The messages of the failure, the outermost first.
        messages: Vec<Arc<str>>,
    }
}

impl OperatorRefused {
    /// Names the operator and the step, and states the reason.
    #[must_use]
    pub fn new(
        operator: impl Into<Arc<str>>,
        step: impl Into<Arc<str>>,
        reason: impl Into<Code>,
        messages: Vec<Arc<str>>,
    ) -> Self {
        Self { operator: operator.into(), step: step.into(), reason: reason.into(), messages }
    }
}

payload! {
    /// A workflow chose what follows a step.
    WorkflowRouted {
        /// The step.
        step: Arc<str>,
        /// The step that follows.
        to: Arc<str>,
    }
}

impl WorkflowRouted {
    /// Names a step, and the one that follows it.
    #[must_use]
    pub fn new(step: impl Into<Arc<str>>, to: impl Into<Arc<str>>) -> Self {
        Self { step: step.into(), to: to.into() }
    }
}

payload! {
    /// A signal arrived.
    SignalReceived {
        /// Its name.
        name: Arc<str>,
        /// The data of the signal.
        #[serde(serialize_with = "serialize_sorted")]
        data: Value,
        /// The delivery to a behaviour that led to it.
        #[serde(default)]
        cause: Option<Box<Cause>>,
    }
}

impl SignalReceived {
    /// Names the signal, with its data.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, data: Value) -> Self {
        Self { name: name.into(), data, cause: None }
    }
}

/// Writes a value with sorted keys, whatever order serde_json keeps. What no reader follows is left as it
/// is, to be refused.
fn serialize_sorted<S: Serializer>(value: &Value, serializer: S) -> Result<S::Ok, S::Error> {
    match is_deeper(value, MAX_DEPTH) {
        true => value.serialize(serializer),
        false => JsonText::from(value).serialize(serializer),
    }
}
