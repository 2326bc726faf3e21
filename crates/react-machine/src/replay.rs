//! Replay: the same facts lead to the same decisions, or the record is not this agent's.

use std::collections::{BTreeMap, VecDeque};

use layer0::code;
use layer0::event::{Actor, EventKind, WaitFor};
use layer0::failure::{Effect as WorldEffect, Facts, Failure};
use layer0::id::{CallId, RunId};
use serde_json::Value;
use thiserror::Error;

use crate::definition::CheckedDefinition;
use crate::io::{Effect, Entry, Input, Output, ToolRun};
use crate::machine::{Machine, Setup};

/// Rebuilds a machine from the record of its run, entry by entry. Facts are fed to it; what it
/// decides on them is compared with what was recorded, by type and data.
///
/// What the runtime told the machine without a fact (time passed, a call needs a person) is told again
/// where the record shows that it was.
#[derive(Debug, Clone)]
pub struct Replay {
    machine: Machine,
    decided: VecDeque<Entry>,
    /// Executions that were asked for, by call; those that are open can be run again.
    executions: BTreeMap<CallId, ToolRun>,
    /// Which runs the run becomes yet.
    copies: VecDeque<RunId>,
}

/// What a replay came to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Replayed {
    /// The machine as the record leaves it.
    pub machine: Machine,
    /// What it decided beyond the record's end.
    pub beyond: Vec<Entry>,
    /// What the executions of the run were asked for, by call.
    pub executions: BTreeMap<CallId, ToolRun>,
}

/// The first difference between a record and what the machine makes of it.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("replay diverged at seq {seq}: `{kind}` was recorded")]
#[non_exhaustive]
pub struct Divergence {
    /// The place in the run.
    pub seq: u64,
    /// The type of the recorded event.
    pub kind: &'static str,
    /// The recorded event.
    pub expected: Value,
    /// What the machine decided instead, or why it refused the fact; null when it decided nothing.
    pub actual: Value,
}

impl Divergence {
    /// Makes the error.
    #[must_use]
    pub const fn new(seq: u64, kind: &'static str, expected: Value, actual: Value) -> Self {
        Self { seq, kind, expected, actual }
    }

    /// Says that the machine decided this where the record ends.
    #[must_use]
    pub fn beyond_the_end(seq: u64, decided: &EventKind) -> Self {
        Self::new(seq, "end", Value::Null, as_value(decided))
    }
}

impl Replay {
    /// Begins with a machine to which nothing has happened. `copies` are the runs that the run becomes
    /// by each `run.forked`.
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
    /// [`Divergence`], when the entry is not what follows.
    pub fn next(&mut self, recorded: &Entry) -> Result<(), Divergence> {
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
            let fact = Input::fact(recorded.at, recorded.kind.clone());
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

    /// Tells the machine what it must have been told for this entry to follow.
    fn tell(&mut self, recorded: &Entry) {
        if recorded.actor != Actor::Machine {
            return;
        }
        match &recorded.kind {
            EventKind::ApprovalRequested(asked) => {
                // A call that cannot be asked about shows as a divergence.
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
                Output::Append(entry) => self.decided.push_back(entry),
                Output::Perform(Effect::RunTool(run)) => {
                    self.executions.insert(run.call_id.clone(), run);
                }
                Output::Perform(_) => {}
                Output::Wait | Output::Finish(_) => return,
            }
        }
    }
}

/// Are two decisions the same but for the words that people and models read? Words may change between
/// versions.
fn same_decision(decided: &EventKind, recorded: &EventKind) -> bool {
    let alike = |(decided, recorded): (Value, Value)| decided == recorded;
    // What cannot be looked into is the same only as a whole.
    decided == recorded || without_words(decided).zip(without_words(recorded)).is_some_and(alike)
}

fn without_words(kind: &EventKind) -> Option<Value> {
    let mut value = serde_json::to_value(kind).ok()?;
    if let Some(fields) = value.as_object_mut() {
        if let Some(error) = fields.get_mut("error").and_then(Value::as_object_mut) {
            error.remove("message");
            // The text the model reads of a failure.
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
}

fn divergence(recorded: &Entry, actual: Value) -> Divergence {
    let kind = &recorded.kind;
    Divergence::new(recorded.seq, kind.event_type(), as_value(kind), actual)
}

/// Returns what an event says, for people: what has no tree is told as text.
fn as_value(kind: &EventKind) -> Value {
    serde_json::to_value(kind)
        .unwrap_or_else(|error| format!("{} ({error})", kind.event_type()).into())
}
