use std::sync::Arc;
use std::time::Duration;

use layer0::code;
use layer0::error::{BoxError, EnvError, OperatorError};
use layer0::failure::{Effect, Facts, Failure, InnerError, Retry, Seconds, stated_facts};
use thiserror::Error;

/// The reason that a tool call failed. The model reads it as the call's result; it never ends a run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ToolError {
    /// A person denied the call.
    ///
    /// Retry: never. Effect: none.
    #[error("denied by {by}: {reason}")]
    #[non_exhaustive]
    ApprovalDenied {
        /// Name of the person.
        by: String,
        /// Reason that the person gave.
        reason: String,
    },
    /// The run was stopped before the call was done.
    ///
    /// Retry: never. Effect: unknown.
    #[error("cancelled")]
    Cancelled,
    /// The tool ran and could not do its work because of this error. The model reads the error.
    ///
    /// Retry: never. Effect: unknown.
    #[error("tool could not do its work")]
    Caused(#[source] BoxError),
    /// Another variant, with details from the tool's author.
    ///
    /// Retry: as the author says, else as the error inside. Effect: as the author says, else as the error
    /// inside.
    #[error("tool reported{}", AuthorCode(code.as_deref()))]
    #[non_exhaustive]
    Detailed {
        /// The author's own code, such as `SQL_ERROR`.
        code: Option<Arc<str>>,
        /// The author's retry answer.
        retry: Option<Retry>,
        /// The author's statement whether the call acted.
        effect: Option<Effect>,
        /// A line for the model below the error.
        note: Option<Arc<str>>,
        /// Output of the tool in addition to the error; stored with the error, and not shown.
        output: Option<Arc<str>>,
        /// The error.
        #[source]
        error: InnerError<ToolError>,
    },
    /// The call runs only once, and another call with its key has an unknown outcome. This call did not run.
    ///
    /// Retry: never. Effect: none.
    #[error("not run: {0}")]
    DoneElsewhere(String),
    /// The environment of the tool blocked it, or could not be set up.
    ///
    /// Retry: as the environment's error says. Effect: as the environment's error says.
    #[error("environment failed")]
    Environment(#[source] InnerError<EnvError>),
    /// The tool ran and reported an error.
    ///
    /// Retry: never. Effect: unknown.
    #[error("{0}")]
    ExecutionFailed(String),
    /// The process died while the tool ran, and it is not safe to repeat.
    ///
    /// Retry: never. Effect: unknown.
    #[error("interrupted: may already have acted")]
    Interrupted,
    /// The arguments were not JSON or did not match the schema.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid input: {0}")]
    InvalidInput(String),
    /// The output did not match the tool's declared schema.
    ///
    /// Retry: never. Effect: happened.
    #[error("invalid output: {0}")]
    InvalidOutput(String),
    /// There is no tool of this name.
    ///
    /// Retry: never. Effect: none.
    #[error("tool `{0}` not found")]
    NotFound(String),
    /// The tool is not available.
    ///
    /// Retry: never. Effect: none.
    #[error("not available: {0}")]
    Unavailable(String),
    /// Any other error.
    ///
    /// Retry: never. Effect: unknown.
    #[error("tool failed in an unclassified way")]
    Other(#[from] BoxError),
    /// The tool's code panicked; the panic was caught.
    ///
    /// Retry: never. Effect: unknown.
    #[error("panicked: {0}")]
    Panicked(String),
    /// Policy did not grant what the call needs.
    ///
    /// Retry: never. Effect: none.
    #[error("tool `{tool}` requires `{capability}`")]
    #[non_exhaustive]
    PermissionDenied {
        /// The tool.
        tool: String,
        /// The capability that was not granted.
        capability: String,
    },
    /// The identical call failed too often in a row and was not run again.
    ///
    /// Retry: never. Effect: none.
    #[error("not run: failed {count} times with `{code}`")]
    #[non_exhaustive]
    RepeatedFailure {
        /// Code of the failures.
        code: Arc<str>,
        /// Number of consecutive failures.
        count: u32,
    },
    /// A gate hook kept the call from running.
    ///
    /// Retry: never. Effect: none.
    #[error("skipped by hook `{hook}`: {reason}")]
    #[non_exhaustive]
    Skipped {
        /// The hook.
        hook: String,
        /// Reason that the hook gave.
        reason: String,
    },
    /// The tool did not finish in time and was stopped.
    ///
    /// Retry: with backoff. Effect: unknown.
    #[error("timed out after {}", Seconds(*after))]
    #[non_exhaustive]
    Timeout {
        /// The limit.
        after: Duration,
    },
}

/// The fields of [`ToolError::Detailed`] until they are put into it.
struct Details {
    code: Option<Arc<str>>,
    retry: Option<Retry>,
    effect: Option<Effect>,
    note: Option<Arc<str>>,
    output: Option<Arc<str>>,
    error: InnerError<ToolError>,
}

impl From<Details> for ToolError {
    fn from(Details { code, retry, effect, note, output, error }: Details) -> Self {
        Self::Detailed { code, retry, effect, note, output, error }
    }
}

/// Prints the author's code after a space, or a text for its absence.
struct AuthorCode<'a>(Option<&'a str>);

impl std::fmt::Display for AuthorCode<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(code) => write!(f, " `{code}`"),
            None => f.write_str(" an error"),
        }
    }
}

