//! Causes of failed runs.

use std::sync::Arc;

use layer0::failure::RetryFacts;
use layer0::{Code, code};
use serde::{Deserialize, Serialize};

use crate::text;

/// The cause of a failed run, as far as the machine knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FailureCause {
    /// A gate stopped the run.
    Aborted {
        /// Name of the hook.
        hook: Arc<str>,
        /// Reason that it gave.
        reason: Arc<str>,
    },
    /// The process of the run died again and again at the same step.
    CrashLoop {
        /// Steps that were open each time.
        open: Arc<str>,
    },
    /// A hook that must not fail failed; the driver has the live error.
    HookRejected {
        /// Name of the hook.
        hook: Arc<str>,
        /// Message of the failure.
        message: Arc<str>,
    },
    /// The model call failed; the driver has the live error.
    Model {
        /// Code of the failure.
        reason: Code,
        /// The failure and its causes, outermost first.
        chain: Vec<String>,
        /// Its retry answer, if its code does not determine that.
        #[serde(default)]
        retry: Option<RetryFacts>,
    },
    /// The input cannot be answered.
    InputInvalid(Arc<str>),
    /// The model's answers were unusable twice in a row.
    InvalidResponse(Arc<str>),
    /// The context was used up while the model answered.
    ContextExceeded,
    /// The model requested the same tools again and again.
    Loop {
        /// The signature of the batch.
        signature: Arc<str>,
        /// Number of requests.
        count: u32,
        /// Maximum number of requests.
        limit: u32,
    },
    /// The last allowed model call requested tools.
    MaxIterations(u32),
    /// The final answer did not fit the schema twice.
    OutputInvalid(Arc<str>),
    /// The model requested too many tools at once.
    ParallelToolLimit {
        /// Number of requested tools.
        count: usize,
        /// Maximum number of tools.
        limit: u32,
    },
    /// The model repeated the same text without requesting anything new.
    Stagnation {
        /// FNV-1a 64 of the text, 16 hex digits.
        text_hash: Arc<str>,
        /// Number of repetitions.
        count: u32,
        /// Maximum number of repetitions.
        limit: u32,
    },
}

impl FailureCause {
    /// Returns the code of the failure.
    #[must_use]
    pub fn code(&self) -> Code {
        reason_and_chain(self).0
    }

    /// Returns the failure's retry answer, if its code does not determine that.
    #[must_use]
    pub const fn retry_facts(&self) -> Option<RetryFacts> {
        match self {
            Self::Model { retry, .. } => *retry,
            _ => None,
        }
    }

    /// Returns the messages for people of the failure and its causes, outermost first.
    #[must_use]
    pub fn chain(&self) -> Vec<String> {
        reason_and_chain(self).1
    }
}

/// Returns the code of a failure, and its messages for people with those of its causes.
fn reason_and_chain(failure: &FailureCause) -> (Code, Vec<String>) {
    let (code, text) = match failure {
        FailureCause::Model { reason, chain, .. } => return (reason.clone(), chain.clone()),
        FailureCause::Aborted { hook, reason } => {
            (code::HOOK_ABORTED, text::describe_abort(hook, reason))
        }
        FailureCause::HookRejected { hook, message } => {
            let chain = vec![text::hook_rejected(hook), message.to_string()];
            return (Code::new(code::HOOK_REJECTED), chain);
        }
        FailureCause::CrashLoop { open } => (code::RUN_CRASH_LOOP, text::crash_loop(open)),
        FailureCause::InputInvalid(why) => (code::INPUT_INVALID, text::input_invalid(why)),
        FailureCause::InvalidResponse(why) => {
            (code::PROVIDER_INVALID_RESPONSE, layer0::text::invalid_response(why))
        }
        FailureCause::ContextExceeded => (
            code::PROVIDER_CONTEXT_OVERFLOW,
            layer0::text::context_overflow(text::CONTEXT_EXCEEDED),
        ),
        FailureCause::Loop { count, limit, .. } => {
            (code::GUARD_LOOP_DETECTED, text::loop_detected(*count, *limit))
        }
        FailureCause::MaxIterations(max) => (code::GUARD_MAX_ITERATIONS, text::max_iterations(max)),
        FailureCause::OutputInvalid(why) => {
            (code::OUTPUT_UNSERIALIZABLE, text::output_invalid(why))
        }
        FailureCause::ParallelToolLimit { count, limit } => {
            (code::GUARD_PARALLEL_TOOL_LIMIT, text::parallel_tool_limit(*count, limit))
        }
        FailureCause::Stagnation { count, limit, .. } => {
            (code::GUARD_STAGNATION, text::stagnation(count, limit))
        }
    };
    (Code::new(code), vec![text])
}
