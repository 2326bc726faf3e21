//! The payloads, one struct per event type, named as in the catalogue.
//!
//! They are data that several crates build and read, so their fields are open; a change of shape is
//! a change of [`SCHEMA`](super::SCHEMA).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::code::Code;
use crate::id::{ApprovalId, CallId, ErrorId, ResultId, RunId, SessionId};
use crate::message::{StopReason, ToolCall};
use crate::stop::Outcome;
use crate::usage::{TokenUsage, Usage};

macro_rules! payload {
    (
        $(#[$doc:meta])*
        $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }
    };
}

/// The resolved agent a run was started with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// The agent's name.
    pub name: Arc<str>,
    /// SHA-256 of the definition, in hex.
    pub digest: Arc<str>,
    /// Everything the run needs to be rebuilt, without secrets.
    pub definition: Arc<Value>,
}

/// Why a tool call failed, as the log says it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolFailure {
    /// Our code.
    pub reason: Code,
    /// The tool author's code.
    pub code: Option<Arc<str>>,
    /// One line for people.
    pub message: Arc<str>,
    /// Where the whole error is stored.
    pub error_id: Option<ErrorId>,
}

payload! {
    /// A run began.
    RunStarted {
        /// What the caller asked.
        input: Arc<str>,
        /// The conversation it belongs to.
        session: SessionId,
        /// Who answers.
        agent: AgentRecord,
        /// The run that started this one.
        parent: Option<RunId>,
    }
}
payload! {
    /// A run was copied from another one up to an event.
    RunForked {
        /// The run it was copied from.
        parent: RunId,
        /// The last event that was copied.
        at: u64,
    }
}
payload! {
    /// A run was taken up again.
    RunResumed {
        /// Who did it.
        by: Arc<str>,
    }
}
payload! {
    /// What was open when the process died was sorted out.
    RunRecovered {
        /// Calls that are run again.
        rerun: Vec<CallId>,
        /// Calls answered as interrupted.
        interrupted: Vec<CallId>,
        /// Model attempts that were lost.
        models: u32,
    }
}
payload! {
    /// The run waits for people.
    RunWaiting {
        /// What they have to decide.
        approvals: Vec<ApprovalId>,
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
    }
}
payload! {
    /// The model is about to be asked.
    ModelRequested {
        /// Which call: 1, 2, ….
        call: u32,
        /// FNV-1a 64 over the previous digest and the new messages, 16 hex digits.
        request_digest: Arc<str>,
        /// FNV-1a 64 over the tool list, 16 hex digits.
        tools_digest: Arc<str>,
        /// How many messages it is sent.
        messages: u32,
    }
}
payload! {
    /// One attempt of a model call ended.
    ModelAttempted {
        /// Which call.
        call: u32,
        /// Which attempt of it: 1, 2, ….
        attempt: u32,
        /// Who was asked.
        provider: Arc<str>,
        /// The code of the failure; null for a success.
        code: Option<Code>,
        /// The HTTP status, where there was one.
        status: Option<u16>,
        /// The wait that follows, in milliseconds; null when no attempt follows.
        delay_ms: Option<u64>,
        /// What it was billed.
        usage: Option<TokenUsage>,
    }
}
payload! {
    /// The model answered.
    ModelResponded {
        /// Which call.
        call: u32,
        /// What it said.
        text: Arc<str>,
        /// What it thought, where the provider tells.
        thinking: Option<Arc<str>>,
        /// What it asked for.
        tool_calls: Arc<[ToolCall]>,
        /// Why it stopped.
        stop_reason: StopReason,
        /// What the answer was billed.
        usage: TokenUsage,
    }
}
payload! {
    /// A model call failed for good.
    ModelFailed {
        /// Which call.
        call: u32,
        /// The code of the failure.
        reason: Code,
        /// The failure for people.
        message: Arc<str>,
        /// The failure and its causes, outermost first.
        chain: Vec<String>,
        /// How many attempts were made.
        attempts: u32,
    }
}
payload! {
    /// A tool may have begun.
    ToolRequested {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The arguments it got.
        arguments: Value,
        /// Which execution of the run: 1, 2, ….
        execution: u32,
    }
}
payload! {
    /// The runtime tries a tool again.
    ToolAttempted {
        /// The call.
        call_id: CallId,
        /// Which execution.
        execution: u32,
        /// The code of the failure.
        reason: Code,
        /// The wait that follows, in milliseconds.
        delay_ms: u64,
    }
}
payload! {
    /// A tool call was answered.
    ToolResponded {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: Arc<str>,
        /// Did it succeed?
        ok: bool,
        /// The output, or `{"error": text}` with the text the model reads.
        output: Value,
        /// How long it ran; zero when it did not.
        duration_ms: u64,
        /// Why it failed.
        error: Option<ToolFailure>,
    }
}
payload! {
    /// A tool that was given up answered after all; its output was discarded.
    ToolLate {
        /// The call.
        call_id: CallId,
        /// Which execution.
        execution: u32,
    }
}
payload! {
    /// A person is asked.
    ApprovalRequested {
        /// The question.
        approval_id: ApprovalId,
        /// The call it is about.
        call_id: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The arguments shown.
        arguments: Value,
        /// What the decision is bound to.
        arguments_hash: Arc<str>,
    }
}
payload! {
    /// A person agreed.
    ApprovalGranted {
        /// The question.
        approval_id: ApprovalId,
        /// The call it is about.
        call_id: CallId,
        /// Who.
        by: Arc<str>,
        /// `null` or a code.
        reason: Option<Code>,
        /// The person's words.
        message: Option<Arc<str>>,
    }
}
payload! {
    /// A person declined.
    ApprovalDenied {
        /// The question.
        approval_id: ApprovalId,
        /// The call it is about.
        call_id: CallId,
        /// Who.
        by: Arc<str>,
        /// The code, `approval.denied`.
        reason: Code,
        /// The person's words.
        message: Option<Arc<str>>,
    }
}
payload! {
    /// A hook failed.
    HookFailed {
        /// The hook.
        hook: Arc<str>,
        /// Where in the run.
        point: Arc<str>,
        /// The call it was about.
        call_id: Option<CallId>,
        /// The code.
        reason: Code,
        /// What it said.
        message: Arc<str>,
        /// Does the run go on?
        fail_open: bool,
    }
}
payload! {
    /// A gate hook stopped something.
    HookAborted {
        /// The hook.
        hook: Arc<str>,
        /// Where in the run.
        point: Arc<str>,
        /// The call it was about.
        call_id: Option<CallId>,
        /// The code.
        reason: Code,
        /// What it said.
        message: Arc<str>,
        /// Would the run have gone on had it failed?
        fail_open: bool,
    }
}
payload! {
    /// Memory was read.
    MemoryRead {
        /// What it remembered.
        entries: Vec<Arc<str>>,
    }
}
payload! {
    /// Memory was written.
    MemoryWrote {
        /// How many entries.
        count: u32,
    }
}
payload! {
    /// Memory failed; the run goes on.
    MemoryDegraded {
        /// `read` or `write`.
        operation: Arc<str>,
        /// The code.
        reason: Code,
        /// What happened.
        message: Arc<str>,
    }
}
payload! {
    /// A budget is used up.
    BudgetExhausted {
        /// The code.
        reason: Code,
        /// The part of the code behind the dot.
        dimension: Arc<str>,
        /// What was allowed.
        limit: f64,
        /// What was used.
        used: f64,
    }
}
payload! {
    /// A guard found the model stuck.
    GuardTripped {
        /// The code.
        reason: Code,
        /// The part of the code behind the dot.
        guard: Arc<str>,
        /// What was counted.
        count: u64,
        /// What was allowed.
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
payload! {
    /// An error was stored.
    ErrorStored {
        /// Its id.
        error_id: ErrorId,
        /// The call it came from.
        call_id: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The tool author's code.
        code: Option<Arc<str>>,
        /// How often it was seen in the session.
        occurrences: u64,
        /// Characters kept from the model.
        chars_kept: u64,
    }
}
payload! {
    /// An error could not be stored; the model got a cut text.
    ErrorStoreDegraded {
        /// `store` or `get`.
        operation: Arc<str>,
        /// The code.
        reason: Code,
        /// What happened.
        message: Arc<str>,
    }
}
payload! {
    /// A large result was stored.
    ResultStored {
        /// Its id.
        result_id: ResultId,
        /// The call it came from.
        call_id: CallId,
        /// Its size.
        bytes: u64,
    }
}
payload! {
    /// Older messages were folded.
    ContextCompacted {
        /// The first message that was folded.
        from: u32,
        /// The last one.
        to: u32,
        /// Estimated tokens before.
        tokens_before: u64,
        /// Estimated tokens after.
        tokens_after: u64,
    }
}
payload! {
    /// Something worth knowing happened.
    Warning {
        /// What.
        message: Arc<str>,
    }
}
payload! {
    /// A behaviour began.
    BehaviorStarted {
        /// Its name.
        behavior: Arc<str>,
    }
}
payload! {
    /// A behaviour failed; the others still fire.
    BehaviorFailed {
        /// Its name.
        behavior: Arc<str>,
        /// The type of the error.
        exception_type: Arc<str>,
        /// The code.
        reason: Code,
        /// What happened.
        message: Arc<str>,
    }
}
payload! {
    /// Another operator was called.
    OperatorDispatched {
        /// Its name.
        operator: Arc<str>,
        /// Its run, where it is one.
        run: Option<RunId>,
    }
}
payload! {
    /// Another operator came back.
    OperatorReturned {
        /// Its name.
        operator: Arc<str>,
        /// Its run, where it is one.
        run: Option<RunId>,
    }
}
payload! {
    /// A signal arrived.
    SignalReceived {
        /// Its name.
        name: Arc<str>,
        /// What it carried.
        data: Value,
    }
}
