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
        /// The call that it was asked about.
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
    /// Creates the event for a failed hook.
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
        /// The call that it was asked about.
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
    /// Creates the event for a stop by a gate hook.
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
        /// The call that they were asked about.
        call_id: Option<CallId>,
    }
}

impl HookPassed {
    /// Creates the event for a point, and the call if there is one.
    #[must_use]
    pub fn new(point: impl Into<Arc<str>>, call_id: Option<CallId>) -> Self {
        Self { point: point.into(), call_id }
    }
}

payload! {
    /// Memory was read.
    MemoryRead {
        /// The ids of the returned entries.
        entries: Vec<Arc<str>>,
    }
}

impl MemoryRead {
    /// Creates the event with the returned entries.
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
    /// Creates the event with the number of entries.
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
    /// Creates the event for a failed operation, `read` or `write`.
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
    /// A budget or a spend limit is used up. A used-up spend limit is a fact of the runtime, a used-up budget is a
    /// decision of the machine.
    BudgetExhausted {
        /// The code.
        reason: Code,
        /// The part of the code after the dot.
        dimension: Arc<str>,
        /// The allowed amount; an amount of money is a fraction, all others are integers.
        limit: Number,
        /// The used amount.
        used: Number,
        /// The description of the budget for people; it names a spend limit.
        #[serde(default)]
        message: Arc<str>,
    }
}

impl BudgetExhausted {
    /// Creates the event for a budget, with the allowed and the used amount.
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
    /// A guard stopped the model because it made no progress.
    GuardTripped {
        /// The code.
        reason: Code,
        /// The part of the code after the dot.
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
        /// The description of the guard for people.
        message: Arc<str>,
    }
}

impl GuardTripped {
    /// Creates the event for a guard, with its count and limit.
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
    /// Something noteworthy happened.
    Warning {
        /// The text of the warning.
        message: Arc<str>,
    }
}

impl Warning {
    /// Creates a warning with this text.
    #[must_use]
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self { message: message.into() }
    }
}

payload! {
    /// An MCP server lists other tools than at the start of the run; the run keeps its tools.
    McpToolsChanged {
        /// The server.
        server: Arc<str>,
        /// Newly listed tools, by the names that the model would use.
        added: Arc<[Arc<str>]>,
        /// Tools that are no longer listed.
        removed: Arc<[Arc<str>]>,
        /// Tools with another description.
        changed: Arc<[Arc<str>]>,
    }
}

impl McpToolsChanged {
    /// Creates the event for a server, without changes.
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
    /// Another operator was dispatched.
    OperatorDispatched {
        /// The operator's name.
        operator: Arc<str>,
        /// The operator's run.
        run: RunId,
        /// The number of the attempt: 1, 2, ….
        attempt: u32,
        /// The tool call that it serves.
        call_id: Option<CallId>,
        /// The step of a workflow that it serves.
        step: Option<Arc<str>>,
        /// SHA-256 of its input, in hex.
        input_digest: Arc<str>,
        /// The part of the caller's budget that its run may use.
        allowance: Box<Allowance>,
        /// The maximum that its run may use, including later grants.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_most: Option<Box<Allowance>>,
        /// Whether it keeps no record of its run. If the process dies, the work of such an operator is lost.
        #[serde(default, skip_serializing_if = "is_false")]
        unrecorded: bool,
    }
}

impl OperatorDispatched {
    /// Creates the event for a dispatch that serves neither a tool call nor a step.
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
    /// Another operator can only wait; the call that it serves stays open.
    OperatorWaiting {
        /// The operator's name.
        operator: Arc<str>,
        /// The operator's run.
        run: RunId,
        /// The reason of the wait.
        r#for: WaitFor,
        /// The open approvals of its run and of child runs.
        approvals: Vec<ApprovalId>,
    }
}

impl OperatorWaiting {
    /// Creates the event for a wait, with the open approvals.
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
    /// A child run was granted more budget. The event is recorded first by the caller, then by the child run.
    BudgetGranted {
        /// The child run.
        run: RunId,
        /// The amount that it may use in addition to earlier grants; null if nothing is left.
        allowance: Option<Box<Allowance>>,
    }
}

impl BudgetGranted {
    /// Creates the event for a grant to a child run.
    #[must_use]
    pub fn new(run: impl Into<RunId>, allowance: Option<Allowance>) -> Self {
        Self { run: run.into(), allowance: allowance.map(Box::new) }
    }
}

payload! {
    /// Another operator returned.
    OperatorReturned {
        /// The operator's name.
        operator: Arc<str>,
        /// The operator's run.
        run: RunId,
        /// The outcome.
        outcome: Outcome,
        /// The code of the failure or stop; null exactly when completed.
        reason: Option<Code>,
        /// The usage of its run, including child runs.
        usage: Usage,
        /// The output, if the operator keeps no record of its run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<JsonText>,
        /// Whether trying again can help; null unless it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry: Option<RetryFacts>,
        /// Whether it may have acted on the world: `none`, `unknown` or `happened`; null unless it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effect: Option<Effect>,
        /// The messages of the failure, outermost first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        messages: Vec<Arc<str>>,
        /// Whether the workflow stopped it because no step waited for its answer any more.
        #[serde(default, skip_serializing_if = "is_false")]
        superseded: bool,
    }
}

impl OperatorReturned {
    /// Creates the event for the end of an operator's run; `reason` is `None` exactly when it completed.
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
    /// A step of a workflow was refused before its operator's run began.
    OperatorRefused {
        /// The operator's name.
        operator: Arc<str>,
        /// The step.
        step: Arc<str>,
        /// The code.
        reason: Code,
        /// The messages of the failure, outermost first.
        messages: Vec<Arc<str>>,
    }
}

impl OperatorRefused {
    /// Creates the event for a refused step.
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
    /// A workflow chose the step after another one.
    WorkflowRouted {
        /// The step.
        step: Arc<str>,
        /// The next step.
        to: Arc<str>,
    }
}

impl WorkflowRouted {
    /// Creates the event for a step and its next one.
    #[must_use]
    pub fn new(step: impl Into<Arc<str>>, to: impl Into<Arc<str>>) -> Self {
        Self { step: step.into(), to: to.into() }
    }
}

payload! {
    /// A signal was received.
    SignalReceived {
        /// The signal's name.
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
    /// Creates the event for a signal with its data.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, data: Value) -> Self {
        Self { name: name.into(), data, cause: None }
    }
}

/// Writes a value with sorted keys, regardless of serde_json's order. A value that is nested too deep to be read is
/// written unchanged, and then refused.
fn serialize_sorted<S: Serializer>(value: &Value, serializer: S) -> Result<S::Ok, S::Error> {
    match is_deeper(value, MAX_DEPTH) {
        true => value.serialize(serializer),
        false => JsonText::from(value).serialize(serializer),
    }
}
