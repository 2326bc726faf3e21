//! From the record of a run back to its machine.

use std::sync::Arc;

use event_log::{EventLog, LogError, RunSummary, read_events, sessions_of};
use layer0::code;
use layer0::event::{Event, EventKind, RunStarted};
use layer0::id::{RunId, SessionId};
use layer0::message::Message;
use react_machine::{AgentDefinition, Divergence, Entry, Replay, Replayed};
use serde::Deserialize;
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
    /// Where what it and the runs before it stored is found.
    pub(crate) sessions: Vec<SessionId>,
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
    let started = started(&events)?;
    let Conversation { said, sessions } = conversation(log, started.follows.as_ref()).await?;
    let definition = match own {
        Some(own) => own_definition(own, started)?,
        None => recorded_definition(started)?,
    };
    let replayed = replay_events(Arc::clone(&definition), &events, said)?;
    let sessions = sessions_of(&events).into_iter().chain(sessions).collect();
    Ok(Folded { summary, events, definition, replayed, sessions })
}

pub(crate) fn started(events: &[Event]) -> Result<&RunStarted, LogError> {
    match events.first().map(|event| &event.kind) {
        Some(EventKind::RunStarted(started)) => Ok(started),
        _ => Err(LogError::tampered(1, "it does not begin with `run.started`")),
    }
}

/// Returns the definition that a run was started with; one that was changed has another digest.
fn recorded_definition(started: &RunStarted) -> Result<Arc<AgentDefinition>, ResumeError> {
    let unreadable = |error: serde_json::Error| {
        ResumeError::other_agent(&started.agent.digest, &error.to_string())
    };
    let actual = digest(&started.agent.definition);
    if actual != *started.agent.digest {
        return Err(ResumeError::other_agent(&started.agent.digest, &actual));
    }
    let definition: AgentDefinition = started.agent.definition.read().map_err(unreadable)?;
    Ok(Arc::new(definition))
}

/// The part of a definition that a request may change for its run.
#[derive(Default, Deserialize)]
struct OfRun {
    output_schema: Option<Arc<Value>>,
}

/// Returns the agent's own definition for a run, if the run is its.
fn own_definition(
    own: &AgentDefinition,
    started: &RunStarted,
) -> Result<Arc<AgentDefinition>, ResumeError> {
    let mut own = own.clone();
    let OfRun { output_schema } = started.agent.definition.read().unwrap_or_default();
    own.output_schema = output_schema;
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

/// What a conversation came to.
#[derive(Default)]
pub(crate) struct Conversation {
    /// What was said, without what only instructs.
    pub(crate) said: Vec<Arc<Message>>,
    /// Where what its runs stored is found.
    pub(crate) sessions: Vec<SessionId>,
}

/// Reads a conversation up to the end of a run, along the runs that each one follows.
pub(crate) async fn conversation(
    log: &dyn EventLog,
    until: Option<&RunId>,
) -> Result<Conversation, ResumeError> {
    let mut conversation = Conversation::default();
    for (_, events) in followed(log, until).await?.into_iter().rev() {
        let definition = recorded_definition(started(&events)?)?;
        let said = std::mem::take(&mut conversation.said);
        let replayed = replay_events(definition, &events, said)?;
        let messages = replayed.machine.transcript().messages().iter();
        conversation.said = messages
            .filter(|message| !matches!(***message, Message::System { .. }))
            .cloned()
            .collect();
        for session in sessions_of(&events) {
            if !conversation.sessions.contains(&session) {
                conversation.sessions.push(session);
            }
        }
    }
    Ok(conversation)
}

/// Reads a run, the one that it follows, and so on.
pub(crate) async fn followed(
    log: &dyn EventLog,
    last: Option<&RunId>,
) -> Result<Vec<(RunSummary, Vec<Event>)>, ResumeError> {
    let mut runs: Vec<(RunSummary, Vec<Event>)> = Vec::new();
    let mut next = last.cloned();
    while let Some(run) = next {
        if runs.iter().any(|(summary, _)| summary.run == run) {
            return Err(LogError::tampered(1, "the runs of its conversation go in circles").into());
        }
        let (summary, events) = read_events(log, &run).await?;
        next = started(&events)?.follows.clone();
        runs.push((summary, events));
    }
    Ok(runs)
}

impl ResumeError {
    fn other_agent(expected: &str, actual: &str) -> Self {
        let (expected, actual) = (Value::from(expected), Value::from(actual));
        Divergence::new(1, "agent", expected, actual).into()
    }
}