impl ToolError {
    /// Returns [`ToolError::ApprovalDenied`].
    pub fn approval_denied(by: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::ApprovalDenied { by: by.into(), reason: reason.into() }
    }

    /// Returns [`ToolError::Skipped`].
    pub fn skipped_by(hook: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Skipped { hook: hook.into(), reason: reason.into() }
    }

    /// Returns [`ToolError::PermissionDenied`].
    pub fn permission_denied(tool: impl Into<String>, capability: impl Into<String>) -> Self {
        Self::PermissionDenied { tool: tool.into(), capability: capability.into() }
    }

    /// Returns [`ToolError::RepeatedFailure`].
    pub fn repeated_failure(code: impl Into<Arc<str>>, count: u32) -> Self {
        Self::RepeatedFailure { code: code.into(), count }
    }

    /// Returns [`ToolError::Timeout`].
    #[must_use]
    pub const fn timeout(after: Duration) -> Self {
        Self::Timeout { after }
    }

    /// Makes the error of an own failure type, with its code, its retry answer and its effect. An error that a tool
    /// returns without it has the facts of [`ToolError::Caused`].
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use backstop_tool::ToolError;
    /// use layer0::failure::{Effect, Facts, Failure, Retry};
    ///
    /// /// The shop takes no orders for the moment.
    /// #[derive(Debug, thiserror::Error)]
    /// #[error("the shop is busy")]
    /// struct Busy;
    ///
    /// impl Failure for Busy {
    ///     fn facts(&self) -> Facts {
    ///         Facts::from_hint("shop.busy", Some(Duration::from_millis(20)), Effect::None)
    ///     }
    /// }
    ///
    /// let error = ToolError::from_failure(Busy);
    /// assert_eq!(error.author_code().map(|code| &**code), Some("shop.busy"));
    /// assert_eq!(error.retry(), Retry::After(Duration::from_millis(20)));
    /// assert_eq!(error.effect(), Effect::None);
    /// ```
    pub fn from_failure(failure: impl Failure + Send + Sync + 'static) -> Self {
        let facts = stated_facts(&failure);
        Self::Caused(failure.into())
            .with_code(facts.code)
            .with_retry(facts.retry)
            .with_effect(facts.effect)
    }

    /// Adds the author's own code.
    #[must_use]
    pub fn with_code(self, code: impl Into<Arc<str>>) -> Self {
        let mut details = self.into_details();
        details.code = Some(code.into());
        details.into()
    }

    /// Adds a line that the model reads below the error, such as what the tool may reach. Of a longer
    /// one, the first 500 characters are shown, and that it is cut.
    #[must_use]
    pub fn with_note(self, note: impl Into<Arc<str>>) -> Self {
        let mut details = self.into_details();
        details.note = Some(note.into());
        details.into()
    }

    /// Adds output of the tool, which is stored with the error.
    #[must_use]
    pub fn with_output(self, output: impl Into<Arc<str>>) -> Self {
        let mut details = self.into_details();
        details.output = Some(output.into());
        details.into()
    }

