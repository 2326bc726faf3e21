//! The judge: it reads a history and states, by SPEC alone, what has to come next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use layer0::event::{EventKind, ModelResponded};
use layer0::id::{CallId, RunId};
use layer0::usage::Allowance;

use super::due::{Due, DueAnswer};
use super::history::{Happening, Performed, Used, model_calls, used, wall_ms};
use super::repeats::{Repetitions, result};
use super::rules::{Budgets, CallStatus, JudgedCall, Rules};

/// The activity of a run.
#[derive(Debug, Clone)]
pub(super) enum Activity {
    Unstarted,
    Hooks(&'static str, Step),
    ReadingMemory,
    AskingModel(ModelTurn),
    Parked(ModelTurn),
    /// The caller is asked for more before this call.
    AskingBudget(ModelTurn),
    Calls,
    WritingMemory(RunEnd),
    Over(RunEnd),
}

/// A step that hooks come before.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Start,
    Ask(ModelTurn),
    Read(ModelTurn, Box<ModelResponded>),
    End(RunEnd),
}

/// A model call, from its first request on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ModelTurn {
    pub(super) call: u32,
    pub(super) attempts: u32,
    pub(super) pauses: u32,
    pub(super) is_second_try: bool,
    /// Whether the last attempt failed and no other follows.
    pub(super) is_given_up: bool,
    /// Whether the last attempt that was begun is recorded.
    pub(super) is_recorded: bool,
}

/// The end of a run, as its last event has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunEnd {
    /// `completed`, `failed`, ….
    pub(super) outcome: &'static str,
    pub(super) reason: Option<String>,
    pub(super) output: String,
    /// The evidence of a guard, whose count begins anew once the run is reopened.
    pub(super) evidence: Option<String>,
}

/// A run below.
#[derive(Debug, Clone)]
pub(super) struct OpenDispatch {
    pub(super) run: RunId,
    pub(super) call: CallId,
    pub(super) share: Allowance,
    pub(super) is_unrecorded: bool,
    /// The reason of a wait, with its approvals.
    pub(super) waits: Option<(layer0::event::WaitFor, Vec<String>)>,
}

/// The progress of a run's beginning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Beginning {
    Unadmitted,
    Admitted,
    Done,
}

/// The judge of one history.
#[derive(Debug, Clone)]
pub(crate) struct Judge {
    pub(super) rules: Rules,
    pub(super) events: Vec<(i64, EventKind)>,
    pub(super) now: i64,
    pub(super) activity: Activity,
    pub(super) due: VecDeque<Due>,
    pub(super) due_effects: Vec<Performed>,
    pub(super) calls: Vec<JudgedCall>,
    /// Whether the caller is asked for more before the calls are looked at.
    pub(super) calls_ask_budget: bool,
    /// Whether a call was kept from running by the budget.
    pub(super) has_cancelled: bool,
    /// Whether the run continues once the answers that are due arrived.
    pub(super) goes_on_next: bool,
    /// The call after whose answer the run fails, with the reason.
    pub(super) stops_after: Option<(CallId, String)>,
    pub(super) dispatches: Vec<OpenDispatch>,
    pub(super) is_waiting: bool,
    pub(super) parked_until: Option<i64>,
    pub(super) repetitions: Repetitions,
    /// Answered calls of unknown outcome, with their tools.
    pub(super) unsettled: BTreeMap<CallId, String>,
    /// Calls with a run below without a record that may have acted.
    pub(super) acted_below: BTreeSet<CallId>,
    /// Running calls that a probe settled.
    pub(super) probed: BTreeSet<CallId>,
    pub(super) call_ids: BTreeSet<CallId>,
    pub(super) approvals: BTreeSet<String>,
    pub(super) crashes: u32,
    pub(super) beginning: Beginning,
    /// Model calls of earlier episodes.
    pub(super) calls_before: u32,
    pub(super) last_text: String,
    /// Messages that the model is sent.
    pub(super) messages: u32,
    pub(super) has_further_input: bool,
    pub(super) instructions: u32,
}

/// The rule that a history breaks.
pub(crate) type Complaint = String;

/// Reads a whole history.
pub(crate) fn judge(rules: &Rules, history: &[Happening]) -> Result<(), Complaint> {
    let mut judge = Judge::new(rules.clone());
    for (place, happening) in history.iter().enumerate() {
        judge.read(happening).map_err(|complaint| format!("at {place}: {complaint}"))?;
    }
    Ok(())
}

