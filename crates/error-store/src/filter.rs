use layer0::Timestamp;
use layer0::id::{ResultId, RunId, SessionId};

use crate::{ErrorRecord, Origin};

/// A filter for listing errors. All conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorFilter {
    /// Only errors of this session.
    pub session: Option<SessionId>,
    /// Only errors that one of these runs met, even if an earlier run of the session met them first; all errors if
    /// `None`.
    pub runs: Option<Vec<RunId>>,
    /// Only errors of this tool.
    pub tool: Option<String>,
    /// Only errors with this code of the catalogue, or with a code of a family: `tool.*`.
    pub reason: Option<String>,
    /// Only errors first seen at this time or later.
    pub from: Option<Timestamp>,
    /// Only errors first seen before this time.
    pub to: Option<Timestamp>,
    /// Only errors whose id has this prefix.
    pub id_prefix: Option<String>,
    /// At most this many.
    pub limit: Option<u32>,
}

impl ErrorFilter {
    /// Lists all errors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only errors of this session.
    #[must_use]
    pub fn session(mut self, session: impl Into<SessionId>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Only errors that this run met.
    #[must_use]
    pub fn run(mut self, run: impl Into<RunId>) -> Self {
        self.runs = Some(vec![run.into()]);
        self
    }

    /// Only errors that one of these runs met.
    #[must_use]
    pub fn runs(mut self, runs: impl IntoIterator<Item = impl Into<RunId>>) -> Self {
        self.runs = Some(runs.into_iter().map(Into::into).collect());
        self
    }

    /// Only errors of this tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Into<String>) -> Self {
        self.tool = Some(tool.into());
        self
    }

    /// Only errors with this code of the catalogue, or with a code of a family: `tool.*`.
    #[must_use]
    pub fn reason(mut self, code: impl Into<String>) -> Self {
        self.reason = Some(code.into());
        self
    }

    /// Only errors first seen at this time or later.
    #[must_use]
    pub const fn from(mut self, from: Timestamp) -> Self {
        self.from = Some(from);
        self
    }

    /// Only errors first seen before this time.
    #[must_use]
    pub const fn to(mut self, to: Timestamp) -> Self {
        self.to = Some(to);
        self
    }

    /// Only errors whose id has this prefix.
    #[must_use]
    pub fn id_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.id_prefix = Some(prefix.into());
        self
    }

    /// At most this many.
    #[must_use]
    pub const fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Returns whether an error meets the conditions on the error itself. The conditions on runs and the limit are not
    /// checked here.
    #[must_use]
    pub fn matches(&self, error: &ErrorRecord) -> bool {
        let same = |wanted: &Option<String>, text: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == text)
        };
        self.session.as_ref().is_none_or(|session| session == error.session())
            && same(&self.tool, error.tool())
            && self.reason.as_deref().is_none_or(|wanted| error.reason().matches(wanted))
            && self.from.is_none_or(|from| error.at() >= from)
            && self.to.is_none_or(|to| error.at() < to)
            && self.id_prefix.as_deref().is_none_or(|it| error.id().as_str().starts_with(it))
    }
}

/// A filter for listing results. All conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResultFilter {
    /// Only results of this session.
    pub session: Option<SessionId>,
    /// Only results of this run.
    pub run: Option<RunId>,
    /// Only results of this tool.
    pub tool: Option<String>,
    /// Only results stored at this time or later.
    pub from: Option<Timestamp>,
    /// Only results stored before this time.
    pub to: Option<Timestamp>,
    /// Only results whose id has this prefix.
    pub id_prefix: Option<String>,
    /// At most this many.
    pub limit: Option<u32>,
}

impl ResultFilter {
    /// Lists all results.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only results of this session.
    #[must_use]
    pub fn session(mut self, session: impl Into<SessionId>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Only results of this run.
    #[must_use]
    pub fn run(mut self, run: impl Into<RunId>) -> Self {
        self.run = Some(run.into());
        self
    }

    /// Only results of this tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Into<String>) -> Self {
        self.tool = Some(tool.into());
        self
    }

    /// Only results stored at this time or later.
    #[must_use]
    pub const fn from(mut self, from: Timestamp) -> Self {
        self.from = Some(from);
        self
    }

    /// Only results stored before this time.
    #[must_use]
    pub const fn to(mut self, to: Timestamp) -> Self {
        self.to = Some(to);
        self
    }

    /// Only results whose id has this prefix.
    #[must_use]
    pub fn id_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.id_prefix = Some(prefix.into());
        self
    }

    /// At most this many.
    #[must_use]
    pub const fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Returns whether a result meets the conditions on the result itself.
    #[must_use]
    pub fn matches(&self, id: &ResultId, origin: &Origin) -> bool {
        self.session.as_ref().is_none_or(|session| *session == origin.session)
            && self.run.as_ref().is_none_or(|run| *run == origin.run)
            && self.tool.as_deref().is_none_or(|tool| *tool == *origin.tool)
            && self.from.is_none_or(|from| origin.at >= from)
            && self.to.is_none_or(|to| origin.at < to)
            && self.id_prefix.as_deref().is_none_or(|it| id.as_str().starts_with(it))
    }
}
