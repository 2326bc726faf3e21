//! From the record of a run back to its machine.

use std::sync::Arc;

use event_log::{EventLog, LogError, RunFilter, RunSummary, read_events};
use layer0::code;
use layer0::event::{Event, EventKind, RunStarted};
use layer0::id::{RunId, SessionId};
use layer0::message::Message;
use react_machine::{AgentDefinition, Divergence, Entry, Replay, Replayed};
use serde_json::Value;

use crate::digest::{digest, record};
use crate::resume::ResumeError;
use crate::typed::output_check;

/// A run as its record leaves it.
pub(crate) struct Folded {
    pub(crate) summary: RunSummary,
    pub(crate) events: Vec<Event>,
    pub(crate) definition: Arc<AgentDefinition>,
    pub(crate) replayed: Replayed,
}

/// Reads a run and folds its first `until` events (all of them without) into a machine, comparing
/// every decision. With an agent of one's own, the run has to be that agent's.
pub(crate) async fn fold(
    log: &dyn EventLog,
    run: &RunId,
    own: Option<&AgentDefinition>,
    until: Option<u64>,
) -> Result<Folded, ResumeError> {
    let (summary, mut events) = read_events(log, run).await?;
    if let Some(until) = until {
        if until == 0 || until > summary.last_seq {
            return Err(ResumeError::no_such_event(run.clone(), until, summary.last_seq));
        }
        events.truncate(usize::try_from(until).unwrap_or(usize::MAX));
    }
    let history = history_of(log, &events).await?;
    let started = started(&events)?;
    let definition = match own {
        Some(own) => own_definition(own, started)?,
        None => recorded_definition(started)?,
    };
    let replayed = replay_events(Arc::clone(&definition), &events, history)?;
    Ok(Folded { summary, events, definition, replayed })
}

pub(crate) fn started(events: &[Event]) -> Result<&RunStarted, LogError> {
    match events.first().map(|event| &event.kind) {
        Some(EventKind::RunStarted(started)) => Ok(started),
        _ => Err(LogError::tampered(1, "it does not begin with `run.started`")),
    }
}

/// Returns the definition that a run was started with; one that was changed has another digest.
fn recorded_definition(started: &RunStarted) -> Result<Arc<AgentDefinition>, ResumeError> {
    let value = (*started.agent.definition).clone();
    let unreadable = |error: serde_json::Error| {
        ResumeError::other_agent(&started.agent.digest, &error.to_string())
    };
    let actual = digest(&value);
    if actual != *started.agent.digest {
        return Err(ResumeError::other_agent(&started.agent.digest, &actual));
    }
    let definition: AgentDefinition = serde_json::from_value(value).map_err(unreadable)?;
    Ok(Arc::new(definition))
}

/// Returns the agent's own definition for a run, if the run is its.
fn own_definition(
    own: &AgentDefinition,
    started: &RunStarted,
) -> Result<Arc<AgentDefinition>, ResumeError> {
    let mut own = own.clone();
    own.output_schema = started.agent.definition.get("output_schema").cloned().map(Arc::new);
    let record = record(&own);
    if record.digest != started.agent.digest {
        return Err(ResumeError::other_agent(&started.agent.digest, &record.digest));
    }
    Ok(Arc::new(own))
}

/// Returns which run a `run.forked` copied.
fn copied_from(event: &Event) -> Option<&RunId> {
    match &event.kind {
        EventKind::RunForked(forked) => Some(&forked.parent),
        _ => None,
    }
}

/// Feeds recorded events to a machine.
pub(crate) fn replay_events(
    definition: Arc<AgentDefinition>,
    events: &[Event],
    history: Vec<Arc<Message>>,
) -> Result<Replayed, ResumeError> {
    let schema = definition.output_schema.clone();
    let own = events.first().map(|event| &event.run);
    let mut runs = events.iter().filter_map(copied_from).chain(own).cloned();
    let first = runs.next().unwrap_or_else(|| "".into());
    let unusable = |why: String| ResumeError::other_agent("", &why);
    let mut replay = Replay::new(definition)
        .map_err(|error| unusable(error.to_string()))?
        .of_runs(first, runs)
        .at_depth(depth_of(events))
        .after(history);
    if let Some(schema) = schema {
        replay = replay
            .checking_output(output_check(&schema).map_err(|error| unusable(error.to_string()))?);
    }
    for event in events {
        let entry = Entry {
            seq: event.seq,
            at: event.at,
            actor: event.actor,
            caused_by: event.caused_by,
            kind: event.kind.clone(),
        };
        replay.next(&entry)?;
    }
    Ok(replay.finish())
}

/// Returns how deep a run was dispatched, as far as that made a difference.
fn depth_of(events: &[Event]) -> u32 {
    match events.get(1).map(|event| &event.kind) {
        Some(EventKind::BudgetExhausted(exhausted))
            if exhausted.reason.as_str() == code::BUDGET_DEPTH =>
        {
            let limit = exhausted.limit.as_u64().and_then(|limit| u32::try_from(limit).ok());
            limit.unwrap_or(u32::MAX).saturating_add(1)
        }
        _ => 0,
    }
}

/// Returns what was said in the conversation before a recorded run.
async fn history_of(
    log: &dyn EventLog,
    events: &[Event],
) -> Result<Vec<Arc<Message>>, ResumeError> {
    let (Some(first), started) = (events.first(), started(events)?) else {
        return Ok(Vec::new());
    };
    if started.parent.is_some() {
        return Ok(Vec::new());
    }
    // A copy goes on in the conversation of the run it was copied from.
    let original = events.iter().find_map(|event| match &event.kind {
        EventKind::RunForked(forked) => Some(&forked.parent),
        _ => None,
    });
    let run = original.unwrap_or(&first.run);
    said_before(log, &started.session, |earlier| {
        (earlier.started_at, &earlier.run) < (first.at, run)
    })
    .await
}

/// Returns what the runs of a session said, in the order they were started, without what only
/// instructs.
pub(crate) async fn said_before(
    log: &dyn EventLog,
    session: &SessionId,
    wanted: impl Fn(&RunSummary) -> bool,
) -> Result<Vec<Arc<Message>>, ResumeError> {
    let filter = RunFilter { session: Some(session.clone()), limit: None };
    let mut runs = log.runs(filter).await?;
    runs.retain(|run| run.parent.is_none() && wanted(run));
    runs.sort_by(|a, b| (a.started_at, &a.run).cmp(&(b.started_at, &b.run)));
    let mut said: Vec<Arc<Message>> = Vec::new();
    for run in runs {
        let (_, events) = read_events(log, &run.run).await?;
        let definition = recorded_definition(started(&events)?)?;
        let replayed = replay_events(definition, &events, said)?;
        let messages = replayed.machine.transcript().messages().iter();
        said = messages
            .filter(|message| !matches!(***message, Message::System { .. }))
            .cloned()
            .collect();
    }
    Ok(said)
}

impl ResumeError {
    fn other_agent(expected: &str, actual: &str) -> Self {
        let (expected, actual) = (Value::from(expected), Value::from(actual));
        Divergence::new(1, "agent", expected, actual).into()
    }
}
