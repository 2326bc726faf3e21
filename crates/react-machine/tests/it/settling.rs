//! Calls whose outcome people and tools tell later (SPEC T14).

use std::sync::Arc;

use backstop_react_machine::*;
use layer0::Timestamp;
use layer0::event::*;
use layer0::failure::Effect;
use layer0::id::CallId;
use layer0::message::Message;
use layer0::stop::{Outcome, Stop};
use layer0::usage::Usage;
use serde_json::json;

use crate::script::{Script, agent, dispatched, ids};
use crate::world::{World, definition, started};

fn resolved(call: &CallId, happened: bool) -> ToolResolved {
    let verdict = if happened { Verdict::Happened } else { Verdict::DidNot };
    ToolResolved::new(call.clone(), "ops", verdict, None, "ops says so")
}

impl World {
    /// A person settles a call: a running one gets its answer, the answer of another one does not change.
    pub(crate) fn settle(&mut self, pick: usize, happened: bool) {
        let at = self.at();
        self.refused(MachineInput::fact(at, resolved(&"unknown".into(), true)));
        let unsettled: Vec<CallId> =
            self.machine.unsettled_calls().map(|(id, _)| id.clone()).collect();
        if unsettled.is_empty() || self.memory.is_some() || !self.batches.is_empty() {
            return;
        }
        let call = unsettled[pick % unsettled.len()].clone();
        self.accept(MachineInput::fact(at, resolved(&call, happened)));
        self.refused(MachineInput::fact(at, resolved(&call, happened)));
        let Some(answer) = self.machine.settlement(&call) else { return };
        let place = self.open.iter().position(|run| run.call_id == call).expect("it is at work");
        let run = self.open.remove(place);
        self.return_dispatches_of(&call);
        let at = self.at();
        self.accept(MachineInput::answer(at, run.id, answer));
    }
}

/// Returns a world whose first call is running, next to another one.
fn at_work() -> World {
    let mut world = World::new();
    world.answer(9, 2, false, 3);
    world.admit(0b11);
    world
}

/// Spec: B1, B3, T14. A settlement while other tools are at work says nothing of the time.
#[test]
fn settled_call_leaves_the_deadline() {
    let mut world = at_work();
    let call = world.open[0].call_id.clone();
    let at = world.at();
    let mut unknown = crate::world::response(call.clone(), false);
    unknown.error = Some(ToolFailure::new("tool.timeout", "timed out"));
    let run = world.open.remove(0);
    world.accept(MachineInput::answer(at, run.id, unknown));
    let at = world.at();
    world.accept(MachineInput::fact(at, resolved(&call, true)));
    let deadline = world.machine.deadline().expect("its time is limited");
    world.machine.tick(deadline);
    world.drain();
    let Some(Finish::Stopped { stop, .. }) = &world.finish else { panic!("{:?}", world.finish) };
    assert_eq!(stop.reason(), Some("budget.wall_time".into()));
}

/// Spec: T14. The runs that follow in the session read what the model of this one read.
#[test]
fn late_settlement_is_read_by_the_session() {
    let mut world = at_work();
    let (first, second) = (world.open.remove(0), world.open.remove(0));
    let mut unknown = crate::world::response(first.call_id.clone(), false);
    unknown.error = Some(ToolFailure::new("tool.timeout", "timed out"));
    let at = world.at();
    world.accept(MachineInput::answer(at, first.id, unknown));
    world.accept(MachineInput::fact(at, resolved(&first.call_id, true)));
    let answer = crate::world::response(second.call_id.clone(), true);
    world.accept(MachineInput::answer(at, second.id, answer));
    world.answer(0, 0, false, 0);
    let says_so = |message: &Message| match message {
        Message::User { content, .. } => content.contains("ops says so"),
        _ => false,
    };
    let transcript = world.machine.transcript();
    assert!(transcript.messages().iter().any(|message| says_so(message)));
    let read = collect_messages(world.log.iter().map(|entry| &entry.kind));
    assert!(read.iter().any(|message| says_so(message)), "{read:?}");
}

