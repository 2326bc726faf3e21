//! Rebuilding a run's machine from its record.

use std::fmt::Display;
use std::sync::Arc;

use backstop_event_log::{
    EventLog, LogError, RunSummary, current_agent, read_events, readable_sessions,
};
use backstop_react_machine::{
    AgentDefinition, CheckedDefinition, Divergence, MachineEntry, Replay, Replayed, Setup,
};
use layer0::event::{AgentRecord, DecodeError, Event, EventKind, RunStarted};
use layer0::id::{RunId, SessionId};
use layer0::{JsonText, ToolSpec};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::output_check::output_check;
use crate::record::digest::{digest, is_listed_elsewhere, record};
use crate::resume_error::ResumeError;

/// A run rebuilt from its record.
pub(crate) struct Folded {
    pub(crate) summary: RunSummary,
    pub(crate) events: Vec<Event>,
    pub(crate) definition: CheckedDefinition,
    pub(crate) replayed: Replayed,
    /// The stores of its errors and results.
    pub(crate) sessions: Vec<SessionId>,
    /// The run that it follows.
    pub(crate) follows: Option<RunId>,
    /// The definition from here on, if it differs from the one before.
    pub(crate) adopted: Option<Box<AgentRecord>>,
}

/// The definition that a run must have.
#[derive(Clone, Copy)]
pub(crate) enum DefinedAs<'a> {
    /// The recorded definition.
    Recorded,
    /// This definition.
    Own(&'a AgentDefinition),
    /// Any definition of this agent; the run adopts this one.
    Adopted(&'a AgentDefinition),
}

/// Reads a run and folds its first `until` events (all of them without) into a machine, comparing every decision. The
/// run must belong to the given agent.
pub(crate) async fn fold(
    log: &dyn EventLog,
    run: &RunId,
    defined_as: DefinedAs<'_>,
    until: Option<u64>,
) -> Result<Folded, ResumeError> {
    let (summary, mut events) = read_events(log, run).await?;
    if let Some(until) = until {
        if until == 0 || until > summary.last_seq {
            return Err(ResumeError::no_such_event(run.clone(), until, summary.last_seq));
        }
        events.truncate(usize::try_from(until).unwrap_or(usize::MAX));
    }
    let started = read_run_started(&events)?;
    if started.agent.is_workflow() {
        let (run, workflow) = (run.clone(), started.agent.name.as_ref().into());
        return Err(ResumeError::OfWorkflow { run, workflow });
    }
    let follows = started.follows.as_ref().map(|follows| follows.run.clone());
    let agent = current_agent(&events).unwrap_or(&started.agent);
    let adopted = match defined_as {
        DefinedAs::Adopted(own) => adopted_definition(own, started, agent)?,
        DefinedAs::Own(_) | DefinedAs::Recorded => None,
    };
    let definition = match defined_as {
        DefinedAs::Own(own) | DefinedAs::Adopted(own) if adopted.is_none() => {
            own_definition(own, started, agent)?
        }
        _ => recorded_definition(started)?,
    };
    let definition = CheckedDefinition::new(definition).map_err(unusable)?;
    let replayed = replay_events(definition, &events)?;
    let (definition, adopted) = match adopted {
        Some(adopted) => {
            let agent = Box::new(record(&adopted).agent);
            replayed.machine.check_agent(&agent).map_err(unusable)?;
            (CheckedDefinition::new(adopted).map_err(unusable)?, Some(agent))
        }
        None => (replayed.machine.definition().clone(), None),
    };
    let sessions = readable_sessions(&events);
    Ok(Folded { summary, events, definition, replayed, sessions, follows, adopted })
}

/// Returns the agent's own definition as a run adopts it; `None` where the run already has it.
fn adopted_definition(
    own: &AgentDefinition,
    started: &RunStarted,
    agent: &AgentRecord,
) -> Result<Option<AgentDefinition>, ResumeError> {
    let digest = record(own).agent.digest;
    if own.name != agent.name {
        return Err(ResumeError::other_agent(&agent.digest, &digest));
    }
    if digest == agent.digest {
        return Ok(None);
    }
    resumed_definition(own, started, agent).map(Some)
}

/// Returns the agent's record with its current model, for a run that began with another model; `None` where it is the
/// same.
///
/// # Errors
///
/// When the recorded definition cannot be read.
pub(crate) fn other_model(
    own: &AgentDefinition,
    events: &[Event],
) -> Result<Option<Box<AgentRecord>>, ResumeError> {
    let started = read_run_started(events)?;
    let agent = current_agent(events).unwrap_or(&started.agent);
    let recorded: AgentDefinition = agent.definition.read().map_err(unreadable)?;
    let model = |definition: &AgentDefinition| definition.runtime.value()["model"].clone();
    if model(own) == model(&recorded) || record(own).agent.digest != agent.digest {
        return Ok(None);
    }
    Ok(Some(Box::new(record(&resumed_definition(own, started, agent)?).agent)))
}

/// Refuses a definition that takes away the walls which a run began within.
pub(crate) fn check_walls(
    recorded: &AgentDefinition,
    own: &AgentDefinition,
) -> Result<(), ResumeError> {
    match recorded.walls_lost_in(own) {
        Some(whose) => {
            Err(unusable(format!("{whose} ran within walls, and has none in this definition")))
        }
        None => Ok(()),
    }
}

/// Returns the agent's own definition for a run that began with another one.
fn resumed_definition(
    own: &AgentDefinition,
    started: &RunStarted,
    agent: &AgentRecord,
) -> Result<AgentDefinition, ResumeError> {
    let mut own = own.clone();
    own.output_schema = started.output_schema.as_deref().cloned();
    let of_its_own = own.tools.iter().filter(|tool| !is_listed_elsewhere(tool)).cloned();
    let mut tools: Vec<ToolSpec> = of_its_own.collect();
    // The run keeps the tools that other servers gave it, unless the agent now has one with the same name.
    for kept in
        read_tools(agent).map_err(unreadable)?.iter().filter(|tool| is_listed_elsewhere(tool))
    {
        if !tools.iter().any(|tool| tool.name == kept.name) {
            tools.push(kept.clone());
        }
    }
    own.tools = tools.into();
    Ok(own)
}

pub(crate) fn read_run_started(events: &[Event]) -> Result<&RunStarted, LogError> {
    match events.first().map(|event| &event.kind) {
        Some(EventKind::RunStarted(started)) => Ok(started),
        _ => Err(LogError::tampered_event(1, "it does not begin with `run.started`")),
    }
}

/// Returns the definition that a run was started with; one that was changed has another digest.
fn recorded_definition(started: &RunStarted) -> Result<AgentDefinition, ResumeError> {
    let actual = digest(&started.agent.definition);
    // The first layout had one digest.
    let sealed = started.definition_digest.as_ref().unwrap_or(&started.agent.digest);
    if actual != **sealed {
        return Err(ResumeError::other_agent(sealed, &actual));
    }
    let mut definition: AgentDefinition = started.agent.definition.read().map_err(unreadable)?;
    if let Some(schema) = &started.output_schema {
        definition.output_schema = Some((**schema).clone());
    }
    Ok(definition)
}

/// The part of a definition that a request may change for its run.
#[derive(Default, Deserialize)]
struct OfRun {
    output_schema: Option<JsonText>,
    #[serde(default)]
    tools: Arc<[ToolSpec]>,
}

/// Returns the tools that an agent's record has.
///
/// # Errors
///
/// When its definition cannot be read.
pub(crate) fn read_tools(agent: &AgentRecord) -> Result<Arc<[ToolSpec]>, serde_json::Error> {
    agent.definition.read().map(|OfRun { tools, .. }| tools)
}

/// Returns the agent's own definition for a run, if the run is its.
fn own_definition(
    own: &AgentDefinition,
    started: &RunStarted,
    agent: &AgentRecord,
) -> Result<AgentDefinition, ResumeError> {
    // It began with another definition, and the record has this one too.
    if *agent != *started.agent {
        let digest = record(own).agent.digest;
        return match digest == agent.digest {
            true => recorded_definition(started),
            false => Err(ResumeError::other_definition(agent, own)),
        };
    }
    let mut own = own.clone();
    let unreadable = |error: serde_json::Error| {
        ResumeError::other_agent(&started.agent.digest, &error.to_string())
    };
    let digest = match &started.definition_digest {
        Some(_) => {
            own.output_schema = started.output_schema.as_deref().cloned();
            record(&own).agent.digest
        }
        // The first layout had one digest, of all that was resolved.
        None => {
            let OfRun { output_schema, .. } =
                started.agent.definition.read().map_err(unreadable)?;
            own.output_schema = output_schema;
            let text = JsonText::from_value(&own);
            let text =
                text.expect("schemas and sources are nested less deeply than a record may be");
            digest(&text).into()
        }
    };
    if digest != started.agent.digest {
        return Err(ResumeError::other_definition(&started.agent, &own));
    }
    // A run keeps to the tools that it was given; those of its own the agent has as they were.
    if started.mcp.is_some() || own.tools.iter().any(is_listed_elsewhere) {
        own.tools = read_tools(&started.agent).map_err(unreadable)?;
    }
    Ok(own)
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
    definition: CheckedDefinition,
    events: &[Event],
) -> Result<Replayed, ResumeError> {
    let schema = definition.output_schema.clone();
    let own = events.first().map(|event| &event.run);
    let mut runs = events.iter().filter_map(copied_from).chain(own).cloned();
    let first = runs.next().unwrap_or_else(|| "".into());
    let mut setup = Setup::new(first);
    if let Some(schema) = schema {
        setup = setup.checking_output(output_check(&schema).map_err(unusable)?);
    }
    let mut replay = Replay::new(definition, setup, runs);
    for event in events {
        let mut entry = MachineEntry::new(event.seq, event.at, event.actor, event.kind.clone());
        entry.caused_by = event.caused_by;
        replay.next(&entry)?;
    }
    Ok(replay.finish())
}

/// Makes the error of an unreadable definition in `run.started`.
fn unreadable(error: serde_json::Error) -> LogError {
    LogError::unreadable(1, DecodeError::payload("run.started", error))
}

/// Makes the error of a recorded agent that cannot be run.
fn unusable(error: impl Display) -> ResumeError {
    ResumeError::other_agent("", &error.to_string())
}

impl ResumeError {
    fn other_agent(expected: &str, actual: &str) -> Self {
        let (expected, actual) = (Value::from(expected), Value::from(actual));
        Divergence::new(1, "agent", expected, actual).into()
    }

    /// Makes the error of a run that began with another definition, with the values that differ.
    fn other_definition(recorded: &AgentRecord, own: &AgentDefinition) -> Self {
        let own = record(own).agent;
        let (was, is) = (list_values(&recorded.definition), list_values(&own.definition));
        let differing = |these: &Map<String, Value>, others: &Map<String, Value>| {
            let changed = these.iter().filter(|(key, value)| others.get(*key) != Some(*value));
            changed.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>()
        };
        let (expected, actual) = (differing(&was, &is), differing(&is, &was));
        if expected.is_empty() && actual.is_empty() {
            return Self::other_agent(&recorded.digest, &own.digest);
        }
        Divergence::new(1, "agent", expected.into(), actual.into()).into()
    }
}

/// Returns the values that identify an agent, by key, such as `instructions` or `limits.max_iterations`.
fn list_values(definition: &JsonText) -> Map<String, Value> {
    let Value::Object(values) = definition.value() else { return Map::new() };
    let mut list = Map::new();
    for (key, value) in values {
        match value {
            _ if ["output_schema", "price", "runtime"].contains(&&*key) => {}
            Value::Object(inner) => {
                list.extend(
                    inner.into_iter().map(|(part, value)| (format!("{key}.{part}"), value)),
                );
            }
            value => {
                list.insert(key, value);
            }
        }
    }
    list
}