    /// Sets whether a retry can help, and how long to wait first. The runtime waits at least as long as the backoff of
    /// its retry policy, with jitter. It repeats only after [`Retry::After`], and only a call that is idempotent or had
    /// no effect ([`ToolError::with_effect`]).
    #[must_use]
    pub fn with_retry(self, retry: Retry) -> Self {
        let mut details = self.into_details();
        details.retry = Some(retry);
        details.into()
    }

    /// Sets whether the call acted, if the tool knows better than the class of the error.
    #[must_use]
    pub fn with_effect(self, effect: Effect) -> Self {
        let mut details = self.into_details();
        details.effect = Some(effect);
        details.into()
    }

    fn into_details(self) -> Details {
        match self {
            Self::Detailed { code, retry, effect, note, output, error } => {
                Details { code, retry, effect, note, output, error }
            }
            error => Details {
                code: None,
                retry: None,
                effect: None,
                note: None,
                output: None,
                error: error.into(),
            },
        }
    }

    /// Returns the error without the author's additions.
    #[must_use]
    pub fn kind(&self) -> &Self {
        match self {
            Self::Detailed { error, .. } => error.kind(),
            error => error,
        }
    }

    /// Returns the author's own code.
    #[must_use]
    pub const fn author_code(&self) -> Option<&Arc<str>> {
        match self {
            Self::Detailed { code, .. } => code.as_ref(),
            _ => None,
        }
    }

    /// Returns the line for the model below the error.
    #[must_use]
    pub const fn note(&self) -> Option<&Arc<str>> {
        match self {
            Self::Detailed { note, .. } => note.as_ref(),
            _ => None,
        }
    }

    /// Returns the output of the tool that is stored with the error.
    #[must_use]
    pub const fn output(&self) -> Option<&Arc<str>> {
        match self {
            Self::Detailed { output, .. } => output.as_ref(),
            _ => None,
        }
    }

    /// Returns whether another attempt now, with backoff, can help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        Failure::retry(self).is_retryable()
    }
}

impl Failure for ToolError {
    fn facts(&self) -> Facts {
        match self {
            Self::ApprovalDenied { .. } => Facts::never(code::TOOL_APPROVAL_DENIED, Effect::None),
            Self::Cancelled => Facts::never(code::TOOL_CANCELLED, Effect::Unknown),
            Self::Caused(_) => Facts::never(code::TOOL_EXECUTION_FAILED, Effect::Unknown),
            Self::Detailed { retry, effect, error, .. } => {
                let facts = error.facts();
                let facts = retry.map_or(facts, |retry| facts.with_retry(retry).with_later(retry));
                effect.map_or(facts, |effect| facts.with_effect(effect))
            }
            Self::DoneElsewhere(_) => Facts::never(code::TOOL_DONE_ELSEWHERE, Effect::None),
            Self::Environment(error) => error.facts(),
            Self::ExecutionFailed(_) => Facts::never(code::TOOL_EXECUTION_FAILED, Effect::Unknown),
            Self::Interrupted => Facts::never(code::TOOL_INTERRUPTED, Effect::Unknown),
            Self::InvalidInput(_) => Facts::never(code::TOOL_INVALID_INPUT, Effect::None),
            Self::InvalidOutput(_) => Facts::never(code::TOOL_INVALID_OUTPUT, Effect::Happened),
            Self::NotFound(_) => Facts::never(code::TOOL_NOT_FOUND, Effect::None),
            Self::Other(_) => Facts::never(code::TOOL_OTHER, Effect::Unknown),
            Self::Panicked(_) => Facts::never(code::TOOL_PANICKED, Effect::Unknown),
            Self::PermissionDenied { .. } => {
                Facts::never(code::TOOL_PERMISSION_DENIED, Effect::None)
            }
            Self::RepeatedFailure { .. } => Facts::never(code::TOOL_REPEATED_FAILURE, Effect::None),
            Self::Skipped { .. } => Facts::never(code::TOOL_SKIPPED, Effect::None),
            Self::Timeout { .. } => Facts::backoff(code::TOOL_TIMEOUT, Effect::Unknown),
            Self::Unavailable(_) => Facts::never(code::TOOL_UNAVAILABLE, Effect::None),
        }
    }
}

impl From<EnvError> for ToolError {
    fn from(error: EnvError) -> Self {
        Self::Environment(error.into())
    }
}

impl From<ToolError> for OperatorError {
    fn from(error: ToolError) -> Self {
        Self::from_failure(error)
    }
}
