//! What surrounds the loop: hooks, memory, guards, budgets, behaviours, other operators.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::payload;
use crate::code::Code;
use crate::id::{CallId, RunId};

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