/// Spec: D12. The time from the end of a process to a settlement is nobody's.
#[test]
fn settlement_without_a_process_takes_no_time() {
    let mut world = at_work();
    let (before, call) = (world.machine.usage().wall_ms, world.open[0].call_id.clone());
    let later = Timestamp::from_millis(90_000);
    world.machine.handle(MachineInput::fact(later, resolved(&call, true))).unwrap();
    assert_eq!(world.machine.usage().wall_ms, before);
    world.machine.handle(MachineInput::fact(later, world.machine.find_lost_steps())).unwrap();
    assert_eq!(world.machine.usage().wall_ms, before);
}

fn probing() -> Arc<AgentDefinition> {
    let mut definition = definition();
    let tools: Vec<_> = definition.tools.iter().cloned().map(layer0::ToolSpec::probe).collect();
    Arc::make_mut(&mut definition).tools = tools.into();
    definition
}

/// Spec: T14, D12
#[test]
fn stopped_call_is_probed_once_over() {
    let mut world = World::of(probing());
    world.answer(9, 1, false, 3);
    world.admit(1);
    assert_eq!(world.machine.probeable(), Vec::<CallId>::new());
    world.cancel();
    assert!(matches!(&world.finish, Some(Finish::Stopped { stop: Stop::Cancelled, .. })));
    let [call] = &world.machine.probeable()[..] else { panic!("one call may have acted") };
    let call = call.clone();
    let at = world.at();
    let probed = |verdict| ToolProbed::new(call.clone(), verdict, None);
    world.machine.handle(MachineInput::fact(at, probed(Verdict::Unknown))).unwrap();
    assert_eq!(world.machine.probeable(), std::slice::from_ref(&call));
    world.machine.handle(MachineInput::fact(at, probed(Verdict::DidNot))).unwrap();
    assert_eq!(world.machine.probeable(), Vec::<CallId>::new());
    world.machine.handle(MachineInput::fact(at, probed(Verdict::DidNot))).unwrap_err();
}

/// Spec: T14, D12. The model learns the outcome of a stopped call in the next episode.
#[test]
fn late_probe_is_read_in_the_next_episode() {
    let mut script = Script::at_work(agent(), &["probed"]);
    script.take(SignalReceived::new(CANCEL, json!(null)));
    script.take(ToolProbed::new("c0", Verdict::DidNot, None));
    let reopened = script.machine.reopening("ops", Some("go on".into()), None).unwrap();
    script.take(reopened);
    let last = script.machine.transcript().messages().last().cloned();
    let text = "`probed` says that its call `c0` did not happen; it may be called again.\n\ngo on";
    assert_eq!(last.as_deref(), Some(&Message::user(text)));
}

/// Spec: T14. The runs that a call dispatches have outcomes of their own.
#[test]
fn dispatching_call_cannot_be_settled() {
    let mut script = Script::at_work(agent(), &["below"]);
    let why = script.refusal(resolved(&"c0".into(), true));
    assert_eq!(why, "no open call `c0`");
}

/// Spec: T14, B1. The process that has the run ends it in time.
#[test]
fn deadline_after_a_settlement_counts_all_time() {
    let mut definition = agent();
    definition.budget.max_wall_ms = Some(5_000);
    let mut script = Script::at_work(definition, &["plain"]);
    script.take_after(1_000, resolved(&"c0".into(), true));
    script.now += 4_000;
    script.machine.tick(script.at());
    script.drain();
    assert_eq!(script.reason(), "budget.wall_time");
    assert_eq!(script.machine.usage().wall_ms, 5_000);
}

/// Spec: T14, X2. Runs of the first version ask again about a call that a person settled.
#[test]
fn settlement_decides_since_the_second_version() {
    for (machine, unsettled) in [(1, ids(&["c0"])), (2, ids(&[]))] {
        let mut started = started();
        started.machine = machine;
        let mut script = Script::start(agent(), started);
        script.call(&["plain"]);
        script.begin("c0", "plain");
        script.take(resolved(&"c0".into(), true));
        let timeout = ToolFailure::new("tool.timeout", "timed out");
        script.take(ToolResponded::failure("c0".into(), "plain".into(), "text", 1, timeout));
        let calls: Vec<_> = script.machine.unsettled_calls().map(|(id, _)| id.clone()).collect();
        assert_eq!(calls, unsettled, "{machine}");
    }
}

