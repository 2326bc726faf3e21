//! What surrounds the loop: hooks, memory, guards, budgets, behaviours, other operators.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::code::Code;
use crate::id::{CallId, RunId};
use crate::stop::Outcome;
use crate::usage::{Allowance, Usage};

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
    /// The hooks of a point let the run go on.
    HookPassed {
        /// Where in the run.
        point: Arc<str>,
        /// The call they were asked about.
        call_id: Option<CallId>,
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
        /// What was allowed; money is a fraction, all else is counted.
        limit: Number,
        /// What was used.
        used: Number,
        /// The budget for people.
        #[serde(default)]
        message: Arc<str>,
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
        /// Its run.
        run: RunId,
        /// Which attempt: 1, 2, ….
        attempt: u32,
        /// The tool call it serves.
        call_id: Option<CallId>,
        /// The step of a workflow it serves.
        step: Option<Arc<str>>,
        /// SHA-256 of what it is asked, in hex.
        input_digest: Arc<str>,
        /// What its run may use of the caller's budget.
        allowance: Box<Allowance>,
    }
}

payload! {
    /// Another operator came back.
    OperatorReturned {
        /// Its name.
        operator: Arc<str>,
        /// Its run.
        run: RunId,
        /// How it ended.
        outcome: Outcome,
        /// The code of the failure or stop; null exactly when completed.
        reason: Option<Code>,
        /// What it used, with all that it dispatched itself.
        usage: Usage,
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
