//! A machine that gets facts one by one, with all its outputs.

use std::time::Duration;

use backstop_react_machine::*;
use layer0::event::*;
use layer0::id::CallId;
use layer0::message::{StopReason, ToolCall};
use layer0::usage::{Allowance, TokenUsage};
use layer0::{Timestamp, ToolSpec};
use serde_json::{Value, json};

use crate::world::started;

/// A machine, its record, and its effects.
pub(crate) struct Script {
    pub(crate) machine: Machine,
    pub(crate) log: Vec<MachineEntry>,
    pub(crate) effects: Vec<MachineAction>,
    pub(crate) finish: Option<Finish>,
    pub(crate) now: i64,
}

/// An agent with one tool of each kind.
pub(crate) fn agent() -> AgentDefinition {
    let tool = |name: &str| ToolSpec::new(name, "", json!({ "type": "object" }));
    let mut definition = AgentDefinition::new("prop", "Be brief.");
    definition.tools = [
        tool("plain"),
        tool("safe").idempotent(),
        tool("probed").probe(),
        tool("below").dispatches(),
        tool("asked").approvers(["ops"]).expires_after(Duration::from_secs(60)),
    ]
    .into();
    definition
}

/// The same agent with a memory.
pub(crate) fn remembering() -> AgentDefinition {
    let mut definition = agent();
    definition.memory = true;
    definition
}

impl Script {
    pub(crate) fn new(definition: AgentDefinition) -> Self {
        Self::start(definition, started())
    }

    pub(crate) fn start(definition: AgentDefinition, started: RunStarted) -> Self {
        Self::set_up(definition, Setup::new("run_1".into()), started)
    }

    pub(crate) fn set_up(definition: AgentDefinition, setup: Setup, started: RunStarted) -> Self {
        let machine = Machine::new(CheckedDefinition::new(definition).unwrap(), setup);
        let (log, effects) = (Vec::new(), Vec::new());
        let mut script = Self { machine, log, effects, finish: None, now: 1_000 };
        script.take(started);
        script
    }

    /// A run whose model has asked for these calls, by tool; their ids are `c0`, `c1`, ….
    pub(crate) fn asking(definition: AgentDefinition, tools: &[&str]) -> Self {
        let mut script = Self::new(definition);
        script.call(tools);
        script
    }

    /// Returns a run whose calls are running.
    pub(crate) fn at_work(definition: AgentDefinition, tools: &[&str]) -> Self {
        let mut script = Self::asking(definition, tools);
        for (index, tool) in tools.iter().enumerate() {
            script.begin(&format!("c{index}"), tool);
        }
        script.effects.clear();
        script
    }

    pub(crate) fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    /// Takes a fact with the current time.
    pub(crate) fn take(&mut self, fact: impl Into<EventKind>) {
        self.machine.handle(MachineInput::fact(self.at(), fact)).unwrap();
        self.drain();
    }

    /// Takes a fact after so many milliseconds.
    pub(crate) fn take_after(&mut self, ms: i64, fact: impl Into<EventKind>) {
        self.now += ms;
        self.take(fact);
    }

    /// Returns why a fact is refused, which changes nothing.
    pub(crate) fn refusal(&mut self, fact: impl Into<EventKind>) -> String {
        let before = self.machine.clone();
        let refused = self.machine.handle(MachineInput::fact(self.at(), fact)).unwrap_err();
        assert_eq!(self.machine, before, "a refused input changes nothing");
        refused.to_string()
    }

    pub(crate) fn drain(&mut self) {
        loop {
            match self.machine.poll() {
                MachineOutput::Append(entry) => self.log.push(entry),
                MachineOutput::Perform(effect) => self.effects.push(effect),
                MachineOutput::Finish(finish) => return self.finish = Some(finish),
                _ => return self.finish = None,
            }
        }
    }

    /// The model asks for calls of these tools.
    pub(crate) fn call(&mut self, tools: &[&str]) {
        let calls = tools.iter().enumerate();
        let calls = calls.map(|(at, tool)| ToolCall::new(format!("c{at}"), *tool, json!({})));
        self.respond(StopReason::ToolUse, "", calls.collect());
    }

    /// The model answers its first call.
    pub(crate) fn respond(&mut self, stop: StopReason, text: &str, calls: Vec<ToolCall>) {
        let number = self.machine.usage().model_calls;
        let answer = ModelResponded::new(number, text, calls.into(), stop, TokenUsage::default());
        self.take(answer);
    }

    /// A call is admitted.
    pub(crate) fn begin(&mut self, call: &str, tool: &str) {
        let execution = self.machine.next_execution();
        self.take(ToolRequested::new(call, tool, json!({}), execution));
    }

    /// A call has to be agreed to.
    pub(crate) fn hold(&mut self, call: &str) {
        self.machine.hold(self.at(), &call.into(), json!({}).into()).unwrap();
        self.drain();
    }

    /// A call is answered.
    pub(crate) fn end(&mut self, call: &str, tool: &str) {
        self.take(ToolResponded::success(call, tool, json!("done"), 1));
    }

    /// A call dispatches a run.
    pub(crate) fn dispatch(&mut self, call: &str, run: &str) {
        self.take(dispatched(call, run));
    }

    /// The process of the run has died, and another one has it now.
    pub(crate) fn recover(&mut self) -> RunRecovered {
        let lost = self.machine.find_lost_steps();
        self.take(lost.clone());
        lost
    }

    /// Returns the types of the events from this place on.
    pub(crate) fn types(&self, from: usize) -> Vec<&'static str> {
        self.log[from..].iter().map(|entry| entry.kind.event_type()).collect()
    }

    pub(crate) fn last(&self) -> &MachineEntry {
        self.log.last().unwrap()
    }

    /// Returns the code of the end.
    pub(crate) fn reason(&self) -> String {
        match &self.finish {
            Some(Finish::Stopped { stop, .. }) => {
                stop.reason().map_or("".into(), |it| it.to_string())
            }
            Some(Finish::Failed(failure)) => failure.code().to_string(),
            other => panic!("{other:?}"),
        }
    }
}

/// Ids of calls.
pub(crate) fn ids(ids: &[&str]) -> Vec<CallId> {
    ids.iter().map(|id| CallId::from(*id)).collect()
}

pub(crate) fn dispatched(call: &str, run: &str) -> OperatorDispatched {
    let allowance = Box::new(Allowance::without_bounds());
    let mut dispatched = OperatorDispatched::new("child", run, 1, "digest", allowance);
    dispatched.call_id = Some(call.into());
    dispatched
}

pub(crate) fn waiting(run: &str) -> OperatorWaiting {
    OperatorWaiting::new("child", run, WaitFor::Approval, vec!["apr_below".into()])
}

/// Returns the data of an entry.
pub(crate) fn data(entry: &MachineEntry) -> Value {
    serde_json::to_value(&entry.kind).unwrap()
}
