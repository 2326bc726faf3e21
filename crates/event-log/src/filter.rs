use std::collections::BTreeMap;

use layer0::id::{RunId, SessionId};
use layer0::{Code, Timestamp};

use crate::{Record, RunState, RunSummary, is_segment};

/// Filter of runs in a listing. All conditions must hold.
///
/// ```
/// use backstop_event_log::{RunFilter, RunState};
///
/// // What failed at a provider lately, for one tenant.
/// let filter = RunFilter::new().state(RunState::Failed).reason("provider.*");
/// let filter = filter.label("tenant", "acme").limit(50);
/// assert_eq!(filter.labels["tenant"], "acme");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunFilter {
    /// Only runs of this session.
    pub session: Option<SessionId>,
    /// Only runs of the agent with this name.
    pub agent: Option<String>,
    /// Only runs in one of these states; in any state if empty.
    pub states: Vec<RunState>,
    /// Only runs that failed or stopped with this code, or with a code of a family: `provider.*`.
    pub reason: Option<String>,
    /// Only runs that started at this time or later.
    pub from: Option<Timestamp>,
    /// Only runs that started before this time.
    pub to: Option<Timestamp>,
    /// Only runs whose id has this prefix.
    pub id_prefix: Option<String>,
    /// Only root runs, not child runs.
    pub roots: bool,
    /// Only segments of subscriptions, which are not runs.
    pub segments: bool,
    /// Only runs with all of these labels.
    pub labels: BTreeMap<String, String>,
    /// At most this many, newest first.
    pub limit: Option<u32>,
}

impl RunFilter {
    /// Lists all runs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only runs of this session.
    #[must_use]
    pub fn session(mut self, session: impl Into<SessionId>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Only runs of the agent with this name.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.agent = Some(name.into());
        self
    }

    /// Only runs in this state, or in one of the states added before.
    #[must_use]
    pub fn state(mut self, state: RunState) -> Self {
        self.states.push(state);
        self
    }

    /// Only runs that failed or stopped with this code, or with a code of a family: `provider.*`.
    #[must_use]
    pub fn reason(mut self, code: impl Into<String>) -> Self {
        self.reason = Some(code.into());
        self
    }

    /// Only runs that started at this time or later.
    #[must_use]
    pub const fn from(mut self, from: Timestamp) -> Self {
        self.from = Some(from);
        self
    }

    /// Only runs that started before this time.
    #[must_use]
    pub const fn to(mut self, to: Timestamp) -> Self {
        self.to = Some(to);
        self
    }

    /// Only runs whose id has this prefix.
    #[must_use]
    pub fn id_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.id_prefix = Some(prefix.into());
        self
    }

    /// Only root runs, not child runs.
    #[must_use]
    pub const fn roots(mut self) -> Self {
        self.roots = true;
        self
    }

    /// Only segments of subscriptions, which are not runs.
    #[must_use]
    pub const fn segments(mut self) -> Self {
        self.segments = true;
        self
    }

    /// Only runs with this label and all labels added before.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// At most this many.
    #[must_use]
    pub const fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Returns the prefix of the codes if [`RunFilter::reason`] names a family.
    #[must_use]
    pub fn family(&self) -> Option<&str> {
        self.reason.as_deref()?.strip_suffix('*')
    }

    /// Returns whether a run matches the filter, apart from `limit`.
    #[must_use]
    pub fn matches(&self, run: &RunSummary) -> bool {
        let same = |wanted: &Option<String>, text: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == text)
        };
        let has_reason =
            |wanted: &String| run.reason.as_ref().is_some_and(|reason| reason.matches(wanted));
        self.reason.as_ref().is_none_or(has_reason)
            && self.session.as_ref().is_none_or(|session| *session == run.session)
            && same(&self.agent, &run.agent)
            && (self.states.is_empty() || self.states.contains(&run.state))
            && self.from.is_none_or(|from| run.started_at >= from)
            && self.to.is_none_or(|to| run.started_at < to)
            && self.begins(&run.run)
            && self.segments == is_segment(&run.run)
            && !(self.roots && run.parent.is_some())
            && self.labels.iter().all(|(key, value)| run.labels.get(key) == Some(value))
    }

    fn begins(&self, run: &RunId) -> bool {
        self.id_prefix.as_deref().is_none_or(|prefix| run.as_str().starts_with(prefix))
    }
}

