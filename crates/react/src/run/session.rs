//! Sessions: the run that the next one follows, and open runs of a session whose process died.

use std::sync::Arc;

use backstop_event_log::{
    Claim, EventLog, InboxMessage, InboxRequest, LogError, RunFilter, RunState, RunSummary,
    read_events, readable_sessions,
};
use backstop_react_machine::{CANCEL, collect_messages};
use layer0::event::{Event, EventKind, Follows, OperatorReturned, RunResumed, SignalReceived};
use layer0::id::{CallId, RunId, SessionId};
use layer0::stop::Outcome;
use layer0::usage::Usage;
use layer0::{Code, code};
use serde_json::{Value, json};

use super::resume::Resumed;
use super::start::{InSession, StartingRun};
use crate::agent::inner::AgentInner;
use crate::error::AgentError;
use crate::history::{History, RequestError};
use crate::record::abandon::{AbandonedWork, OpenWork, abandon, open_in};
use crate::record::fold::{DefinedAs, fold, read_run_started};
use crate::resume_error::ResumeError;

fn follow(run: RunSummary) -> Follows {
    Follows::new(run.run, run.last_seq, run.head, run.messages)
}

impl StartingRun {
    /// Finds the run that this one follows in its session, at the same cost for any length of the session. An open run
    /// whose process died is ended first, so that every call has its answer. If the last run was dispatched together
    /// with this one, this one follows the same run as that one.
    pub(super) async fn join_session(&self) -> Result<InSession, AgentError> {
        let nothing = InSession::default();
        let Some(log) = self.agent.log.clone() else { return Ok(nothing) };
        if self.request.session.is_none() || self.request.parent.is_some() {
            return Ok(nothing);
        }
        let Some(mut last) = log.last_root(&self.session).await? else { return Ok(nothing) };
        if !self.request.history.messages().is_empty() {
            return Err(RequestError::history_in_session(self.session.clone(), last.run).into());
        }
        if self.request.together.contains(&last.run) && last.run != self.run {
            let earlier = match &last.follows {
                Some(earlier) => log.summary(earlier).await?,
                None => None,
            };
            let follows = earlier.map(follow);
            return Ok(InSession { follows, branch_of: Some(last.run) });
        }
        if last.is_open() {
            // Rare, and large: every run's future would reserve room for it.
            Box::pin(self.end_dead_run(&log, &last)).await?;
            last = log.summary(&last.run).await?.unwrap_or(last);
        }
        Ok(InSession { follows: Some(follow(last)), branch_of: None })
    }

    /// Ends the open branch that keeps the session busy, if its process died. Other open runs are found when the
    /// session is joined again.
    pub(super) async fn end_dead_branch(&self, run: &RunId) -> Result<(), AgentError> {
        let Some(log) = &self.agent.log else { return Ok(()) };
        let in_the_way = log.summary(run).await?;
        let is_branch = |run: &RunSummary| run.is_open() && run.branch_of.is_some();
        match in_the_way.filter(is_branch) {
            Some(branch) => Box::pin(self.end_dead_run(log, &branch)).await,
            None => Ok(()),
        }
    }

