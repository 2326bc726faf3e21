//! Why a run failed.

use std::sync::Arc;

use layer0::failure::RetryFacts;
use layer0::{Code, code};
use serde::{Deserialize, Serialize};

use crate::text;

/// Why a run failed, as the machine knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FailureCause {
    /// A gate said that the run must not go on.
    Aborted {
        /// The hook.
        hook: Arc<str>,
        /// Why.
        reason: Arc<str>,
    },
    /// The process that ran it died again and again, at the same step.
    CrashLoop {
        /// What was open each time.
        open: Arc<str>,
    },
    /// A hook that must not fail failed; the live error is on the driver's side.
    HookRejected {
        /// The hook.
        hook: Arc<str>,
        /// What happened.
        message: Arc<str>,
    },
    /// The model call failed; the live error is on the driver's side.
    Model {
        /// The failure's code.
        reason: Code,
        /// The failure and its causes, outermost first.
        chain: Vec<String>,
        /// What it says of trying again, where its code does not.
        #[serde(default)]
        retry: Option<RetryFacts>,
    },
    /// The input cannot be answered.
    InputInvalid(Arc<str>),
    /// The model's answers were unusable twice in a row.
    InvalidResponse(Arc<str>),
    /// The context was used up while the model answered.
    ContextExceeded,
    /// The model asked for the same tools again and again.
    Loop {
        /// The signature of the batch.
        signature: Arc<str>,
        /// How often it asked.
        count: u32,
        /// How often is allowed.
        limit: u32,
    },
    /// The last allowed model call asked for tools.
    MaxIterations(u32),
    /// The final answer did not fit the schema twice.
    OutputInvalid(Arc<str>),
    /// The model asked for too many tools at once.
    ParallelToolLimit {
        /// How many it asked for.
        count: usize,
        /// How many are allowed.
        limit: u32,
    },
    /// The model said the same text again and again without asking for anything new.
    Stagnation {
        /// FNV-1a 64 of the text, 16 hex digits.
        text_hash: Arc<str>,
        /// How often it said it.
        count: u32,
        /// How often is allowed.
        limit: u32,
    },
}

impl FailureCause {
    /// Returns the code of the failure.
    #[must_use]
    pub fn code(&self) -> Code {
        reason_and_chain(self).0
    }

    /// Returns what the failure says of trying again, where its code does not.
    #[must_use]
    pub const fn retry_facts(&self) -> Option<RetryFacts> {
        match self {
            Self::Model { retry, .. } => *retry,
            _ => None,
        }
    }

    /// Returns the failure for people, and its causes, outermost first.
    #[must_use]
    pub fn chain(&self) -> Vec<String> {
        reason_and_chain(self).1
    }
}

/// Returns the code of a failure, and the failure with its causes for people.
fn reason_and_chain(failure: &FailureCause) -> (Code, Vec<String>) {
    let (code, text) = match failure {
        FailureCause::Model { reason, chain, .. } => return (reason.clone(), chain.clone()),
        FailureCause::Aborted { hook, reason } => (code::HOOK_ABORTED, text::aborted(hook, reason)),
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
