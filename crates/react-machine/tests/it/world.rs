//! A world that answers the machine, and keeps the books the laws are checked against.

use std::sync::Arc;
use std::time::Duration;

use backstop_react_machine::*;
use layer0::event::*;
use layer0::id::CallId;
use layer0::message::{StopReason, ToolCall};
use layer0::stop::Stop;
use layer0::usage::{BudgetIncrease, TokenUsage, Usage};
use layer0::{Code, Timestamp, ToolSpec};
use serde_json::json;

mod choice;

pub(crate) use choice::{Choice, Decided, choice};

/// Maximum number of executions of a run, including its child runs.
const MAX_TOOL_CALLS: u32 = 9;

/// Number of further executions of a run that is reopened with a larger budget.
const MORE_TOOL_CALLS: u32 = 4;

/// An agent whose guards leave a history alone for longer.
pub(crate) fn patient() -> Arc<AgentDefinition> {
    let mut definition = (*definition()).clone();
    definition.limits.max_repeated_batch_steps = None;
    definition.limits.max_stagnation_steps = None;
    Arc::new(definition)
}

pub(crate) fn definition() -> Arc<AgentDefinition> {
    let mut definition = AgentDefinition::new("prop", "Be brief.");
    definition.limits.max_iterations = 5;
    definition.limits.max_parallel_tools = 3;
    definition.budget.max_wall_ms = Some(120_000);
    definition.budget.max_tool_calls = Some(MAX_TOOL_CALLS);
    let look = ToolSpec::new("look", "looks", json!({"type": "object"}));
    let look = look.expires_after(Duration::from_secs(60)).approvers(["ops"]);
    definition.tools = Arc::from([look]);
    Arc::new(definition)
}

/// Makes a machine of an agent that can be run.
pub(crate) fn machine(definition: Arc<AgentDefinition>) -> Machine {
    let definition = CheckedDefinition::new(Arc::unwrap_or_clone(definition)).unwrap();
    Machine::new(definition, Setup::new("run_1".into()))
}

/// Hooks at every point.
pub(crate) fn hooks() -> Arc<[HookRecord]> {
    use HookPoint::*;
    let points = vec![RunStart, BeforeModel, AfterModel, BeforeTool, AfterTool, RunEnd];
    Arc::from([HookRecord::new("h", points, true)])
}

pub(crate) fn started() -> RunStarted {
    let agent = AgentRecord::new("prop", "d", json!({}));
    let mut started = RunStarted::new("question", "s".into(), agent);
    started.machine = VERSION;
    started
}

