//! Steps that are repeated after a process died, and steps that are not (SPEC D5, D7).

use backstop_react_machine::*;
use layer0::event::*;
use layer0::message::StopReason;
use layer0::{Timestamp, ToolSpec};
use serde_json::json;

use crate::script::{Script, agent, dispatched, ids, remembering};

/// Ids of calls that run again, that may have acted, and whose tools are asked.
type Sorted = [&'static [&'static str]; 3];

#[track_caller]
fn check_lost(script: &Script, [rerun, interrupted, probing]: Sorted) {
    let lost = script.machine.find_lost_steps();
    let sorted = (lost.rerun, lost.interrupted, lost.probing);
    assert_eq!(sorted, (ids(rerun), ids(interrupted), ids(probing)));
}

/// Spec: D5, T14
#[test]
fn open_calls_are_sorted_by_their_tools() {
    let tools = ["plain", "safe", "probed", "below", "gone"];
    let mut script = Script::at_work(agent(), &tools);
    check_lost(&script, [&["c1"], &["c0", "c4"], &["c2"]]);
    script.dispatch("c3", "run_a");
    check_lost(&script, [&["c1"], &["c0", "c4"], &["c2"]]);
    let goes_on = |call: &str| script.machine.is_gone_on_with(&call.into());
    let going_on: Vec<bool> = ["c0", "c1", "c2", "c3", "c4", "c9"].map(goes_on).into();
    assert_eq!(going_on, [false, false, false, true, false, false]);

    let before = script.log.len();
    script.recover();
    assert_eq!(script.types(before), ["run.recovered", "tool.responded", "tool.responded"]);
    let again: Vec<String> = script
        .effects
        .iter()
        .map(|effect| match effect {
            MachineAction::Rerun { call_id, .. } => format!("rerun {call_id}"),
            MachineAction::Probe { call_id, .. } => format!("probe {call_id}"),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(again, ["rerun c1", "rerun c3", "probe c2"]);
    let unsettled: Vec<_> = script.machine.unsettled_calls().map(|(id, _)| id.clone()).collect();
    assert_eq!(unsettled, ids(&["c1", "c2", "c0", "c4"]));
}

/// Spec: D5, B1. To run a call again is another execution.
#[test]
fn rerun_needs_an_execution_of_the_budget() {
    let cases: [(u32, Sorted); 3] = [
        (4, [&["c0", "c1"], &[], &[]]),
        (3, [&["c0"], &["c1"], &[]]),
        (2, [&[], &["c0", "c1"], &[]]),
    ];
    for (max, expected) in cases {
        let mut definition = agent();
        definition.budget.max_tool_calls = Some(max);
        let mut script = Script::at_work(definition, &["safe", "safe"]);
        check_lost(&script, expected);
        let too_many = RunRecovered::new(ids(&["c0", "c1"]), Vec::new(), 0);
        if max < 4 {
            let why = script.refusal(too_many);
            assert_eq!(why, "`run.recovered` while fewer executions are left of the budget");
        }
        let rerun = u32::try_from(script.recover().rerun.len()).unwrap();
        assert_eq!(script.machine.usage().tool_calls, 2 + rerun);
    }
}

/// Spec: D5, D2. The definition under which a call began says whether it may be repeated.
#[test]
fn adopted_definition_does_not_allow_a_rerun() {
    let mut script = Script::at_work(agent(), &["plain", "safe", "below"]);
    let mut other = agent();
    let tools = other.tools.iter().cloned().map(|tool| match &*tool.name {
        "below" => ToolSpec::new("below", "", json!({ "type": "object" })).idempotent(),
        _ => tool.idempotent(),
    });
    other.tools = tools.collect();
    script.take(RunResumed::new("ops").adopting(AgentRecord::new("prop", "d", json!(other))));
    check_lost(&script, [&["c1"], &["c0", "c2"], &[]]);
}

/// Spec: D5, O3. A call that acted by the definition it began under did more than dispatch.
#[test]
fn call_that_acted_is_not_resumed_as_dispatching() {
    let mut script = Script::at_work(agent(), &["plain", "below"]);
    let mut other = agent();
    other.tools = other.tools.iter().cloned().map(ToolSpec::dispatches).collect();
    script.take(RunResumed::new("ops").adopting(AgentRecord::new("prop", "d", json!(other))));
    check_lost(&script, [&[], &["c0"], &[]]);
    assert!(script.machine.is_gone_on_with(&"c1".into()));
}

/// Spec: D5, O3. The work of a run below that keeps no record is lost with its process.
#[test]
fn unrecorded_run_below_is_interrupted() {
    let mut script = Script::at_work(agent(), &["below", "below"]);
    let mut unrecorded = dispatched("c0", "run_a");
    unrecorded.unrecorded = true;
    script.take(unrecorded);
    script.dispatch("c1", "run_b");
    check_lost(&script, [&[], &["c0"], &[]]);
    assert!(!script.machine.is_gone_on_with(&"c0".into()));
    assert!(script.machine.is_gone_on_with(&"c1".into()));
}

fn settled(call: &str) -> ToolResolved {
    ToolResolved::new(call, "ops", Verdict::Happened, None, "ops says so")
}

/// Spec: D5, T14
#[test]
fn settled_calls_are_not_lost() {
    let mut script = Script::at_work(agent(), &["plain", "safe", "probed"]);
    script.take(settled("c0"));
    script.take(settled("c1"));
    check_lost(&script, [&[], &[], &["c2"]]);
    let ended = script.machine.lost_for_good();
    assert_eq!((ended.rerun, ended.interrupted), (ids(&[]), ids(&["c2"])));
    let named = RunRecovered::new(Vec::new(), ids(&["c0", "c2"]), 0);
    assert_eq!(script.refusal(named), "no open call `c0`");
    let silent = RunRecovered::new(Vec::new(), Vec::new(), 0);
    assert_eq!(script.refusal(silent), "`run.recovered` while other calls are open too");
}

/// Spec: D12. Nothing is run again of a run that a person ends.
#[test]
fn ended_run_loses_its_calls_for_good() {
    let script = Script::at_work(agent(), &["safe", "probed", "below"]);
    let lost = script.machine.lost_for_good();
    assert_eq!((lost.rerun, lost.probing), (ids(&[]), ids(&[])));
    assert_eq!(lost.interrupted, ids(&["c0", "c1", "c2"]));
    assert_eq!(Script::new(agent()).machine.lost_for_good().models, 1);
}

/// Spec: D5. The last of three deaths does nothing again; runs below count for themselves.
#[test]
fn last_death_repeats_and_probes_nothing() {
    let mut script = Script::at_work(agent(), &["safe", "probed"]);
    script.recover();
    script.recover();
    assert!(script.machine.is_crash_loop());
    check_lost(&script, [&[], &["c0", "c1"], &[]]);
    script.recover();
    assert_eq!(script.reason(), "run.crash_loop");

    let mut script = Script::at_work(agent(), &["below"]);
    script.dispatch("c0", "run_a");
    for _ in 0..4 {
        assert!(!script.machine.is_crash_loop());
        script.recover();
        assert_eq!(script.finish, None);
    }
}

/// Spec: D5
#[test]
fn crash_loop_tells_what_was_open() {
    #[track_caller]
    fn check(mut script: Script, open: &str) {
        for _ in 0..3 {
            script.recover();
        }
        let Some(Finish::Failed(failure)) = &script.finish else { panic!("{:?}", script.finish) };
        let text = "the process died three times in a row while this was open: ";
        assert_eq!(failure.chain(), [format!("{text}{open}")]);
    }
    let mut hooked = agent();
    hooked.hooks = [HookRecord::new("h", vec![HookPoint::BeforeModel], true)].into();
    check(Script::new(agent()), "model call 1");
    check(Script::new(hooked), "the hooks of `before_model`");
    check(Script::new(remembering()), "reading the memory");
    check(Script::asking(agent(), &["plain"]), "the admission of tool calls");
    check(Script::at_work(agent(), &["safe", "safe"]), "call `c0` of `safe`, call `c1` of `safe`");
    let mut writing = Script::new(remembering());
    writing.take(MemoryRead::new(Vec::new()));
    writing.respond(StopReason::End, "done", Vec::new());
    check(writing, "writing the memory");
}

/// Spec: D5. The effect that was open is performed again.
#[test]
fn open_effect_is_performed_again() {
    let mut script = Script::new(remembering());
    script.recover();
    let read = MachineAction::ReadMemory { input: "question".into() };
    assert_eq!(script.effects, [read.clone(), read]);
    script.take(MemoryRead::new(Vec::new()));
    script.respond(StopReason::End, "done", Vec::new());
    script.effects.clear();
    script.recover();
    let written = MachineAction::WriteMemory { input: "question".into(), output: "done".into() };
    assert_eq!(script.effects, [written]);

    let mut hooked = agent();
    hooked.hooks = [HookRecord::new("h", vec![HookPoint::RunStart], true)].into();
    let mut script = Script::new(hooked);
    script.recover();
    let pause = MachineAction::RunHooks(Pause::RunStart { input: "question".into() });
    assert_eq!(script.effects, [pause.clone(), pause]);

    let mut script = Script::new(agent());
    script.effects.clear();
    script.recover();
    let [MachineAction::CallModel(call)] = &script.effects[..] else {
        panic!("{:?}", script.effects)
    };
    assert_eq!((call.call, call.attempts_before), (1, 1));
    assert_eq!(script.machine.usage().model_attempts, 1, "the lost attempt counts");
}

/// Spec: D5, B1. The time without a process is left out.
#[test]
fn time_without_a_process_is_not_counted() {
    let mut script = Script::at_work(agent(), &["safe"]);
    script.take_after(500, Warning::new("at work"));
    let lost = script.machine.find_lost_steps();
    script.take_after(60_000, lost);
    assert_eq!(script.machine.usage().wall_ms, 500);
    script.take_after(20, Warning::new("at work"));
    assert_eq!(script.machine.usage().wall_ms, 520);
    script.take_after(60_000, RunResumed::new("ops"));
    assert_eq!(script.machine.usage().wall_ms, 520);
}

fn fork(script: &mut Script, ms: i64, beyond: Vec<MachineEntry>) {
    script.now += ms;
    let forked = RunForked::new("run_2", "ses_2", "run_1", 9);
    script.machine.fork(script.at(), "run_2".into(), forked, beyond);
    script.drain();
}

/// Spec: D7, B1
#[test]
fn time_before_a_copy_is_not_counted() {
    let mut script = Script::at_work(agent(), &["plain"]);
    script.take_after(500, Warning::new("at work"));
    fork(&mut script, 60_000, Vec::new());
    assert_eq!(script.last().at, Timestamp::from_millis(61_500));
    assert_eq!(script.machine.usage().wall_ms, 500);
}

/// Spec: D7. A copy records again what was decided beyond the cut, but asks anew.
#[test]
fn copy_decides_again_beyond_the_cut() {
    let mut script = Script::asking(agent(), &["plain"]);
    let before = script.log.len();
    let entry = |kind: EventKind| {
        let mut entry = script.last().clone();
        entry.kind = kind;
        entry
    };
    let beyond = vec![
        entry(ModelRequested::new(2, "d", "t", 1).into()),
        entry(RunWaiting::new(WaitFor::Approval, Vec::new()).into()),
        entry(Warning::new("decided").into()),
    ];
    fork(&mut script, 10, beyond);
    assert_eq!(script.types(before), ["run.forked", "warning"]);
    assert_eq!(script.last().seq, script.log[before - 1].seq - 3 + 2);
}

/// Spec: D7, T14. What the copied run's tools did is that run's to ask.
#[test]
fn copied_calls_are_not_probed_or_resumed() {
    let mut script = Script::at_work(agent(), &["probed", "below", "safe"]);
    script.dispatch("c1", "run_a");
    fork(&mut script, 10, Vec::new());
    check_lost(&script, [&["c2"], &["c0", "c1"], &[]]);
}

/// Spec: D7, A1. A decision for another run is none for the copy.
#[test]
fn copy_asks_people_anew() {
    let mut script = Script::asking(agent(), &["plain", "asked"]);
    script.hold("c0");
    script.hold("c1");
    let held = script.machine.open_approvals().next().unwrap().id.clone();
    script.take(ApprovalGranted::new(held, "c0", "ops"));
    assert!(!script.machine.is_waiting());
    script.effects.clear();
    fork(&mut script, 10, Vec::new());
    assert_eq!(script.machine.open_approvals().count(), 0);
    script.recover();
    let [MachineAction::AdmitTools(batch)] = &script.effects[..] else {
        panic!("{:?}", script.effects)
    };
    let calls: Vec<_> = batch.calls.iter().map(|call| call.id.clone()).collect();
    assert_eq!((calls, batch.approved), (ids(&["c0", "c1"]), false));
}

/// Spec: D5, O2. It waits on: nothing is recorded twice, and the approval is asked for again.
#[test]
fn recovered_wait_is_not_begun_twice() {
    let mut script = Script::asking(agent(), &["asked"]);
    script.hold("c0");
    script.effects.clear();
    let before = script.log.len();
    script.recover();
    assert_eq!(script.types(before), ["run.recovered"]);
    assert!(
        matches!(&script.effects[..], [MachineAction::AskApproval(approval)] if approval.call_id == "c0".into())
    );
    assert!(script.machine.is_waiting());
}