    /// Reads the session's conversation until now, for a child run that needs it: the ended roots that its root
    /// follows, and the root's own messages before the calls that it waits for now.
    pub(super) async fn hear_session(&mut self) -> Result<Option<Follows>, AgentError> {
        let (Some(log), Some(_)) = (&self.agent.log, &self.request.parent) else { return Ok(None) };
        let events = match read_events(&**log, &self.root()).await {
            Ok((_, events)) => events,
            Err(LogError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let kinds = events.iter().map(|event| &event.kind);
        let history = History::from(collect_messages(kinds.take(count_settled_events(&events))));
        let given = self.request.history.sessions().iter().cloned();
        let sessions: Vec<SessionId> = given.chain(readable_sessions(&events)).collect();
        self.request.history = history.with_sessions(sessions);
        Ok(read_run_started(&events)?.follows.as_deref().cloned())
    }

    /// Ends an open run whose process died. A run that is alive or that waits for a person keeps the session busy.
    async fn end_dead_run(
        &self,
        log: &Arc<dyn EventLog>,
        run: &RunSummary,
    ) -> Result<(), AgentError> {
        let busy = || LogError::session_busy(self.session.clone(), run.run.clone());
        if run.state == RunState::WaitingApproval {
            return Err(busy().into());
        }
        let claim = match log.claim(&run.run).await {
            Ok(claim) => claim,
            Err(LogError::Claimed(_)) => return Err(busy().into()),
            Err(error) => return Err(error.into()),
        };
        end(Arc::clone(&self.agent), log, run, claim, EndOptions::default()).await
    }
}

/// Returns the number of events before the last model answer with open calls; that of all events if no call is open.
fn count_settled_events(events: &[Event]) -> usize {
    let last = events.iter().rposition(|event| match &event.kind {
        EventKind::ModelResponded(answer) => !answer.tool_calls.is_empty(),
        _ => false,
    });
    let Some(last) = last else { return events.len() };
    let EventKind::ModelResponded(answer) = &events[last].kind else { return events.len() };
    let is_answered = |id: &CallId| {
        events[last..].iter().any(|event| match &event.kind {
            EventKind::ToolResponded(answer) => answer.call_id == *id,
            _ => false,
        })
    };
    match answer.tool_calls.iter().all(|call| is_answered(&call.id)) {
        true => events.len(),
        false => last,
    }
}

/// Options for ending an open run without an owner.
#[derive(Default)]
pub(crate) struct EndOptions {
    /// The person who ends it.
    by: Option<Arc<str>>,
    /// The row of the inbox with the request.
    row: Option<u64>,
    /// The requests accepted before it.
    earlier: Vec<InboxMessage>,
    /// Whether the run is ended even if it waits for a person.
    though_waiting: bool,
}

impl EndOptions {
    /// Returns the options for a run whose caller gave it up.
    pub(crate) fn left_behind() -> Self {
        Self { though_waiting: true, ..Self::default() }
    }
}

/// The options for the first request to cancel in an inbox; the default without one.
impl From<Vec<InboxMessage>> for EndOptions {
    fn from(mut inbox: Vec<InboxMessage>) -> Self {
        let is_cancel = |row: &InboxMessage| matches!(row.request, InboxRequest::Cancel { .. });
        let Some(place) = inbox.iter().position(is_cancel) else { return Self::default() };
        let message = inbox.split_off(place).into_iter().next();
        let (by, row) = message.map(|message| (message.by, message.id)).unzip();
        Self { by, row, earlier: inbox, though_waiting: true }
    }
}

/// Ends an open run without an owner: nothing is run again, and every open call is answered. A run that waits for a
/// person stays as it is, unless `ending` includes waiting runs.
pub(crate) async fn end(
    agent: Arc<AgentInner>,
    log: &Arc<dyn EventLog>,
    run: &RunSummary,
    claim: Claim,
    ending: EndOptions,
) -> Result<(), AgentError> {
    let folded = match fold(&**log, &run.run, DefinedAs::Recorded, None).await {
        Ok(folded) => folded,
        // The store may recover later; an unreadable record will not.
        Err(ResumeError::Log(error)) if error.is_retryable() => return Err(error.into()),
        Err(why) => {
            let current = match log.summary(&run.run).await {
                // If the run's row cannot be read, the copy that the caller has is used.
                Err(error) if !error.is_retryable() => Some(run.clone()),
                current => current?,
            };
            let Some(current) = current.filter(RunSummary::is_open) else { return Ok(()) };
            let OpenWork { calls, dispatches, at } = open_in(&**log, &current).await?;
            let mut returned = Vec::new();
            for dispatch in dispatches {
                returned.push(dead_dispatch(&agent, log, &current.session, dispatch).await?);
            }
            let ended = AbandonedWork { calls, returned, at };
            // time of day: it is recorded.
            return abandon(log, (current, claim), &why, agent.clock.now(), ended).await;
        }
    };
    if !folded.summary.is_open() {
        // It ended in the meantime.
        return Ok(());
    }
    let machine = &folded.replayed.machine;
    if machine.is_waiting() && !ending.though_waiting {
        return Err(LogError::session_busy(folded.summary.session, folded.summary.run).into());
    }
    let by = ending.by;
    let mut resumed =
        Resumed::open(agent, Arc::clone(log), folded, Some(claim), Default::default()).await?;
    let machine = resumed.machine();
    let first = if machine.is_waiting() {
        EventKind::from(RunResumed::new(by.clone().unwrap_or_else(|| "backstop".into())))
    } else {
        machine.lost_for_good().into()
    };
    let data = by.map_or(Value::Null, |by| json!({ "by": &*by }));
    let cancel = SignalReceived::new(CANCEL, data);
    let mut facts = vec![first];
    facts.extend(resumed.row_facts(ending.earlier));
    facts.push(cancel.into());
    if let Some(row) = ending.row {
        resumed.take_row(row);
    }
    match Box::pin(resumed.go_on(facts)).await {
        Ok(_) => Ok(()),
        Err(failure) => Err(failure.error),
    }
}

/// Ends a child run that a dead process left behind, and returns its outcome with the usage in its record. For a child
/// run without a record, ends the runs that it dispatched itself, and returns their usage.
pub(super) async fn dead_dispatch(
    agent: &Arc<AgentInner>,
    log: &Arc<dyn EventLog>,
    session: &SessionId,
    (operator, run): (Arc<str>, RunId),
) -> Result<OperatorReturned, AgentError> {
    close_dead(agent, log, &run).await?;
    let summary = log.summary(&run).await?;
    let interrupted = (Outcome::Failed, Some(Code::new(code::TOOL_INTERRUPTED)));
    let (outcome, reason) = match &summary {
        Some(summary) if !summary.is_open() => {
            (summary.outcome.unwrap_or(Outcome::Failed), summary.reason.clone())
        }
        _ => interrupted,
    };
    let usage = match summary {
        Some(summary) => summary.usage,
        None => close_below(agent, log, session, &run).await?,
    };
    Ok(OperatorReturned::new(operator, run, outcome, reason, usage))
}

/// Closes the records of the child runs of a run without a record, and returns their usage.
async fn close_below(
    agent: &Arc<AgentInner>,
    log: &Arc<dyn EventLog>,
    session: &SessionId,
    parent: &RunId,
) -> Result<Usage, AgentError> {
    let mut usage = Usage::free();
    for below in log.runs(RunFilter::new().session(session.clone())).await? {
        if below.parent.as_ref() == Some(parent) {
            close_dead(agent, log, &below.run).await?;
            let closed = log.summary(&below.run).await?;
            usage.add_dispatched(&closed.map_or(below.usage, |closed| closed.usage));
        }
    }
    Ok(usage)
}

/// Closes the record of an open run: every open call is answered, and its own child runs are closed too.
async fn close_dead(
    agent: &Arc<AgentInner>,
    log: &Arc<dyn EventLog>,
    run: &RunId,
) -> Result<(), AgentError> {
    let Some(summary) = log.summary(run).await?.filter(RunSummary::is_open) else { return Ok(()) };
    let claim = match log.claim(run).await {
        Ok(claim) => claim,
        Err(error @ LogError::Claimed(_)) => {
            tracing::warn!(%run, %error, "a run that was dispatched is told to end by its owner");
            let cancel = InboxRequest::Cancel { run: run.clone() };
            log.send(cancel, "backstop", agent.clock.now()).await?;
            return Ok(());
        }
        // It stays open until a person accepts the loss.
        Err(error @ LogError::LostTail { .. }) => {
            tracing::warn!(%run, %error, "a run that was dispatched is left open");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    // Its own child runs are ended in the same way.
    let ended = Box::pin(end(Arc::clone(agent), log, &summary, claim, EndOptions::left_behind()));
    match ended.await {
        Err(AgentError::Storage(error)) => Err(error.into()),
        // It is over in either case.
        Ok(()) | Err(_) => Ok(()),
    }
}

impl From<ResumeError> for AgentError {
    fn from(error: ResumeError) -> Self {
        match error {
            ResumeError::Log(error) => Self::Storage(error),
            other => Self::Internal(other.into()),
        }
    }
}
