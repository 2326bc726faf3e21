//! The closed catalogue of codes.
//!
//! A code is the stable name of a failure or a stop. Codes are printed, logged, matched on and documented; because
//! renaming or removing one breaks users, a snapshot test fixes the list.

mod family;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// A code as data in an event, a record or a JSON line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Code(Cow<'static, str>);

impl Code {
    /// Wraps a code of the catalogue, or a code of an error type outside it.
    #[must_use]
    pub const fn new(code: &'static str) -> Self {
        Self(Cow::Borrowed(code))
    }

    /// Returns the dotted text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&'static str> for Code {
    fn from(code: &'static str) -> Self {
        Self::new(code)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl PartialEq<str> for Code {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Code {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

/// One row of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CodeEntry {
    /// The code.
    pub code: &'static str,
    /// The meaning of the code, in one sentence.
    pub meaning: &'static str,
    /// Advice for a person, in one sentence.
    pub advice: &'static str,
}

impl CodeEntry {
    /// Creates a row.
    #[must_use]
    pub const fn new(code: &'static str, meaning: &'static str, advice: &'static str) -> Self {
        Self { code, meaning, advice }
    }
}

macro_rules! catalogue {
    ($($name:ident $code:literal $meaning:literal $advice:literal)*) => {
        $(
            #[doc = concat!("`", $code, "`: ", $meaning)]
            pub const $name: &str = $code;
        )*

        /// All codes, in the order of the documentation.
        pub const CATALOGUE: &[CodeEntry] = &[
            $(CodeEntry { code: $code, meaning: $meaning, advice: $advice },)*
        ];
    };
}

/// Returns the catalogue row of a code.
#[must_use]
pub fn find(code: &str) -> Option<&'static CodeEntry> {
    CATALOGUE.iter().find(|entry| entry.code == code)
}

/// Maximum number of codes outside the catalogue that [`intern`] copies, and maximum length of one.
const MAX_FOREIGN: usize = 1_000;
const MAX_FOREIGN_BYTES: usize = 64;

/// Returns a static copy of a recorded code: the code of the catalogue, or a copy of another one, such as that of an
/// application's error type. `None` for text of more than 64 bytes, and once the process has copied 1,000 codes.
///
/// ```
/// use layer0::code;
///
/// assert_eq!(code::intern("run.open"), Some(code::RUN_OPEN));
/// assert_eq!(code::intern(&"shop.sold_out".to_owned()), Some("shop.sold_out"));
/// assert_eq!(code::intern(&"x".repeat(65)), None);
/// ```
#[must_use]
pub fn intern(code: &str) -> Option<&'static str> {
    static FOREIGN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    if let Some(entry) = find(code) {
        return Some(entry.code);
    }
    let mut foreign = FOREIGN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = foreign.get(code) {
        return Some(known);
    }
    if code.len() > MAX_FOREIGN_BYTES || foreign.len() >= MAX_FOREIGN {
        return None;
    }
    let copy: &'static str = Box::leak(code.into());
    foreign.insert(copy);
    Some(copy)
}

catalogue! {
    PROVIDER_TRANSIENT "provider.transient"
        "The provider or the way to it failed for the moment: overload, 5xx, a lost connection."
        "Nothing to fix in the request: try again later, raise `attempts` of the retry policy, or add a fallback."
    PROVIDER_RATE_LIMITED "provider.rate_limited"
        "The provider asked to slow down."
        "Wait for the hint in the error, lower concurrency or add a fallback."
    PROVIDER_INVALID_REQUEST "provider.invalid_request"
        "The provider refused the request as malformed."
        "Read the message: a parameter, a model name or a tool schema is wrong."
    PROVIDER_CONTENT_BLOCKED "provider.content_blocked"
        "The provider's safety system blocked the request or the answer."
        "Change the input; the same request is blocked again."
    PROVIDER_AUTH_FAILED "provider.auth_failed"
        "The key is missing, wrong or not allowed to do this."
        "Check the environment variable that holds the key, and the account's permissions."
    PROVIDER_INVALID_RESPONSE "provider.invalid_response"
        "The answer could not be understood: not JSON, an HTML page, or neither text nor tool calls."
        "Look for a proxy in between; a model that does it often is too weak for the tools."
    PROVIDER_CONTEXT_OVERFLOW "provider.context_overflow"
        "The conversation is longer than the model's context."
        "Shorten the input, lower result sizes or use a model with a larger context."
    PROVIDER_QUOTA_EXHAUSTED "provider.quota_exhausted"
        "The account's quota, credit or spend limit is used up; waiting seconds does not help."
        "Raise the limit or top up, or add a fallback provider."
    PROVIDER_TIMEOUT "provider.timeout"
        "The provider did not connect, begin, go on or finish in time."
        "Raise the timeout of the phase the message names, or use a faster model."
    PROVIDER_STREAM_TRUNCATED "provider.stream_truncated"
        "The stream ended without its end marker, so the answer is incomplete."
        "Look for a proxy that closes streams; declare endpoints that omit the marker."
    PROVIDER_STREAM_INTERRUPTED "provider.stream_interrupted"
        "The connection broke inside the answer."
        "Nothing to fix in the request: try again later, raise `attempts` of the retry policy, or add a fallback."
    PROVIDER_NOT_FOUND "provider.not_found"
        "The provider does not know the model or the path."
        "Check model name and base_url."
    PROVIDER_CIRCUIT_OPEN "provider.circuit_open"
        "The endpoint failed so often that calls to it are held back for a while."
        "Wait for the probe, or add a fallback provider; the chain says what the last call failed with."
    PROVIDER_OTHER "provider.other"
        "The provider failed in a way that has no class of its own."
        "Read the chain of causes."
    MODEL_MAX_TOKENS "model.max_tokens"
        "The answer was cut at the output token limit."
        "Raise max_output_tokens or ask for less."
    MODEL_REFUSAL "model.refusal"
        "The model refused to answer."
        "Change the request; what the model did say is the output."
    MODEL_CONTENT_FILTER "model.content_filter"
        "A content filter cut the answer."
        "Change the request; what passed the filter is the output."
    MODEL_PAUSE "model.pause"
        "The provider paused the turn, again and again, each time it was sent once more."
        "Reopen the run to let it go on, or ask for less at once."
    MODEL_UNKNOWN_STOP "model.unknown_stop"
        "The provider stopped the answer for a reason that is not known."
        "Read the provider's word for it in the message; what was said is the output."
    TOOL_NOT_FOUND "tool.not_found"
        "The model called a tool that does not exist."
        "Usually the model corrects itself; otherwise describe the tools better."
    TOOL_UNAVAILABLE "tool.unavailable"
        "A tool is not there to be called."
        "In a copy that answers tools from a record, the record has no such call."
    TOOL_PERMISSION_DENIED "tool.permission_denied"
        "Policy did not grant a capability the call needs."
        "Grant the capability named in the message if the agent may have it."
    TOOL_INVALID_INPUT "tool.invalid_input"
        "The arguments were not JSON or did not match the tool's schema."
        "Usually the model corrects itself; otherwise simplify the schema."
    TOOL_INVALID_OUTPUT "tool.invalid_output"
        "The tool's output did not match its declared schema."
        "Fix the tool or its output schema."
    TOOL_EXECUTION_FAILED "tool.execution_failed"
        "The tool ran and reported an error."
        "Read the stored error: backstop errors show ID."
    TOOL_TIMEOUT "tool.timeout"
        "The tool did not finish in time and was stopped."
        "Raise the tool's timeout or make it do less per call."
    TOOL_PANICKED "tool.panicked"
        "The tool's code panicked; the panic was caught."
        "Fix the bug in the tool; the stored error holds the panic text."
    TOOL_INTERRUPTED "tool.interrupted"
        "The process died while the tool ran, and the tool is not safe to repeat."
        "Check by hand whether it acted; mark the tool idempotent if it can be repeated."
    TOOL_SKIPPED "tool.skipped"
        "A gate hook kept the call from running."
        "Read the hook's reason."
    TOOL_APPROVAL_DENIED "tool.approval_denied"
        "A person denied the call."
        "Read the reason; the identical call is denied for the rest of the run."
    TOOL_CANCELLED "tool.cancelled"
        "The call was open when the run was stopped, or the answer that asked for it was cut."
        "Nothing to fix."
    TOOL_REPEATED_FAILURE "tool.repeated_failure"
        "The identical call failed several times in a row and was not run again."
        "Read the stored error of the earlier calls."
    TOOL_DONE_ELSEWHERE "tool.done_elsewhere"
        "Another call has the key of a call that is made once, and its end is not known."
        "See to the call that the message names; say what became of it with backstop resolve."
    TOOL_OTHER "tool.other"
        "The tool failed in a way that has no class of its own."
        "Read the stored error: backstop errors show ID."
    MCP_ADDRESS_DENIED "mcp.address_denied"
        "An MCP server leads its login to an address that is not public."
        "Say where tokens are given (`token_url`), or grant `network:private:ADDRESS`."
    MCP_CLASH "mcp.clash"
        "Two tools of an MCP server would have one name."
        "Leave one of them out with `tools`, or have the server rename it."
    MCP_INITIALIZE_FAILED "mcp.initialize_failed"
        "An MCP server ended, refused the connection, or spoke no known revision of the protocol."
        "Read what it wrote; start it by hand with the same command and variables."
    MCP_LIST_FAILED "mcp.list_failed"
        "An MCP server did not list its tools as the protocol says, or listed too many."
        "Read what is wrong with the list; a server lists at most 1,000 tools on 20 pages."
    MCP_MISCONFIGURED "mcp.misconfigured"
        "An MCP server is described in a way that cannot be."
        "Fix what the message names."
    MCP_START_FAILED "mcp.start_failed"
        "The program of an MCP server could not be started."
        "Check that it is installed and executable, and that the server sees `PATH`."
    MCP_TIMEOUT "mcp.timeout"
        "An MCP server did not answer its initialisation or the listing of its tools in time."
        "Start it by hand with the same command and variables; a package that is fetched first may need longer."
    MEMORY_READ_FAILED "memory.read_failed"
        "Memory could not be read; the run went on without it."
        "Check the memory back end."
    MEMORY_WRITE_FAILED "memory.write_failed"
        "Memory could not be written; the run went on."
        "Check the memory back end."
    MEMORY_TIMEOUT "memory.timeout"
        "Memory did not answer in time; the run went on without it."
        "Check the memory back end or raise memory_timeout_ms."
    MEMORY_PANICKED "memory.panicked"
        "The memory's code panicked; the run went on without it."
        "Fix the bug in the memory implementation."
    HOOK_FAILED "hook.failed"
        "A hook returned an error."
        "Fix the hook; with fail_open = false it ends the run."
    HOOK_TIMEOUT "hook.timeout"
        "A hook did not answer in time."
        "Make the hook faster or raise hook_timeout_ms."
    HOOK_PANICKED "hook.panicked"
        "A hook's code panicked; the panic was caught."
        "Fix the bug in the hook."
    HOOK_REJECTED "hook.rejected"
        "A hook that must not fail failed, so the run ended."
        "Fix the hook or let it fail open."
    HOOK_ABORTED "hook.aborted"
        "A gate hook ended the run before its first model call."
        "Read the hook's reason."
    BEHAVIOR_FAILED "behavior.failed"
        "A behaviour returned an error, or its command or URL answered with one."
        "Mend the behaviour; the runs it reacts to are not touched."
    BEHAVIOR_TIMEOUT "behavior.timeout"
        "A behaviour did not end in time."
        "Make the behaviour faster or raise its `timeout_ms`."
    BEHAVIOR_PANICKED "behavior.panicked"
        "A behaviour's code panicked; the panic was caught."
        "Fix the bug in the behaviour."
    BEHAVIOR_RECURSION "behavior.recursion"
        "An event was caused by more than 8 deliveries to behaviours, one after the other, so that it was not delivered."
        "Look in the trace for behaviours that react to what each other cause."
    GUARD_MAX_ITERATIONS "guard.max_iterations"
        "The model still asked for tools after the last allowed model call."
        "Raise max_iterations if the task needs it; otherwise look for a loop in the trace."
    GUARD_LOOP_DETECTED "guard.loop_detected"
        "The model repeated the same tool calls."
        "Look at what the tool answers; where asking again is right, raise max_repeated_batch_steps \
         or mark a tool that only looks around as exploratory."
    GUARD_PARALLEL_TOOL_LIMIT "guard.parallel_tool_limit"
        "The model asked for more tool calls at once than allowed."
        "Raise max_parallel_tools if the batch was legitimate."
    GUARD_STAGNATION "guard.stagnation"
        "The model said the same text too often, the last time beside no new tool call."
        "Look at the repeated text in the trace; raise max_stagnation_steps where it is right."
    BUDGET_MODEL_CALLS "budget.model_calls"
        "The allowed number of model attempts is used up."
        "Raise the budget or look for retries in the trace."
    BUDGET_TOOL_CALLS "budget.tool_calls"
        "The allowed number of tool executions is used up."
        "Raise the budget."
    BUDGET_INPUT_TOKENS "budget.input_tokens"
        "The allowed number of input tokens is used up."
        "Raise the budget or shorten the context."
    BUDGET_OUTPUT_TOKENS "budget.output_tokens"
        "The allowed number of output tokens is used up."
        "Raise the budget."
    BUDGET_TOTAL_TOKENS "budget.total_tokens"
        "The allowed number of tokens is used up."
        "Raise the budget."
    BUDGET_COST_USD "budget.cost_usd"
        "The allowed cost is used up."
        "Raise the budget."
    BUDGET_WALL_TIME "budget.wall_time"
        "The allowed time is used up."
        "Raise the budget."
    BUDGET_EVENTS "budget.events"
        "The allowed number of events is used up."
        "Raise the budget."
    BUDGET_DEPTH "budget.depth"
        "Operators called each other deeper than allowed."
        "Raise the budget or look for operators that call themselves."
    APPROVAL_DENIED "approval.denied"
        "A person denied an approval."
        "Read the reason."
    APPROVAL_EXPIRED "approval.expired"
        "An approval was not decided in time, and counts as denied."
        "Decide sooner, or give the tool a longer `expires_after_ms`; the identical call is denied \
         for the rest of the run."
    APPROVAL_NOT_APPROVER "approval.not_approver"
        "The person may not decide the approval."
        "Let one of the people decide whom the message names."
    APPROVAL_NOT_FOUND "approval.not_found"
        "No open approval has the id: it never had one, or it was decided before."
        "List what is open; an approval is decided once."
    RUN_CALL_NOT_OPEN "run.call_not_open"
        "The outcome of the call is known, or the run made no such call, so that there is nothing to settle."
        "Look at the call in the trace: only one that may have acted and has no certain answer is settled."
    RUN_CANCELLED "run.cancelled"
        "The run was cancelled."
        "Nothing to fix."
    RUN_CRASH_LOOP "run.crash_loop"
        "The process died three times without a step of the run being completed in between."
        "Mend what kills the process, then go on with `backstop resume RUN --reopen`."
    RUN_EXISTS "run.exists"
        "A run with the id exists, so that another one cannot be started under it. Nothing was started."
        "Resume the run, which also returns the result of one that has ended; or give another id."
    RUN_FOLLOWED "run.followed"
        "Another run of the session follows the run, so that it cannot be reopened."
        "Go on with the last run of the session, or copy this one with `backstop fork`."
    RUN_NOT_FOUND "run.not_found"
        "The store has no run with the id, or it was forgotten."
        "List the runs of the store; an agent without a log knows none."
    RUN_NOT_REOPENABLE "run.not_reopenable"
        "The run ended in a way that cannot be gone on from, or without the budget for it."
        "Read why: give it more of the budget, copy it with `backstop fork`, or start a new run."
    RUN_OPEN "run.open"
        "The session has an open run, or the run is not over, or it has an owner that is at work."
        "Wait for it, decide what it waits for, or stop it with `backstop cancel`."
    RUN_WAITING_APPROVAL "run.waiting_approval"
        "The run waits for a person's decision."
        "Approve or deny, then resume."
    CONFIG_INVALID "config.invalid"
        "An agent, a tool, a provider, an orchestrator or a file is configured in a way that cannot be used."
        "Fix what the message names; no run was started."
    INPUT_INVALID "input.invalid"
        "An input, an argument, a name or a decision is empty, or does not fit what was asked for."
        "Fix what the message names."
    INPUT_KEY_REUSED "input.key_reused"
        "The idempotency key of a call was given before, with another input."
        "Give another key, or the same input."
    OUTPUT_UNSERIALIZABLE "output.unserializable"
        "The answer could not be turned into the asked type."
        "Simplify the type or improve the instructions."
    STORE_LOCKED "store.locked"
        "The database is locked by another process."
        "Find the process that holds it."
    STORE_FULL "store.full"
        "The disk or the quota is full."
        "Free space; prune old errors."
    STORE_CLOSED "store.closed"
        "The store was already closed."
        "Close it after the last run."
    STORE_LOST "store.lost"
        "The file of the database was removed, renamed or replaced while it was open."
        "Put it back together with its -wal and -shm, and resume what was open; stop what writes before a file is moved."
    STORE_FAILED "store.failed"
        "The store failed in a way that has no class of its own."
        "Read the chain of causes."
    LOG_APPEND_FAILED "log.append_failed"
        "The durable log could not be written, so the run stopped before acting."
        "Fix the store, then start or resume the run."
    LOG_TAMPERED "log.tampered"
        "The log's hash chain is broken: a row was changed, removed or moved."
        "Do not trust the run from the named seq on."
    LOG_UNREADABLE "log.unreadable"
        "A run or an event of the log cannot be read, though its hash chain holds, or it could not be \
         read if it were written."
        "Read the chain of causes; another version may be able to read it."
    LOG_ERASED "log.erased"
        "The payload of an event was erased on request; its hash chain holds."
        "The run can be traced and verified, and not replayed, resumed or copied."
    LOG_LOST_TAIL "log.lost_tail"
        "The log ends before what it had acknowledged: another record speaks of what is gone."
        "Restore the store from a newer backup; what is gone is not done again."
    LOG_SCHEMA_NEWER "log.schema_newer"
        "The log was written by a newer version."
        "Use that version or a later one."
    REPLAY_DIVERGED "replay.diverged"
        "The replay decided differently from the record."
        "Compare expected and actual at the named seq."
    INTERNAL "internal"
        "Backstop broke one of its own rules."
        "Report it with the run's trace."
    OPERATOR_SUB_DISPATCH "operator.sub_dispatch"
        "An operator could not dispatch another one."
        "Read the chain of causes."
    OPERATOR_CONTEXT_ASSEMBLY "operator.context_assembly"
        "An operator could not assemble its context."
        "Read the message."
    OPERATOR_RETRYABLE "operator.retryable"
        "An operator failed for the moment."
        "Try again later."
    OPERATOR_NON_RETRYABLE "operator.non_retryable"
        "An operator failed for good: budget, safety or invalid input."
        "Read the message."
    OPERATOR_OTHER "operator.other"
        "An operator failed in a way that has no class of its own."
        "Read the chain of causes."
    ORCH_OPERATOR_NOT_FOUND "orch.operator_not_found"
        "No operator is registered under this name."
        "Register it, or fix the name."
    ORCH_WORKFLOW_NOT_FOUND "orch.workflow_not_found"
        "No dispatch is in flight under this id."
        "It may have ended; check the id."
    ORCH_DISPATCH_FAILED "orch.dispatch_failed"
        "A dispatch could not be started or its task was lost."
        "Read the message."
    ORCH_DEADLINE "orch.deadline"
        "The deadline of a dispatch had passed before its operator could start."
        "Give it more time."
    ORCH_DEPTH "orch.depth"
        "An operator was to be dispatched deeper than is allowed; it did not start."
        "Allow more depth, or look for operators that call themselves."
    ORCH_PANICKED "orch.panicked"
        "An operator panicked."
        "Mend the operator; its run is in the log."
    ORCH_SHUTDOWN "orch.shutdown"
        "The orchestrator is shut down."
        "Dispatch through one that runs."
    ORCH_SIGNAL_FAILED "orch.signal_failed"
        "A signal could not be delivered."
        "Read the message."
    ORCH_PRICE_UNKNOWN "orch.price_unknown"
        "A run with a cost budget was to dispatch an operator whose cost would not be known."
        "Give the operator a price."
    ORCH_OTHER "orch.other"
        "The orchestrator failed in a way that has no class of its own."
        "Read the chain of causes."
    STATE_NOT_FOUND "state.not_found"
        "A key that is required does not exist."
        "Write it first, or treat it as optional."
    STATE_CONFLICT "state.conflict"
        "Another version of a value is stored than a write expected."
        "Read the value again, decide anew, and write with the version that was found."
    STATE_INVALID_KEY "state.invalid_key"
        "The key of a value cannot be used."
        "Use 1 to 256 bytes without control characters."
    STATE_TOO_LARGE "state.too_large"
        "A value is larger than what a state store keeps."
        "Store less, or split it over several keys."
    STATE_WRITE_FAILED "state.write_failed"
        "A state write failed."
        "Read the message."
    STATE_SERIALIZATION "state.serialization"
        "A state value could not be read or written as JSON."
        "Read the message."
    STATE_OTHER "state.other"
        "The state store failed in a way that has no class of its own."
        "Read the chain of causes."
    ENV_PROVISION_FAILED "env.provision_failed"
        "The environment could not be set up as asked."
        "Read the message: what cannot be enforced is refused."
    ENV_ISOLATION_VIOLATION "env.isolation_violation"
        "Something in the environment crossed its limits."
        "Treat what it did as suspect."
    ENV_NETWORK_DENIED "env.network_denied"
        "The network rules of the environment do not let something through."
        "Use a host that is granted, or grant this one."
    ENV_CREDENTIAL_FAILED "env.credential_failed"
        "A credential could not be provided."
        "Check the reference."
    ENV_RESOURCE_EXCEEDED "env.resource_exceeded"
        "A resource limit of the environment was reached."
        "Raise the limit or do less."
    ENV_OTHER "env.other"
        "The environment failed in a way that has no class of its own."
        "Read the chain of causes."
}