impl Judge {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            events: Vec::new(),
            now: 0,
            activity: Activity::Unstarted,
            due: VecDeque::new(),
            due_effects: Vec::new(),
            calls: Vec::new(),
            calls_ask_budget: false,
            has_cancelled: false,
            goes_on_next: false,
            stops_after: None,
            dispatches: Vec::new(),
            is_waiting: false,
            parked_until: None,
            repetitions: Repetitions::default(),
            unsettled: BTreeMap::new(),
            acted_below: BTreeSet::new(),
            probed: BTreeSet::new(),
            call_ids: BTreeSet::new(),
            approvals: BTreeSet::new(),
            crashes: 0,
            beginning: Beginning::Unadmitted,
            calls_before: 0,
            last_text: String::new(),
            messages: 0,
            has_further_input: false,
            instructions: 1,
        }
    }

    /// Reads what happened next.
    pub(crate) fn read(&mut self, happening: &Happening) -> Result<(), Complaint> {
        match happening {
            Happening::Event { at, kind } => self.read_event(*at, kind),
            Happening::Effect(effect) => {
                let place = self.due_effects.iter().position(|due| due == effect);
                let place = place
                    .ok_or_else(|| format!("{effect:?} is not due, but {:?}", self.due_effects))?;
                self.due_effects.remove(place);
                Ok(())
            }
            Happening::Told { at } => {
                self.tell(*at);
                Ok(())
            }
            Happening::WaitsBelow => {
                self.wait_below();
                Ok(())
            }
            Happening::Rest(status) => match (self.due.front(), self.due_effects.first()) {
                (None, None) if self.status() == *status => Ok(()),
                (None, None) => Err(format!("{status:?}, not {:?}", self.status())),
                (due, effect) => Err(format!("nothing came, though {due:?} {effect:?} is due")),
            },
            Happening::Died => {
                self.due_effects.clear();
                Ok(())
            }
            Happening::Reopenable { more, allowed } => {
                let may = self.may_reopen(more.as_deref());
                let is_right = may == *allowed;
                is_right.then_some(()).ok_or_else(|| format!("reopening is allowed: {may}"))
            }
        }
    }

    fn read_event(&mut self, at: i64, kind: &EventKind) -> Result<(), Complaint> {
        if at < self.now {
            return Err(format!("time went back before {}", kind.event_type()));
        }
        if self.due.is_empty() {
            self.now = at;
            self.events.push((at, kind.clone()));
            return self.read_fact(kind).map_err(|why| format!("{}: {why}", kind.event_type()));
        }
        if at != self.now {
            return Err(format!("{} came later than what it follows from", kind.event_type()));
        }
        // Answers that are due together come in any order.
        let answers = self.due.iter().take_while(|due| matches!(due, Due::Answer(_))).count();
        let first = (0..answers.max(1)).find(|place| self.due[*place].is_met(self, kind));
        let Some(place) = first else {
            return Err(format!("{kind:?} came, though {:?} is due", self.due.front()));
        };
        self.due.remove(place);
        self.events.push((at, kind.clone()));
        if let EventKind::ToolResponded(answer) = kind
            && let Some(call) = self.calls.iter_mut().find(|call| call.id == answer.call_id)
        {
            call.status = CallStatus::Answered { result: result(answer) };
        }
        if self.due.is_empty() && std::mem::take(&mut self.goes_on_next) {
            self.go_on();
        }
        Ok(())
    }

    /// Continues with the calls once every answer that is due arrived.
    pub(super) fn continue_once_answered(&mut self) {
        if self.due.is_empty() {
            self.go_on();
        } else {
            self.goes_on_next = true;
        }
    }

    /// Returns the calls that a new process resumes because they only dispatch.
    pub(crate) fn calls_that_resume(&self) -> Vec<CallId> {
        let running = self.calls.iter().filter(|call| call.is_running());
        running.filter(|call| self.resumes(&call.id, &call.tool)).map(|it| it.id.clone()).collect()
    }

    /// Returns the calls that may be running.
    pub(crate) fn running_calls(&self) -> Vec<CallId> {
        self.calls.iter().filter(|call| call.is_running()).map(|call| call.id.clone()).collect()
    }

    /// Returns the tool of a call.
    pub(crate) fn tool_name(&self, id: &CallId) -> Arc<str> {
        let call = self.calls.iter().find(|call| call.id == *id);
        call.map(|call| call.tool.as_str().into()).unwrap_or_default()
    }

    pub(crate) fn attempts_limit(&self) -> Option<u64> {
        self.budgets().effective().attempts
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = &EventKind> {
        self.events.iter().map(|(_, kind)| kind)
    }

    pub(super) fn used(&self) -> Used {
        used(self.kinds())
    }

    pub(super) fn wall_ms(&self, told: Option<i64>) -> u64 {
        wall_ms(self.events.iter().map(|(at, kind)| (*at, kind)), told)
    }

    pub(super) fn model_calls(&self) -> u32 {
        model_calls(self.kinds())
    }

    /// Returns how many events there are, with those that are due.
    pub(super) fn event_count(&self) -> u64 {
        (self.events.len() + self.due.len()) as u64
    }

    pub(super) fn budgets(&self) -> Budgets {
        Budgets::read(&self.rules, self.kinds())
    }

    pub(super) fn answer_due(&mut self, answer: DueAnswer) {
        self.due.push_back(Due::Answer(answer));
    }
}
