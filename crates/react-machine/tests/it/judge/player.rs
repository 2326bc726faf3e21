//! A world that drives the machine by moves, and hands the history to the judge.

use std::time::Duration;

use backstop_react_machine::*;
use layer0::Timestamp;
use layer0::event::*;
use layer0::id::CallId;
use layer0::usage::BudgetIncrease;
use serde_json::json;

use super::agent::{allowance, setup};
use super::history::{Happening, Performed, Status};
use super::model::Judge;
use super::moves::Move;
use super::rules::Rules;

/// A run in play.
#[derive(Debug, Clone)]
pub(crate) struct Player {
    pub(crate) machine: Machine,
    pub(crate) rules: Rules,
    pub(crate) judge: Judge,
    pub(crate) history: Vec<Happening>,
    pub(crate) log: Vec<MachineEntry>,
    pub(super) now: i64,
    pub(super) model: Option<ModelCall>,
    pub(super) batches: Vec<ToolBatch>,
    /// Whether the memory is asked: to read (true), to write (false).
    pub(super) memory: Option<bool>,
    pub(super) running: Vec<CallId>,
    pub(super) probing: Vec<CallId>,
}

impl Player {
    pub(crate) fn new(rules: Rules, input: &str) -> Self {
        let (definition, setup) = setup(&rules);
        let machine = Machine::new(definition, setup);
        let mut player = Self::resumed(machine, rules.clone(), Judge::new(rules.clone()));
        let mut started =
            RunStarted::new(input, "s".into(), AgentRecord::new("judged", "d", json!({})));
        started.machine = VERSION;
        if let Some(share) = rules.share {
            started.parent = Some("run_0".into());
            started.allowance = Some(Box::new(allowance(share)));
        }
        player.accept(started);
        player
    }

    /// Makes a player of a run that another process began.
    pub(crate) fn resumed(machine: Machine, rules: Rules, judge: Judge) -> Self {
        Self {
            now: machine.now().as_millis().max(1_000),
            machine,
            rules,
            judge,
            history: Vec::new(),
            log: Vec::new(),
            model: None,
            batches: Vec::new(),
            memory: None,
            running: Vec::new(),
            probing: Vec::new(),
        }
    }

    pub(super) fn tell(&mut self, happening: Happening) {
        let read = self.judge.read(&happening);
        self.history.push(happening);
        if let Err(complaint) = read {
            let events: Vec<_> = self.log.iter().map(|it| it.kind.event_type()).collect();
            panic!("{complaint}\n{events:?}\n{:#?}", self.rules);
        }
    }

    pub(super) fn at(&mut self) -> Timestamp {
        self.now += 7;
        Timestamp::from_millis(self.now)
    }

    pub(super) fn accept(&mut self, fact: impl Into<EventKind>) {
        let at = self.at();
        self.accept_at(at, fact);
    }

    pub(super) fn accept_at(&mut self, at: Timestamp, fact: impl Into<EventKind>) {
        let fact = fact.into();
        if let Err(refused) = self.machine.handle(MachineInput::fact(at, fact.clone())) {
            let events: Vec<_> = self.log.iter().map(|it| it.kind.event_type()).collect();
            panic!("{refused}: {fact:?}\n{events:?}\n{:#?}", self.rules);
        }
        self.drain();
    }

    /// Gives the machine a fact that it may refuse.
    pub(super) fn offer(&mut self, fact: impl Into<EventKind>) -> bool {
        let at = self.at();
        let taken = self.machine.handle(MachineInput::fact(at, fact)).is_ok();
        self.drain();
        taken
    }

    pub(super) fn drain(&mut self) {
        loop {
            match self.machine.poll() {
                MachineOutput::Append(entry) => self.record(entry),
                MachineOutput::Perform(effect) => self.perform(effect),
                MachineOutput::Wait => break,
                MachineOutput::Finish(_) => {
                    self.drop_in_flight();
                    break;
                }
                other => panic!("unknown output {other:?}"),
            }
        }
        self.model.take_if(|call| !self.machine.is_asking(call.id));
        self.rest();
    }

    fn rest(&mut self) {
        let open = self.machine.open_approvals();
        let mut approvals: Vec<_> = open.map(|it| it.id.as_str().to_owned()).collect();
        let mut unsettled: Vec<_> =
            self.machine.unsettled_calls().map(|(id, _)| id.clone()).collect();
        approvals.sort();
        unsettled.sort();
        self.tell(Happening::Rest(Status {
            is_waiting: self.machine.is_waiting(),
            parked_until: self.machine.parked_until().map(Timestamp::as_millis),
            approvals,
            unsettled,
            executions_left: self.machine.executions_left().into(),
        }));
    }

    pub(super) fn record(&mut self, entry: MachineEntry) {
        let (at, kind) = (entry.at.as_millis(), entry.kind.clone());
        if let EventKind::ToolResponded(it) = &kind {
            self.running.retain(|call| *call != it.call_id);
            self.probing.retain(|call| *call != it.call_id);
        }
        self.log.push(entry);
        self.tell(Happening::Event { at, kind });
    }