/// Drives a machine through choices and keeps the books the laws are checked against.
pub(crate) struct World {
    pub(crate) machine: Machine,
    pub(crate) log: Vec<MachineEntry>,
    pub(crate) model: Option<ModelCall>,
    pub(crate) attempts: u32,
    /// Batches that wait to be admitted.
    pub(crate) batches: Vec<ToolBatch>,
    /// Pending request to the memory: a read (true) or a write (false).
    pub(crate) memory: Option<bool>,
    pub(crate) open: Vec<ToolRun>,
    /// Every execution that was asked for.
    pub(crate) executions: Vec<ToolRun>,
    /// Model attempts that were lost.
    pub(crate) lost: u32,
    /// Usage of the child runs.
    pub(crate) below: Usage,
    /// Approvals that people are asked for.
    pub(crate) asked: Vec<Approval>,
    pub(crate) finish: Option<Finish>,
    /// Number of episodes of the run.
    pub(crate) episodes: u32,
    /// Number of increases of its budget.
    pub(crate) increased: u32,
    pub(crate) now: i64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::of(definition())
    }

    pub(crate) fn of(definition: Arc<AgentDefinition>) -> Self {
        let machine = machine(definition);
        let mut world = Self {
            machine,
            log: Vec::new(),
            model: None,
            attempts: 0,
            batches: Vec::new(),
            memory: None,
            open: Vec::new(),
            executions: Vec::new(),
            lost: 0,
            below: Usage::default(),
            asked: Vec::new(),
            finish: None,
            episodes: 1,
            increased: 0,
            now: 1_000,
        };
        world.accept(MachineInput::fact(Timestamp::from_millis(1_000), started()));
        world
    }

    pub(crate) fn at(&mut self) -> Timestamp {
        self.now += 7;
        Timestamp::from_millis(self.now)
    }

    pub(crate) fn accept(&mut self, input: MachineInput) {
        self.machine.handle(input).expect("an input that answers what is open is taken");
        self.drain();
    }

    pub(crate) fn drain(&mut self) {
        loop {
            match self.machine.poll() {
                MachineOutput::Append(entry) => {
                    assert!(self.finish.is_none(), "nothing after the end");
                    self.log.push(entry);
                }
                MachineOutput::Perform(MachineAction::CallModel(call)) => {
                    self.attempts = call.attempts_before;
                    self.model = Some(call);
                }
                MachineOutput::Perform(MachineAction::AdmitTools(batch)) => {
                    self.batches.push(batch);
                }
                MachineOutput::Perform(MachineAction::RunHooks(pause)) => {
                    if matches!(pause, Pause::RunEnd(_)) {
                        self.drop_in_flight();
                    }
                }
                MachineOutput::Perform(MachineAction::AskApproval(approval)) => {
                    self.asked.push(approval);
                }
                MachineOutput::Perform(MachineAction::RunTool(run)) => {
                    self.executions.push(run.clone());
                    self.open.push(run);
                }
                MachineOutput::Perform(MachineAction::Rerun { id, call_id }) => {
                    let mut known = self.executions.iter();
                    let run = known.find(|run| run.call_id == call_id).expect("it ran before");
                    let mut run = run.clone();
                    run.id = id;
                    self.open.push(run);
                }
                MachineOutput::Perform(MachineAction::ReadMemory { .. }) => {
                    self.memory = Some(true);
                }
                MachineOutput::Perform(MachineAction::WriteMemory { .. }) => {
                    self.memory = Some(false);
                }
                MachineOutput::Perform(other) => panic!("unknown effect {other:?}"),
                MachineOutput::Wait => return assert!(self.finish.is_none()),
                MachineOutput::Finish(finish) => {
                    assert!(self.finish.is_none(), "one end");
                    self.finish = Some(finish);
                    return;
                }
                other => panic!("unknown output {other:?}"),
            }
        }
    }

    fn die(&mut self) {
        let at = self.at();
        if self.machine.is_waiting() {
            // Nothing was lost; the approvals stay open.
            return self.accept(MachineInput::fact(at, RunResumed::new("ops")));
        }
        self.drop_in_flight();
        if self.now % 2 == 0 {
            self.return_dispatch(0, 1);
        }
        let at = self.at();
        let lost = self.machine.find_lost_steps();
        self.lost += lost.models;
        let mut wrong = lost.clone();
        wrong.rerun.push("never asked for".into());
        self.refused(MachineInput::fact(at, wrong));
        self.accept(MachineInput::fact(at, lost));
        self.check_asks_none();
    }

    /// Returns the number of executions that the run may begin, including all increases.
    pub(crate) fn max_tool_calls(&self) -> u32 {
        MAX_TOOL_CALLS + MORE_TOOL_CALLS * self.increased
    }

    /// Opens the run again, if it is over and its end allows it.
    pub(crate) fn reopen(&mut self, with_budget: bool, says: bool) {
        let more = BudgetIncrease::new().tool_calls(MORE_TOOL_CALLS).model_calls(50);
        let more = more.wall(Duration::from_secs(600));
        let budget = with_budget.then_some(more);
        let reopened = self.machine.reopening("ops", says.then(|| "go on".into()), budget);
        match (&self.finish, reopened) {
            (None, refused) => {
                assert_eq!(refused, Err(NotReopenable::Open));
                let late = RunReopened::new("ops", Some(Code::new("run.cancelled")));
                self.refused(MachineInput::fact(self.last(), late));
            }
            (Some(Finish::Stopped { stop: Stop::Completed, .. }), refused) => {
                assert_eq!(refused, Err(NotReopenable::Completed));
            }
            (Some(_), Err(refused)) => {
                assert!(matches!(refused, NotReopenable::UsedUp { .. }), "{refused}");
                assert!(!with_budget, "{refused}");
            }
            (Some(_), Ok(reopened)) => {
                let mut other = reopened.clone();
                other.reason = Some(Code::new("budget.depth"));
                self.refused(MachineInput::fact(self.last(), other));
                self.episodes += 1;
                self.increased += u32::from(with_budget);
                self.drop_in_flight();
                self.finish = None;
                let at = self.at();
                self.accept(MachineInput::fact(at, reopened));
            }
        }
    }

    fn drop_in_flight(&mut self) {
        (self.model, self.memory) = (None, None);
        self.batches.clear();
        self.open.clear();
        self.asked.clear();
    }

    pub(crate) fn step(&mut self, choice: Choice) {
        if let Choice::Reopen { with_budget, says } = choice {
            return self.reopen(with_budget, says);
        }
        if self.finish.is_some() {
            return self.refused(MachineInput::fact(self.last(), Warning::new("late")));
        }
        if matches!(choice, Choice::Die) {
            return self.die();
        }
        if self.memory.is_some() && !matches!(choice, Choice::Cancel | Choice::Wild { .. }) {
            return self.memory_answer(choice);
        }
        if self.machine.paused_at().is_some()
            && !matches!(
                choice,
                Choice::Cancel
                    | Choice::Settle { .. }
                    | Choice::Tick(_)
                    | Choice::Note
                    | Choice::Wild { .. }
            )
        {
            let bits = if let Choice::Hooks(bits) = choice { bits } else { 0 };
            return self.hooks(bits);
        }
        match choice {
            Choice::Answer { stop, calls, same_ids, text } => {
                self.answer(stop, calls, same_ids, text);
            }
            Choice::Attempt => self.attempt(Some(Code::new("provider.transient"))),
            Choice::Fail => self.fail(),
            Choice::Admit(bits) => self.admit(bits),
            Choice::ToolAnswer { pick, ok, clock_back } => self.tool_answer(pick, ok, clock_back),
            Choice::Retry { pick } => self.retry(pick),
            Choice::Dispatch { pick, used } => self.dispatch(pick, used),
            Choice::AskPerson { pick } => self.ask_person(pick),
            Choice::Note => {
                let at = self.at();
                self.accept(MachineInput::fact(at, Warning::new("note")));
            }
            Choice::Cancel => self.cancel(),
            Choice::Die | Choice::Reopen { .. } => unreachable!("taken above"),
            Choice::Hooks(_) => {
                let before = self.machine.clone();
                let passed = hook_passed(HookPoint::BeforeModel);
                self.machine.handle(MachineInput::fact(self.last(), passed)).expect_err("no pause");
                assert_eq!(self.machine, before, "a refused input changes nothing");
            }
            Choice::Decide { pick, verdict } => self.decide(pick, verdict),
            Choice::ToolHook { pick, after, stop } => self.tool_hook(pick, after, stop),
            Choice::Settle { pick, happened } => self.settle(pick, happened),
            Choice::Tick(ms) => self.tick(ms),
            Choice::Wild { kind, number } => self.wild(kind, number),
        }
    }

    pub(crate) fn memory_answer(&mut self, choice: Choice) {
        let Some(reading) = self.memory.take() else { return };
        let at = self.at();
        let fact: EventKind = match (matches!(choice, Choice::Attempt | Choice::Fail), reading) {
            (true, _) => MemoryDegraded::new("any", "memory.timeout", "m").into(),
            (false, true) => MemoryRead::new(vec!["one".into(), "two".into()]).into(),
            (false, false) => MemoryWrote::new(1).into(),
        };
        self.accept(MachineInput::fact(at, fact));
    }

    /// Lets time pass. A deadline that is due ends the run.
    pub(crate) fn tick(&mut self, ms: u16) {
        self.now += i64::from(ms);
        let is_due = self.machine.deadline().is_some_and(|deadline| deadline <= self.last());
        self.machine.tick(self.last());
        self.drain();
        assert!(!is_due || self.machine.has_answer(), "a due deadline ends nothing");
    }

    pub(crate) fn cancel(&mut self) {
        let at = self.at();
        let signal = SignalReceived::new(CANCEL, json!(null));
        self.accept(MachineInput::fact(at, signal));
    }

    /// Answers the hooks of a pause: mostly they let the run continue.
    fn hooks(&mut self, bits: u8) {
        let Some(point) = self.machine.paused_at() else { return };
        let at = self.last();
        match bits % 16 {
            0 => self.accept(MachineInput::fact(at, hook_failed(point, None, false))),
            1 => self.accept(MachineInput::fact(at, hook_aborted(point))),
            2 => self.accept(MachineInput::fact(at, hook_failed(point, None, true))),
            _ => {
                let wrong = match point {
                    HookPoint::RunEnd => HookPoint::RunStart,
                    _ => HookPoint::RunEnd,
                };
                self.refused(MachineInput::fact(at, hook_passed(wrong)));
                self.accept(MachineInput::fact(at, hook_passed(point)));
            }
        }
    }

    fn tool_hook(&mut self, pick: usize, after: bool, stop: bool) {
        if self.open.is_empty() || !self.batches.is_empty() {
            return;
        }
        let at = self.at();
        let index = pick % self.open.len();
        let id = self.open[index].call_id.clone();
        let point = if after { HookPoint::AfterTool } else { HookPoint::BeforeTool };
        self.accept(MachineInput::fact(at, hook_failed(point, Some(id.clone()), !stop)));
        if after && stop {
            // The answer of the call comes before the end.
            self.open.remove(index);
            self.return_dispatches_of(&id);
            let at = self.at();
            self.accept(MachineInput::fact(at, response(id, true)));
            assert!(self.machine.paused_at().is_some() || self.finish.is_some());
        }
    }

    fn decide(&mut self, pick: usize, verdict: Decided) {
        self.asked.retain(|asked| self.machine.open_approvals().any(|open| open == asked));
        if self.asked.is_empty() {
            return;
        }
        let at = self.at();
        let asked = self.asked.remove(pick % self.asked.len());
        let fact = |by: &str| -> EventKind {
            let (approval_id, call_id) = (asked.id.clone(), asked.call_id.clone());
            let message = Some("no".into());
            let arguments = || json!({ "index": 9 }).into();
            let reason = match verdict {
                Decided::Agreed | Decided::Changed => {
                    let mut granted = ApprovalGranted::new(approval_id, call_id, by);
                    granted.message = message;
                    let changes = matches!(verdict, Decided::Changed) && asked.message.is_none();
                    granted.arguments = changes.then(arguments);
                    granted.data = asked.schema.as_ref().map(|_| crate::asking::data());
                    return granted.into();
                }
                Decided::Denied => "approval.denied",
                Decided::Expired => "approval.expired",
            };
            let mut denied = ApprovalDenied::new(approval_id, call_id, by, reason);
            denied.message = message;
            denied.into()
        };
        if !matches!(verdict, Decided::Expired) {
            self.refused(MachineInput::fact(at, fact("intern")));
        }
        let fact = fact("ops");
        if let EventKind::ApprovalGranted(mut granted) = fact.clone() {
            let is_asked = granted.data.take().is_some();
            granted.data = (!is_asked).then(crate::asking::data);
            self.refused(MachineInput::fact(at, granted));
        }
        self.accept(MachineInput::fact(at, fact.clone()));
        if self.finish.is_none() {
            self.refused(MachineInput::fact(at, fact));
        }
    }

    pub(crate) fn last(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    pub(crate) fn attempt(&mut self, code: Option<Code>) {
        let Some(call) = &self.model else { return };
        let mut attempted = ModelAttempted::new(call.call, self.attempts + 1, "script");
        attempted.code = code;
        attempted.usage = Some(TokenUsage::new(3, 2).cached_tokens(1));
        self.attempts += 1;
        let (id, at) = (call.id, self.at());
        self.accept(MachineInput::answer(at, id, attempted));
    }

    pub(crate) fn answer(&mut self, stop: u8, calls: usize, same_ids: bool, text: u8) {
        if self.model.is_none() {
            return;
        }
        self.attempt(None);
        let Some(call) = self.model.take() else { return };
        let stop_reason = match stop {
            0 => StopReason::MaxTokens,
            1 => StopReason::Refusal,
            2 => StopReason::ContentFilter,
            3 => StopReason::Pause,
            4 => StopReason::ContextExceeded,
            5 => StopReason::Malformed,
            6 => StopReason::from_word("abducted"),
            _ if calls > 0 => StopReason::ToolUse,
            _ => StopReason::End,
        };
        let tool_calls = (0..calls)
            .map(|index| {
                let id = if same_ids { "c".into() } else { format!("c{index}") };
                ToolCall::new(id, "look", json!({ "index": index }))
            })
            .collect();
        let responded = ModelResponded::new(
            call.call,
            ["", " \n", "hm", "answer"][usize::from(text)],
            tool_calls,
            stop_reason,
            TokenUsage::default(),
        );
        let at = self.at();
        self.accept(MachineInput::answer(at, call.id, responded));
    }

    pub(crate) fn fail(&mut self) {
        let Some(call) = self.model.take() else { return };
        let failed = ModelFailed::new(
            call.call,
            "provider.transient",
            vec!["gave up".into()],
            self.attempts,
        );
        let at = self.at();
        self.accept(MachineInput::answer(at, call.id, failed));
    }

    pub(crate) fn admit(&mut self, bits: u8) {
        let Some(batch) = self.batches.pop() else { return };
        for (index, call) in batch.calls.iter().enumerate() {
            let at = self.at();
            if bits & (16 << index) != 0 && !batch.approved {
                self.machine.hold(at, &call.id, call.arguments.clone()).expect("it was asked for");
                self.drain();
            } else if bits & (1 << index) == 0 {
                self.accept(MachineInput::fact(at, response(call.id.clone(), false)));
            } else if self.machine.executions_left() == 0 {
                let mut cancelled = response(call.id.clone(), false);
                cancelled.error = Some(ToolFailure::new("tool.cancelled", BUDGET_CANCELLED));
                self.accept(MachineInput::fact(at, cancelled));
            } else {
                let requested = ToolRequested::new(
                    call.id.clone(),
                    call.name.clone(),
                    call.arguments.clone(),
                    self.machine.next_execution(),
                );
                self.accept(MachineInput::fact(at, requested));
            }
        }
    }

    pub(crate) fn tool_answer(&mut self, pick: usize, ok: bool, clock_back: bool) {
        if self.open.is_empty() || !self.batches.is_empty() {
            return;
        }
        let run = self.open.remove(pick % self.open.len());
        self.return_dispatches_of(&run.call_id);
        let at = if clock_back { Timestamp::from_millis(5) } else { self.at() };
        self.accept(MachineInput::answer(at, run.id, response(run.call_id, ok)));
    }

    pub(crate) fn refused(&mut self, input: MachineInput) {
        let before = self.machine.clone();
        self.machine.handle(input).expect_err("an input that fits nothing is refused");
        assert_eq!(self.machine, before, "a refused input changes nothing");
    }
}

fn hook_passed(point: HookPoint) -> HookPassed {
    HookPassed::new(point.as_str(), None)
}

fn hook_failed(point: HookPoint, call_id: Option<CallId>, fail_open: bool) -> HookFailed {
    HookFailed::new("h", point.as_str(), call_id, "hook.failed", "broken", fail_open)
}

fn hook_aborted(point: HookPoint) -> HookAborted {
    HookAborted::new("h", point.as_str(), None, "hook.aborted", "not today", true)
}

pub(crate) fn response(call_id: CallId, ok: bool) -> ToolResponded {
    let output = if ok { json!("seen") } else { json!({"error": "Tool 'look' failed"}) };
    let mut response = ToolResponded::success(call_id, "look", output, 1);
    response.ok = ok;
    response
}