/// Spec: T14, D7. A copy cannot ask about calls that another run made.
#[test]
fn copied_call_is_not_probed() {
    let mut world = World::of(probing());
    world.answer(9, 1, false, 3);
    world.admit(1);
    world.cancel();
    let at = world.at();
    let forked = RunForked::new("run_2", "ses_2", "run_1", 9);
    world.machine.fork(at, "run_2".into(), forked, Vec::new());
    assert_eq!(world.machine.probeable(), Vec::<CallId>::new());
}

/// Spec: T14. Tools begin in the order of their requests.
#[test]
fn only_begun_calls_may_have_acted() {
    let mut definition = (*definition()).clone();
    definition.limits.max_concurrent_tools = 2;
    let mut world = World::of(Arc::new(definition));
    world.answer(9, 3, false, 3);
    world.admit(0b111);
    world.cancel();
    let texts = world.log.iter().filter_map(|entry| match &entry.kind {
        EventKind::ToolResponded(answer) => Some(answer.output.value()["error"].clone()),
        _ => None,
    });
    let texts: Vec<_> = texts.collect();
    let begun = "Cancelled: may already have acted";
    assert_eq!(texts, [json!(begun), json!(begun), json!("Cancelled: the run was stopped")]);
    assert_eq!(world.machine.unsettled_calls().count(), 2);
}

/// Spec: T14
#[test]
fn call_requested_first_may_have_acted() {
    let mut definition = agent();
    definition.limits.max_concurrent_tools = 1;
    let mut script = Script::asking(definition, &["plain", "plain"]);
    script.begin("c1", "plain");
    script.begin("c0", "plain");
    script.take(SignalReceived::new(CANCEL, json!(null)));
    let unsettled: Vec<_> = script.machine.unsettled_calls().map(|(id, _)| id.clone()).collect();
    assert_eq!(unsettled, ids(&["c1"]));
}

/// Spec: T14. A call that a person settled has a known outcome, whatever its answer says.
#[test]
fn settled_call_is_settled_once() {
    let mut world = at_work();
    let call = world.open[0].call_id.clone();
    let at = world.at();
    world.accept(MachineInput::fact(at, resolved(&call, false)));
    let answer = world.machine.settlement(&call).expect("it is at work");
    let run = world.open.remove(0);
    world.accept(MachineInput::answer(at, run.id, answer));
    world.refused(MachineInput::fact(at, resolved(&call, true)));
    assert!(!world.machine.unsettled_calls().any(|(id, _)| *id == call));
}

/// Spec: T14, D5
#[test]
fn settled_call_stays_settled_after_a_crash() {
    let mut world = at_work();
    let call = world.open[0].call_id.clone();
    let at = world.at();
    world.accept(MachineInput::fact(at, resolved(&call, false)));
    let lost = world.machine.find_lost_steps();
    world.accept(MachineInput::fact(at, lost));
    world.refused(MachineInput::fact(at, resolved(&call, true)));
}

/// Spec: T14, O3. A child run without a record shows nothing of what it did, so that its call may have acted.
#[test]
fn unrecorded_child_leaves_its_call_unsettled() {
    let unsettled_after = |unrecorded: bool, outcome: Outcome, effect: Option<Effect>| {
        let mut script = Script::at_work(agent(), &["below"]);
        let mut child = dispatched("c0", "run_a");
        child.unrecorded = unrecorded;
        script.take(child);
        let mut returned = OperatorReturned::new("child", "run_a", outcome, None, Usage::default());
        returned.effect = effect;
        script.take(returned);
        let mut failed = ToolResponded::success("c0", "below", json!("failed"), 1);
        (failed.ok, failed.error) = (false, Some(ToolFailure::new("operator.other", "failed")));
        script.take(failed);
        script.machine.unsettled_calls().count()
    };
    assert_eq!(unsettled_after(true, Outcome::Failed, None), 1);
    assert_eq!(unsettled_after(true, Outcome::Failed, Some(Effect::Unknown)), 1);
    assert_eq!(unsettled_after(true, Outcome::Failed, Some(Effect::None)), 0);
    assert_eq!(unsettled_after(true, Outcome::Completed, None), 0);
    assert_eq!(unsettled_after(false, Outcome::Failed, None), 0, "its record shows what happened");
}
