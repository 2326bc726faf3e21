//! The selection of errors to list or count.

use backstop_error_store::ErrorFilter;
use backstop_event_log::{AttemptFilter, EventLog, RunFilter};
use layer0::id::RunId;

use crate::args::WhichErrors;
use crate::exit::CliError;
use crate::ids;
use crate::store::Chosen;

/// The selection of the command line, with its run resolved.
pub(super) struct ErrorSelection {
    asked: WhichErrors,
    run: Option<RunId>,
}

impl ErrorSelection {
    pub(super) async fn resolve(asked: WhichErrors, chosen: &Chosen) -> Result<Self, CliError> {
        let run = match &asked.run {
            Some(typed) => Some(ids::find_run(chosen, typed).await?),
            None => None,
        };
        Ok(Self { asked, run })
    }

    /// Returns whether the selection is limited.
    pub(super) fn is_some(&self) -> bool {
        let WhichErrors { run: _, session, agent, states, tool, code, time } = &self.asked;
        let texts = [session, agent, tool, code];
        self.run.is_some()
            || texts.iter().any(|text| text.is_some())
            || !states.is_empty()
            || time.since.or(time.until).is_some()
    }

    /// Returns the message for an empty result.
    pub(super) fn none(&self) -> String {
        format!("no errors{}", if self.is_some() { " that fit" } else { "" })
    }

    /// Returns the filter for errors of tools.
    pub(super) async fn errors(&self, log: &dyn EventLog) -> Result<ErrorFilter, CliError> {
        let mut filter = ErrorFilter::new();
        // An error has its session, although the session's runs may be removed.
        filter.session = self.asked.session.as_deref().map(Into::into);
        filter.tool.clone_from(&self.asked.tool);
        filter.reason.clone_from(&self.asked.code);
        (filter.from, filter.to) = (self.asked.time.since, self.asked.time.until);
        filter.runs = self.runs(log, RunFilter::new()).await?;
        Ok(filter)
    }

    /// Returns the filter for failed attempts at models; `None` if the selection is limited to a tool.
    pub(super) async fn attempts(
        &self,
        log: &dyn EventLog,
    ) -> Result<Option<AttemptFilter>, CliError> {
        if self.asked.tool.is_some() {
            return Ok(None);
        }
        let mut filter = AttemptFilter::new();
        filter.code.clone_from(&self.asked.code);
        (filter.from, filter.to) = (self.asked.time.since, self.asked.time.until);
        let of_session = match &self.asked.session {
            Some(session) => RunFilter::new().session(session.as_str()),
            None => RunFilter::new(),
        };
        filter.runs = self.runs(log, of_session).await?;
        Ok(Some(filter))
    }

    /// Returns the selected runs of `among`; `None` for all runs of the store.
    async fn runs(
        &self,
        log: &dyn EventLog,
        mut among: RunFilter,
    ) -> Result<Option<Vec<RunId>>, CliError> {
        among.agent.clone_from(&self.asked.agent);
        among.states = self.asked.states.iter().map(|state| (*state).into()).collect();
        if among == RunFilter::new() {
            return Ok(self.run.clone().map(|run| vec![run]));
        }
        among.id_prefix = self.run.as_ref().map(ToString::to_string);
        let found = log.runs(among).await?.into_iter().map(|run| run.run);
        // The id may be a prefix of another one.
        Ok(Some(found.filter(|run| self.run.as_ref().is_none_or(|one| one == run)).collect()))
    }
}
