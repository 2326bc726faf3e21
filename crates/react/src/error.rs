use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use backstop_event_log::LogError;
use backstop_provider::{ProviderError, facts_by_code};
use backstop_react_machine::{FailureCause, text};
use layer0::code;
use layer0::error::{BoxError, EnvError, OperatorError, OrchError};
use layer0::failure::{Chain, Effect, Facts, Failure};
use layer0::id::{RunId, SessionId};
use layer0::message::Transcript;
use layer0::usage::Usage;
use thiserror::Error;

use crate::history::RequestError;
use crate::hook::HookError;

/// Text of the error around a provider's.
const MODEL_FAILED: &str = "model call failed";

/// A failure that ends a run.
///
/// There is no variant for tools, policy, memory or events: those never end a run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A gate aborted the run.
    ///
    /// Retry: never. Effect: unknown.
    #[error("{}", text::describe_abort(hook, reason))]
    #[non_exhaustive]
    Aborted {
        /// The hook.
        hook: String,
        /// The reason that the gate gave.
        reason: String,
    },
    /// The process that ran the run died three times without a step being completed in between.
    ///
    /// Retry: never. Effect: unknown.
    #[error("{}", text::crash_loop(open))]
    #[non_exhaustive]
    CrashLoop {
        /// The open work at each crash, for people.
        open: String,
    },
    /// A hook failed whose failure ends the run.
    ///
    /// Retry: never. Effect: unknown.
    #[error("{}", text::hook_rejected(hook))]
    #[non_exhaustive]
    HookRejected {
        /// The hook.
        hook: String,
        /// The failure of the hook.
        #[source]
        source: HookError,
    },
    /// The input cannot be answered.
    ///
    /// Retry: never. Effect: none.
    #[error("{}", text::input_invalid(_0))]
    InputValidation(String),
    /// Backstop broke one of its own rules.
    ///
    /// Retry: never. Effect: unknown.
    #[error("internal error")]
    Internal(#[source] BoxError),
    /// The model call failed after the retry stack gave up.
    ///
    /// Retry: as the provider's error says. Effect: as the provider's error says.
    #[error("{MODEL_FAILED}")]
    Llm(#[from] ProviderError),
    /// The request cannot be run; nothing was started.
    ///
    /// Retry: as the request's error says. Effect: as it says.
    #[error("invalid request")]
    InvalidRequest(#[from] RequestError),
    /// The model requested the same tool calls too often.
    ///
    /// Retry: never. Effect: unknown.
    #[error("{}", text::loop_detected(count, limit))]
    #[non_exhaustive]
    LoopDetected {
        /// The batch: name and hash of the arguments of each call, sorted, joined by `|`.
        signature: String,
        /// The number of requests.
        count: usize,
        /// The allowed number.
        limit: usize,
    },
    /// The last allowed model call still requested tools.
    ///
    /// Retry: never. Effect: unknown.
    #[error("{}", text::max_iterations(_0))]
    MaxIterationsReached(usize),
    /// The log could not be read, claimed or written, it has a run with the id, or another run is open in the session;
    /// nothing happened.
    ///
    /// Retry: as the log's error says. Effect: none.
    #[error("the run cannot begin")]
    NotStarted(#[source] LogError),
    /// The answer does not fit the requested schema, for the second time.
    ///
    /// Retry: never. Effect: unknown.
    #[error("{}", text::output_invalid(_0))]
    OutputSerialization(String),
    /// The model requested more tool calls at once than allowed; none of them ran.
    ///
    /// Retry: never. Effect: unknown.
    #[error("{}", text::parallel_tool_limit(count, limit))]
    #[non_exhaustive]
    ParallelToolLimitExceeded {
        /// The number of requested calls.
        count: usize,
        /// The allowed number of calls.
        limit: usize,
    },
    /// The run failed in another process; the failure is read from its record.
    ///
    /// Retry: as the record's failure says. Effect: as it says.
    #[error("{}", .0.wrapper)]
    Recorded(#[source] LoggedFailure),
    /// The model returned the same text too often, the last time without a tool call that is new to the run.
    ///
    /// Retry: never. Effect: unknown.
    #[error("{}", text::stagnation(count, max_steps))]
    #[non_exhaustive]
    StagnationDetected {
        /// FNV-1a 64 of the text, 16 hex digits.
        repeated_text_hash: String,
        /// The number of times the model returned the text.
        count: usize,
        /// The allowed number.
        max_steps: usize,
    },
    /// The durable log could not be written; nothing was executed after that. At the first event of a run it is
    /// [`AgentError::NotStarted`], unless the event may have been written.
    ///
    /// Retry: as the log's error says. Effect: unknown.
    #[error("run log could not be written")]
    Storage(#[from] LogError),
}

impl AgentError {
    /// Makes [`AgentError::Aborted`].
    pub fn hook_aborted(hook: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Aborted { hook: hook.into(), reason: reason.into() }
    }

    /// Makes [`AgentError::CrashLoop`].
    pub fn crash_loop(open: impl Into<String>) -> Self {
        Self::CrashLoop { open: open.into() }
    }

    /// Makes [`AgentError::HookRejected`].
    pub fn hook_rejected(hook: impl Into<String>, source: HookError) -> Self {
        Self::HookRejected { hook: hook.into(), source }
    }

    /// Makes [`AgentError::LoopDetected`].
    pub fn loop_detected(signature: impl Into<String>, count: usize, limit: usize) -> Self {
        Self::LoopDetected { signature: signature.into(), count, limit }
    }

    /// Makes [`AgentError::StagnationDetected`].
    pub fn stagnation(text_hash: impl Into<String>, count: usize, max_steps: usize) -> Self {
        Self::StagnationDetected { repeated_text_hash: text_hash.into(), count, max_steps }
    }

    /// Makes [`AgentError::ParallelToolLimitExceeded`].
    #[must_use]
    pub const fn parallel_tool_limit(count: usize, limit: usize) -> Self {
        Self::ParallelToolLimitExceeded { count, limit }
    }

    /// Returns the error that the record describes: the model's own failure where this one only wraps it.
    ///
    /// ```
    /// use backstop_provider::ProviderError;
    /// use backstop_react::AgentError;
    /// use layer0::failure::chain;
    ///
    /// let error = AgentError::Llm(ProviderError::AuthFailed("no key".into()));
    /// assert_eq!(chain(&error), ["model call failed", "authentication failed: no key"]);
    /// assert_eq!(chain(error.as_cause()), ["authentication failed: no key"]);
    /// ```
    #[must_use]
    pub fn as_cause(&self) -> &(dyn std::error::Error + 'static) {
        match self {
            Self::Llm(error) => error,
            Self::Recorded(recorded) if recorded.is_of_model => recorded,
            error => error,
        }
    }

    /// Converts a log error from before the start of the run.
    pub(crate) fn before_the_start(self) -> Self {
        match self {
            Self::Storage(error) => Self::NotStarted(error),
            other => other,
        }
    }

    /// Returns whether another attempt now, with backoff, can help; false once the retries gave up.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        Failure::retry(self).is_retryable()
    }

    /// Returns whether the failure may have passed when the work is begun anew later, also after the retries gave up.
    /// A job queue asks this.
    #[must_use]
    pub fn may_pass_later(&self) -> bool {
        Failure::may_pass_later(self)
    }
}

impl Failure for AgentError {
    fn facts(&self) -> Facts {
        match self {
            Self::Aborted { .. } => Facts::never(code::HOOK_ABORTED, Effect::Unknown),
            Self::CrashLoop { .. } => Facts::never(code::RUN_CRASH_LOOP, Effect::Unknown),
            Self::HookRejected { .. } => Facts::never(code::HOOK_REJECTED, Effect::Unknown),
            Self::InputValidation(_) => Facts::never(code::INPUT_INVALID, Effect::None),
            Self::Internal(_) => Facts::never(code::INTERNAL, Effect::Unknown),
            Self::InvalidRequest(error) => error.facts(),
            Self::Llm(error) => error.facts(),
            Self::LoopDetected { .. } => Facts::never(code::GUARD_LOOP_DETECTED, Effect::Unknown),
            Self::MaxIterationsReached(_) => {
                Facts::never(code::GUARD_MAX_ITERATIONS, Effect::Unknown)
            }
            Self::NotStarted(error) => error.facts().with_effect(Effect::None),
            Self::OutputSerialization(_) => {
                Facts::never(code::OUTPUT_UNSERIALIZABLE, Effect::Unknown)
            }
            Self::ParallelToolLimitExceeded { .. } => {
                Facts::never(code::GUARD_PARALLEL_TOOL_LIMIT, Effect::Unknown)
            }
            Self::Recorded(recorded) => recorded.facts(),
            Self::StagnationDetected { .. } => {
                Facts::never(code::GUARD_STAGNATION, Effect::Unknown)
            }
            Self::Storage(error @ (LogError::Lost(_) | LogError::LostTail { .. })) => {
                error.facts().with_effect(Effect::Unknown)
            }
            Self::Storage(error) => {
                error.facts().with_code(code::LOG_APPEND_FAILED).with_effect(Effect::Unknown)
            }
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Llm(error) => error.hint(),
            Self::NotStarted(error) | Self::Storage(error) => error.hint(),
            Self::InvalidRequest(error) => Some(error.hint().into()),
            Self::Aborted { .. }
            | Self::CrashLoop { .. }
            | Self::HookRejected { .. }
            | Self::InputValidation(_)
            | Self::Internal(_)
            | Self::LoopDetected { .. }
            | Self::MaxIterationsReached(_)
            | Self::OutputSerialization(_)
            | Self::ParallelToolLimitExceeded { .. }
            | Self::Recorded(_)
            | Self::StagnationDetected { .. } => None,
        }
    }
}

impl From<AgentError> for OperatorError {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Llm(error) => Self::model(error),
            AgentError::Recorded(recorded) if recorded.is_of_model => Self::model(recorded),
            error => Self::from_failure(error),
        }
    }
}

impl From<AgentError> for OrchError {
    fn from(error: AgentError) -> Self {
        Self::OperatorError(error.into())
    }
}

impl From<AgentError> for EnvError {
    fn from(error: AgentError) -> Self {
        Self::OperatorError(error.into())
    }
}

/// A recorded failure of a model or a hook: its code, its retry answer, its text and those of its causes.
///
/// Where the record has no retry answer, the answer is that of the code.
///
/// Retry: as the record says. Effect: as it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedFailure {
    facts: Box<Facts>,
    is_of_model: bool,
    /// Text of the enclosing error, as in the process where the run failed.
    wrapper: Box<str>,
    text: Box<str>,
    cause: Option<Box<LoggedFailure>>,
}

impl LoggedFailure {
    pub(crate) fn new(cause: &FailureCause) -> Self {
        let mut texts = VecDeque::from(cause.chain());
        let (wrapper, row): (Box<str>, _) = match cause {
            FailureCause::Model { reason, .. } => {
                (MODEL_FAILED.into(), facts_by_code(reason.as_str()))
            }
            _ => (texts.pop_front().unwrap_or_default().into(), None),
        };
        let is_of_model = matches!(cause, FailureCause::Model { .. });
        let mut facts = row.unwrap_or_else(|| {
            let entry = code::find(cause.code().as_str());
            Facts::never(entry.map_or(code::INTERNAL, |entry| entry.code), Effect::Unknown)
        });
        if let Some(recorded) = cause.retry_facts() {
            facts = facts.with_retry_facts(recorded);
        }
        let facts = Box::new(facts);
        let failure = |cause, text| Self {
            facts: Box::clone(&facts),
            is_of_model,
            wrapper: wrapper.clone(),
            text,
            cause,
        };
        let last = failure(None, texts.pop_back().unwrap_or_default().into());
        texts.into_iter().rfold(last, |inner, text| failure(Some(Box::new(inner)), text.into()))
    }
}

impl fmt::Display for LoggedFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for LoggedFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

impl Failure for LoggedFailure {
    fn facts(&self) -> Facts {
        *self.facts
    }
}

/// A failed run, with everything it had done until then.
///
/// Prints as `run … failed`; with `{:#}` as the whole chain on one line; with `{:?}`, as at the end of
/// `main`, with its code and a hint too.
///
/// Retry: as the error inside says. Effect: as the error inside says, happened where a tool acted, none where a guard
/// stopped a run before any call.
#[non_exhaustive]
pub struct RunFailure {
    /// The run; its record stays readable under this id.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionId,
    /// The failure.
    pub error: AgentError,
    /// The usage of the run.
    pub usage: Usage,
    /// The transcript until then; every call is answered, unless the log failed in between.
    pub transcript: Transcript,
    /// The last text of the model.
    pub partial: Arc<str>,
    /// Whether a tool that is not safe to repeat ran.
    pub(crate) acted: bool,
}

impl RunFailure {
    /// Makes the failure of a run whose task ended before the run did.
    pub(crate) fn from_lost_task(run_id: RunId, session: SessionId) -> Self {
        let why = "the run's task panicked, or its runtime was shut down";
        Self {
            run_id,
            session,
            error: AgentError::Internal(why.into()),
            usage: Usage::default(),
            transcript: Transcript::default(),
            partial: Arc::default(),
            acted: true,
        }
    }

    /// Returns the code of the failure.
    #[must_use]
    pub fn code(&self) -> &'static str {
        Failure::code(self)
    }

    /// Returns whether another attempt now, with backoff, can help; false once the retries gave up.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        Failure::retry(self).is_retryable()
    }

    /// Returns whether the failure may have passed when the work is begun anew later, also after the retries gave up.
    /// A job queue asks this.
    #[must_use]
    pub fn may_pass_later(&self) -> bool {
        Failure::may_pass_later(self)
    }

    /// Returns how a person can fix it: the failure's own hint, else the advice for its code.
    #[must_use]
    pub fn hint(&self) -> Cow<'_, str> {
        layer0::failure::hint(self)
    }
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run `{}` failed", self.run_id)?;
        if f.alternate() {
            write!(f, ": {}", Chain(&self.error))?;
        }
        Ok(())
    }
}