/// Filter of failed model attempts in a count. All conditions must hold.
///
/// ```
/// use backstop_event_log::AttemptFilter;
///
/// let filter = AttemptFilter::new().runs(["run_1"]).code("provider.*");
/// assert_eq!(filter.code.as_deref(), Some("provider.*"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptFilter {
    /// Only attempts of these runs; of all runs if `None`.
    pub runs: Option<Vec<RunId>>,
    /// Only attempts that failed with this code, or with a code of a family: `provider.*`.
    pub code: Option<String>,
    /// Only attempts that ended at this time or later.
    pub from: Option<Timestamp>,
    /// Only attempts that ended before this time.
    pub to: Option<Timestamp>,
}

impl AttemptFilter {
    /// Counts all failed attempts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only attempts of these runs.
    #[must_use]
    pub fn runs(mut self, runs: impl IntoIterator<Item = impl Into<RunId>>) -> Self {
        self.runs = Some(runs.into_iter().map(Into::into).collect());
        self
    }

    /// Only attempts that failed with this code, or with a code of a family: `provider.*`.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Only attempts that ended at this time or later.
    #[must_use]
    pub const fn from(mut self, from: Timestamp) -> Self {
        self.from = Some(from);
        self
    }

    /// Only attempts that ended before this time.
    #[must_use]
    pub const fn to(mut self, to: Timestamp) -> Self {
        self.to = Some(to);
        self
    }

    /// Returns whether an attempt with this code and end time matches the filter, apart from its run.
    #[must_use]
    pub fn matches(&self, code: &Code, at: Timestamp) -> bool {
        self.code.as_deref().is_none_or(|wanted| code.matches(wanted))
            && self.from.is_none_or(|from| at >= from)
            && self.to.is_none_or(|to| at < to)
    }
}

/// Filter of events in a [`Feed`](crate::Feed). All conditions must hold.
///
/// ```
/// use backstop_event_log::EventFilter;
///
/// // What people are asked, and how runs end, in one session.
/// let filter = EventFilter::new().session("s-1").event_type("approval.*");
/// let filter = filter.event_type("run.finished").event_type("run.failed");
/// assert_eq!(filter.types.len(), 3);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventFilter {
    /// Only events of this run.
    pub run: Option<RunId>,
    /// Only events of runs of this session.
    pub session: Option<SessionId>,
    /// Only events of one of these types, or of a family: `tool.*`; of any type if empty.
    pub types: Vec<String>,
}

impl EventFilter {
    /// Matches all events.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only events of this run.
    #[must_use]
    pub fn run(mut self, run: impl Into<RunId>) -> Self {
        self.run = Some(run.into());
        self
    }

    /// Only events of runs of this session.
    #[must_use]
    pub fn session(mut self, session: impl Into<SessionId>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Only events of this type, of a family such as `tool.*`, or of one of the types added before.
    #[must_use]
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.types.push(event_type.into());
        self
    }

    /// Returns whether an event of this run and session matches the filter.
    #[must_use]
    pub fn matches(&self, run: &RunId, session: &SessionId, record: &Record) -> bool {
        let is_wanted = |wanted: &String| match wanted.strip_suffix('*') {
            Some(family) => record.event_type.starts_with(family),
            None => record.event_type == **wanted,
        };
        self.run.as_ref().is_none_or(|wanted| wanted == run)
            && self.session.as_ref().is_none_or(|wanted| wanted == session)
            && (self.types.is_empty() || self.types.iter().any(is_wanted))
    }
}
