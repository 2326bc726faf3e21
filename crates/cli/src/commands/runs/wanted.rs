//! The selection of runs to list.

use std::collections::{BTreeMap, BTreeSet};

use backstop_event_log::{EventLog, LogError, RunFilter, RunState, RunSummary};
use layer0::id::RunId;

use super::search::holds_text;
use crate::args::{ListedState, RunsListArgs};
use crate::newest::find_newest;
use crate::output::note;

/// The conditions of a list, including those that a log does not support.
pub(super) struct RunConditions {
    filter: RunFilter,
    limit: u32,
    /// Selected states.
    states: Vec<ListedState>,
    /// Open runs whose process is dead.
    interrupted: BTreeSet<RunId>,
    /// Text that a run must contain, in lower case.
    text: Option<String>,
}

impl RunConditions {
    /// Returns the conditions of the command line.
    pub(super) fn new(args: &RunsListArgs, interrupted: BTreeSet<RunId>) -> Self {
        let mut filter = RunFilter::new();
        filter.session = args.session.as_deref().map(Into::into);
        filter.agent.clone_from(&args.agent);
        filter.labels.extend(args.labels.iter().cloned());
        filter.reason.clone_from(&args.code);
        (filter.from, filter.to) = (args.time.since, args.time.until);
        filter.states = args.states.iter().map(|state| (*state).into()).collect();
        if args.failed {
            filter.states.push(RunState::Failed);
        }
        let text = args.search.as_ref().map(|text| text.to_lowercase());
        Self { filter, limit: args.limit, states: args.states.clone(), interrupted, text }
    }

    /// Returns whether there is any condition.
    pub(super) fn is_narrowed(&self) -> bool {
        self.text.is_some() || self.filter != RunFilter::new()
    }

    /// Returns whether runs must contain a text.
    pub(super) const fn has_text(&self) -> bool {
        self.text.is_some()
    }

    /// Returns the limit of listed runs.
    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the displayed state of a run.
    pub(super) fn state(&self, run: &RunSummary) -> &'static str {
        if self.is_interrupted(run) { "interrupted" } else { run.state.as_str() }
    }

    fn is_interrupted(&self, run: &RunSummary) -> bool {
        run.state == RunState::Running && self.interrupted.contains(&run.run)
    }

    /// Returns the newest matching runs.
    pub(super) async fn runs(&self, log: &dyn EventLog) -> Result<Vec<RunSummary>, LogError> {
        let mut texts = BTreeMap::new();
        find_newest(self.limit, async |looked_at| self.newest(log, looked_at, &mut texts).await)
            .await
    }

    /// Returns the matching ones of the log's newest runs, and whether these are all. `texts` caches which runs contain
    /// the text.
    pub(super) async fn newest(
        &self,
        log: &dyn EventLog,
        looked_at: u32,
        texts: &mut BTreeMap<RunId, bool>,
    ) -> Result<(Vec<RunSummary>, bool), LogError> {
        let mut runs = log.runs(self.filter.clone().limit(looked_at)).await?;
        let is_all = runs.len() < usize::try_from(looked_at).unwrap_or(usize::MAX);
        runs.retain(|run| self.fits_state(run));
        if let Some(text) = &self.text {
            for run in &runs {
                if !texts.contains_key(&run.run) {
                    texts.insert(run.run.clone(), search_run(log, &run.run, text).await?);
                }
            }
            runs.retain(|run| texts.get(&run.run).copied().unwrap_or_default());
        }
        Ok((runs, is_all))
    }

    /// Returns whether a run matches the conditions other than the text.
    pub(super) fn fits(&self, run: &RunSummary) -> bool {
        self.filter.matches(run) && self.fits_state(run)
    }

    /// Returns whether the state of a run from the log is selected; the log does not know interrupted runs.
    fn fits_state(&self, run: &RunSummary) -> bool {
        let is_asked_for = |wanted: ListedState| self.states.contains(&wanted);
        match (self.states.is_empty(), run.state) {
            (false, RunState::Running) if self.is_interrupted(run) => {
                is_asked_for(ListedState::Interrupted)
            }
            (false, RunState::Running) => is_asked_for(ListedState::Running),
            _ => true,
        }
    }
}

/// Returns whether a run's record contains a text. A record that cannot be read contains none.
async fn search_run(log: &dyn EventLog, run: &RunId, text: &str) -> Result<bool, LogError> {
    match holds_text(log, run, text).await {
        // The other runs are still searched.
        Err(error @ (LogError::Tampered { .. } | LogError::UnreadableRun { .. })) => {
            note(&format!("run {run} cannot be searched: {error}"));
            Ok(false)
        }
        searched => searched,
    }
}

impl From<ListedState> for RunState {
    fn from(state: ListedState) -> Self {
        match state {
            ListedState::Running | ListedState::Interrupted => Self::Running,
            ListedState::WaitingApproval => Self::WaitingApproval,
            ListedState::Parked => Self::Parked,
            ListedState::Finished => Self::Finished,
            ListedState::Failed => Self::Failed,
        }
    }
}