/// Without the transcript, which may be long: this is what `main` prints.
impl fmt::Debug for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = layer0::failure::hint(&self.error);
        write!(f, "{self:#} ({})\n  hint: {hint}", self.error.code())
    }
}

impl std::error::Error for RunFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// The facts of the error; where a tool acted, the effect is that the run acted, and where a guard stopped a run that
/// had called no tool, there is none.
impl Failure for RunFailure {
    fn facts(&self) -> Facts {
        let facts = self.error.facts();
        // A guard's own effect is that of the calls before it.
        let is_before_any_call = facts.code.starts_with("guard.") && self.usage.tool_calls == 0;
        if self.acted {
            facts.with_effect(Effect::Happened)
        } else if is_before_any_call {
            facts.with_effect(Effect::None)
        } else {
            facts
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        self.error.hint()
    }
}

impl From<RunFailure> for OrchError {
    fn from(failure: RunFailure) -> Self {
        Self::OperatorError(failure.into())
    }
}

impl From<RunFailure> for EnvError {
    fn from(failure: RunFailure) -> Self {
        Self::OperatorError(failure.into())
    }
}

impl From<RunFailure> for OperatorError {
    fn from(failure: RunFailure) -> Self {
        match failure.error {
            AgentError::Llm(_) => Self::model(failure),
            AgentError::Recorded(ref recorded) if recorded.is_of_model => Self::model(failure),
            _ => Self::from_failure(failure),
        }
    }
}

/// Makes the error of a broken invariant.
pub(crate) fn internal(what: String) -> AgentError {
    AgentError::Internal(what.into())
}
