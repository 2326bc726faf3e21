//! Replay: the same facts lead to the same decisions, or the record is not that of this agent.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use layer0::code;
use layer0::event::{Actor, EventKind, WaitFor};
use layer0::failure::{Effect as WorldEffect, Facts, Failure};
use layer0::id::{CallId, RunId};
use serde_json::Value;
use thiserror::Error;

use crate::definition::CheckedDefinition;
use crate::io::{MachineAction, MachineEntry, MachineInput, MachineOutput, ToolRun};
use crate::machine::{Machine, Setup};

/// Replay that rebuilds a machine from the record of its run, entry by entry. Facts are fed to the machine; its
/// decisions are compared with the recorded ones, by type and data.
///
/// Calls of the runtime without a fact (time passed, a call needs a person) are repeated where the record shows that
/// they were made.
#[derive(Debug, Clone)]
pub struct Replay {
    machine: Machine,
    decided: VecDeque<MachineEntry>,
    /// Requested executions, by call; open ones can run again.
    executions: BTreeMap<CallId, ToolRun>,
    /// Remaining ids of forks that the run becomes.
    copies: VecDeque<RunId>,
}

/// The result of a replay.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Replayed {
    /// The machine as the record leaves it.
    pub machine: Machine,
    /// Its decisions beyond the end of the record.
    pub beyond: Vec<MachineEntry>,
    /// Requested executions of the run, by call.
    pub executions: BTreeMap<CallId, ToolRun>,
}

/// The first difference between a record and the machine's decisions.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("replay diverged at seq {seq}: `{kind}` was recorded")]
#[non_exhaustive]
pub struct Divergence {
    /// Position in the run.
    pub seq: u64,
    /// The type of the recorded event.
    pub kind: &'static str,
    /// The recorded event.
    pub expected: Value,
    /// The machine's decision, or the reason that it refused the fact; null if it decided nothing.
    pub actual: Value,
}

impl Divergence {
    /// Returns the error.
    #[must_use]
    pub const fn new(seq: u64, kind: &'static str, expected: Value, actual: Value) -> Self {
        Self { seq, kind, expected, actual }
    }

    /// Returns the error for a decision of the machine where the record ends.
    #[must_use]
    pub fn beyond_the_end(seq: u64, decided: &EventKind) -> Self {
        Self::new(seq, "end", Value::Null, as_value(decided))
    }
}

impl Replay {
    /// Starts with a new machine. `copies` are the ids that the run takes with each `run.forked`.
    #[must_use]
    pub fn new(
        definition: CheckedDefinition,
        setup: Setup,
        copies: impl IntoIterator<Item = RunId>,
    ) -> Self {
        Self {
            machine: Machine::new(definition, setup),
            decided: VecDeque::new(),
            executions: BTreeMap::new(),
            copies: copies.into_iter().collect(),
        }
    }

    /// Takes the next recorded entry.
    ///
    /// # Errors
    ///
    /// [`Divergence`] if the entry is not the next one.
    pub fn next(&mut self, recorded: &MachineEntry) -> Result<(), Divergence> {
        if let EventKind::RunForked(forked) = &recorded.kind {
            let beyond = self.decided.drain(..).collect();
            let child = self.copies.pop_front().unwrap_or_else(|| "".into());
            self.machine.fork(recorded.at, child, forked.clone(), beyond);
            self.drain();
        }
        if self.decided.is_empty() {
            self.tell(recorded);
        }
        if self.decided.is_empty() && recorded.actor != Actor::Machine {
            let fact = MachineInput::fact(recorded.at, recorded.kind.clone());
            if let Err(refused) = self.machine.handle(fact) {
                return Err(divergence(recorded, Value::String(refused.to_string())));
            }
            self.drain();
        }
        match self.decided.pop_front() {
            Some(entry)
                if entry.actor == recorded.actor && same_decision(&entry.kind, &recorded.kind) =>
            {
                Ok(())
            }
            Some(entry) => Err(divergence(recorded, as_value(&entry.kind))),
            None => Err(divergence(recorded, Value::Null)),
        }
    }

    /// Ends the replay.
    #[must_use]
    pub fn finish(self) -> Replayed {
        let Self { machine, decided, executions, .. } = self;
        Replayed { machine, beyond: decided.into(), executions }
    }

    /// Makes the calls to the machine that this entry follows from.
    fn tell(&mut self, recorded: &MachineEntry) {
        if recorded.actor != Actor::Machine {
            return;
        }
        match &recorded.kind {
            EventKind::ApprovalRequested(asked) => {
                // A call without a possible approval shows as a divergence.
                let _ = self.machine.hold(recorded.at, &asked.call_id, asked.arguments.clone());
            }
            EventKind::BudgetExhausted(_) => self.machine.tick(recorded.at),
            EventKind::RunWaiting(waiting) if waiting.r#for == WaitFor::Budget => {
                self.machine.tick(recorded.at);
                self.machine.wait_below(recorded.at);
            }
            EventKind::RunWaiting(_) => self.machine.wait_below(recorded.at),
            _ => {}
        }
        self.drain();
    }

    fn drain(&mut self) {
        loop {
            match self.machine.poll() {
                MachineOutput::Append(entry) => self.decided.push_back(entry),
                MachineOutput::Perform(MachineAction::RunTool(run)) => {
                    self.executions.insert(run.call_id.clone(), run);
                }
                MachineOutput::Perform(_) => {}
                MachineOutput::Wait | MachineOutput::Finish(_) => return,
            }
        }
    }
}

/// Returns whether two decisions are the same except for texts for people and models, which may change between
/// versions.
fn same_decision(decided: &EventKind, recorded: &EventKind) -> bool {
    let alike = |(decided, recorded): (Value, Value)| decided == recorded;
    // Events that cannot be converted are the same only as a whole.
    decided == recorded || without_words(decided).zip(without_words(recorded)).is_some_and(alike)
}

fn without_words(kind: &EventKind) -> Option<Value> {
    let mut value = serde_json::to_value(kind).ok()?;
    if let Some(fields) = value.as_object_mut() {
        if let Some(error) = fields.get_mut("error").and_then(Value::as_object_mut) {
            error.remove("message");
            // The text of a failure for the model.
            fields.remove("output");
        }
        fields.remove("message");
        fields.remove("chain");
    }
    Some(Value::from_iter([(kind.event_type(), value)]))
}

impl Failure for Divergence {
    fn facts(&self) -> Facts {
        Facts::never(code::REPLAY_DIVERGED, WorldEffect::None)
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        let (Value::Object(was), Value::Object(is)) = (&self.expected, &self.actual) else {
            return None;
        };
        if self.kind != "agent" {
            return None;
        }
        if let Some(name) = was.get("name").and_then(Value::as_str) {
            return Some(
                format!("the run is one of agent `{name}`: resume it with that agent").into(),
            );
        }
        let keys: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
        let keys: Vec<String> = keys.into_iter().map(|key| format!("`{key}`")).collect();
        Some(
            format!(
                "changed since the run began: {}; give the agent as it was, or continue with the new definition: \
                 `ResumeRequest::allow_other_agent`",
                keys.join(", ")
            )
            .into(),
        )
    }
}

fn divergence(recorded: &MachineEntry, actual: Value) -> Divergence {
    let kind = &recorded.kind;
    Divergence::new(recorded.seq, kind.event_type(), as_value(kind), actual)
}

/// Returns an event as JSON for people; an event that cannot be converted becomes text.
fn as_value(kind: &EventKind) -> Value {
    serde_json::to_value(kind)
        .unwrap_or_else(|error| format!("{} ({error})", kind.event_type()).into())
}