    fn perform(&mut self, effect: MachineAction) {
        let performed = match effect {
            MachineAction::CallModel(call) => {
                let (number, attempts_before) = (call.call, call.attempts_before);
                self.model = Some(call);
                Performed::CallModel { call: number, attempts_before }
            }
            MachineAction::AdmitTools(batch) => {
                let calls = batch.calls.iter().map(|call| call.id.clone()).collect();
                let (max, approved) = (u64::from(batch.max_executions), batch.approved);
                self.batches.push(batch);
                Performed::Admit { calls, max_executions: max, approved }
            }
            MachineAction::RunTool(run) => {
                self.running.push(run.call_id.clone());
                Performed::Run(run.call_id)
            }
            MachineAction::Rerun { call_id, .. } => {
                self.running.push(call_id.clone());
                Performed::Rerun(call_id)
            }
            MachineAction::Probe { call_id, .. } => {
                self.probing.push(call_id.clone());
                Performed::Probe(call_id)
            }
            MachineAction::ReadMemory { .. } => {
                self.memory = Some(true);
                Performed::ReadMemory
            }
            MachineAction::WriteMemory { .. } => {
                self.memory = Some(false);
                Performed::WriteMemory
            }
            MachineAction::RunHooks(pause) => {
                if matches!(pause, Pause::RunEnd(_)) {
                    self.drop_in_flight();
                }
                Performed::Hooks(pause.point().as_str())
            }
            MachineAction::AskBudget { given } => Performed::AskBudget { given },
            MachineAction::AskApproval(approval) => {
                Performed::AskApproval(approval.id.as_str().to_owned())
            }
            other => panic!("unknown effect {other:?}"),
        };
        self.tell(Happening::Effect(performed));
    }

    pub(super) fn drop_in_flight(&mut self) {
        (self.model, self.memory) = (None, None);
        self.batches.clear();
        self.running.clear();
        self.probing.clear();
    }

    /// The process dies, and another one takes the run over.
    pub(super) fn die(&mut self) {
        if self.machine.is_over() {
            return;
        }
        self.tell(Happening::Died);
        if self.machine.is_waiting() {
            // Nothing was lost.
            return self.accept(RunResumed::new("ops"));
        }
        self.drop_in_flight();
        self.recover();
    }

    /// Recovers a run whose process died while it did not wait.
    pub(crate) fn recover(&mut self) {
        // Child runs that no call continues ended with the process.
        let open = self.machine.open_dispatches().to_vec();
        let going_on = |open: &&ChildDispatch| self.machine.is_gone_on_with(&open.call_id);
        let (_, dead): (Vec<_>, Vec<_>) = open.iter().partition(going_on);
        for dead in dead {
            let usage = super::below::used_of(&dead.allowance, 0);
            let (operator, run) = (dead.operator.clone(), dead.run.clone());
            let outcome = layer0::stop::Outcome::Failed;
            let returned = OperatorReturned::new(operator, run, outcome, None, usage);
            self.accept_at(self.machine.now(), returned);
        }
        let lost = self.machine.find_lost_steps();
        self.accept(lost);
        self.running.extend(self.judge.calls_that_resume());
    }

    /// Takes over a run whose process died after its last event.
    pub(crate) fn take_over(&mut self) {
        self.tell(Happening::Died);
        self.rest();
        if self.machine.is_over() {
            return;
        }
        if self.machine.is_waiting() {
            self.running = self.judge.running_calls();
            return self.accept(RunResumed::new("ops"));
        }
        self.recover();
    }

    /// Lets time pass.
    pub(super) fn tick(&mut self, ms: u32) {
        self.now += i64::from(ms);
        self.tell(Happening::Told { at: self.now });
        self.machine.tick(Timestamp::from_millis(self.now));
        self.drain();
    }

    /// Lets time pass until the time budget is used up, or one millisecond less.
    pub(super) fn tick_to_limit(&mut self, early: bool) -> bool {
        let Some(left) = self.judge.time_left(self.now) else { return false };
        self.tick(left.saturating_sub(u32::from(early)));
        true
    }

    pub(super) fn reopen(&mut self, more: bool, says: bool) {
        if !self.machine.is_over() {
            return;
        }
        let increase = BudgetIncrease::new().tool_calls(3).model_calls(4).total_tokens(40);
        let mut increase = increase.wall(Duration::from_secs(60)).events(30);
        (increase.max_input_tokens, increase.max_output_tokens) = (Some(40), Some(40));
        let budget = more.then_some(increase);
        let reopened = self.machine.reopening("ops", says.then(|| "go on".into()), budget);
        let (allowed, more) = (reopened.is_ok(), budget.map(Box::new));
        self.tell(Happening::Reopenable { more, allowed });
        if let Ok(reopened) = reopened {
            self.drop_in_flight();
            self.accept(reopened);
        }
    }

    /// Makes a move, or the plain next step where it does not fit.
    pub(crate) fn make(&mut self, next: Move) {
        if !self.try_move(next) {
            self.step();
        }
    }
}
