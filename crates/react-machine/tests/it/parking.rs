//! Runs that wait for a time (SPEC O5).

use backstop_react_machine::*;
use layer0::Timestamp;
use layer0::event::*;

use crate::script::{Script, agent, data, dispatched, waiting};

/// Time at which the runs of these tests are due, in milliseconds.
const DUE: i64 = 61_000;

fn parked(until: i64) -> RunParked {
    RunParked::new(Timestamp::from_millis(until), "provider.rate_limited", "busy")
}

/// A run that is parked in its first model call, after one attempt.
fn parked_run() -> Script {
    let mut script = Script::new(agent());
    script.take_after(200, ModelAttempted::new(1, 1, "script"));
    script.take(parked(DUE));
    script.effects.clear();
    script
}

/// Spec: O5
#[test]
fn parked_run_tells_until_when_and_why() {
    let script = parked_run();
    assert_eq!(script.types(3), ["run.parked", "run.waiting"]);
    assert_eq!(data(script.last())["for"], "parked");
    let [cause, waiting] = [3, 4].map(|at: usize| script.log[at].caused_by);
    assert_eq!((cause, waiting), (Some(2), Some(4)));
    let machine = &script.machine;
    assert_eq!(machine.parked_until(), Some(Timestamp::from_millis(DUE)));
    assert_eq!(machine.parked_reason().map(|code| code.as_str()), Some("provider.rate_limited"));
    let is_due = [DUE - 1, DUE, DUE + 1].map(|ms| machine.is_due(Timestamp::from_millis(ms)));
    assert_eq!(is_due, [false, true, true]);
    assert_eq!((machine.is_waiting(), machine.deadline()), (true, None));
    assert_eq!(machine.find_lost_steps().models, 0, "no attempt is in flight");
}

/// Spec: O5, D5
#[test]
fn parked_run_asks_its_model_when_due() {
    let mut script = parked_run();
    script.take_after(DUE - 1_200 - 1, RunResumed::new("ops"));
    assert!(script.effects.is_empty() && script.machine.is_waiting(), "it is too early");
    script.take_after(1, RunResumed::new("ops"));
    let [MachineAction::CallModel(call)] = &script.effects[..] else {
        panic!("{:?}", script.effects)
    };
    assert_eq!((call.call, call.attempts_before), (1, 1));
    assert_eq!(call.id.epoch, 3, "each process has its own");
    let machine = &script.machine;
    assert_eq!((machine.parked_until(), machine.parked_reason()), (None, None));
    assert!(!machine.is_waiting() && !machine.is_due(Timestamp::from_millis(DUE)));
    assert_eq!(machine.usage().wall_ms, 200, "it waited");
}

/// Spec: O5, J2. It may have gone on in the events that were lost.
#[test]
fn parked_run_asks_again_after_a_loss() {
    let mut script = parked_run();
    script.take(RunResumed::new("ops").accepting(LostTail::new(99, Hash([9; 32]))));
    assert!(matches!(&script.effects[..], [MachineAction::CallModel(_)]));
}

/// Spec: O5, D5
#[test]
fn only_a_run_that_waits_is_parked() {
    let mut script = Script::new(agent());
    let [MachineAction::CallModel(call)] = &script.effects[..] else {
        panic!("{:?}", script.effects)
    };
    let first = call.id;
    script.recover();
    let input = MachineInput::answer(script.at(), first, parked(DUE));
    assert_eq!(script.machine.handle(input), Err(Misuse::Stale { epoch: 1, number: 1 }));
    script.call(&["below"]);
    let refused = "`run.parked` while tools are at work";
    assert_eq!(script.refusal(parked(DUE)), refused);
    script.begin("c0", "below");
    script.dispatch("c0", "run_a");
    assert_eq!(script.refusal(parked(DUE)), refused);
}

/// A run that waits for one below, which is parked.
fn parked_below() -> Script {
    let mut script = Script::at_work(agent(), &["below"]);
    script.dispatch("c0", "run_a");
    let below = OperatorWaiting::new("child", "run_a", WaitFor::Parked, Vec::new());
    script.take(below);
    script.machine.wait_below(script.at());
    script.drain();
    script.take(parked(DUE));
    script
}

/// Spec: O5, O2
#[test]
fn run_is_parked_with_the_one_below() {
    let script = parked_below();
    assert_eq!(script.types(script.log.len() - 2), ["run.waiting", "run.parked"]);
    assert_eq!(data(&script.log[script.log.len() - 2])["for"], "parked");
    assert_eq!(script.machine.parked_until(), Some(Timestamp::from_millis(DUE)));
    let late = Timestamp::from_millis(DUE + 1);
    assert!(!script.machine.is_due(late), "its model is not what waits");
}

/// Spec: O5, O2. Anything that the run below says ends the wait.
#[test]
fn fact_of_the_run_below_ends_the_wait() {
    let mut again = dispatched("c0", "run_a");
    again.attempt = 2;
    let returned = OperatorReturned::new(
        "child",
        "run_a",
        layer0::stop::Outcome::Completed,
        None,
        layer0::usage::Usage::default(),
    );
    let facts: [EventKind; 4] = [
        again.into(),
        waiting("run_a").into(),
        BudgetGranted::new("run_a", None).into(),
        returned.into(),
    ];
    for fact in facts {
        let mut script = parked_below();
        let (before, event) = (script.machine.usage().wall_ms, fact.event_type());
        script.take_after(5_000, fact);
        assert_eq!(
            (script.machine.is_waiting(), script.machine.parked_until()),
            (false, None),
            "{event}"
        );
        assert_eq!(script.machine.usage().wall_ms, before, "{event}");
        assert_eq!(script.last().kind.event_type(), event);
    }
}

/// Spec: D7, O5. It is not the copy that was told to come back later.
#[test]
fn copy_of_a_parked_run_asks_its_model() {
    let mut script = parked_run();
    let forked = RunForked::new("run_2", "ses_2", "run_1", 9);
    script.machine.fork(script.at(), "run_2".into(), forked, Vec::new());
    script.drain();
    assert_eq!((script.machine.is_waiting(), script.machine.parked_until()), (false, None));
    script.recover();
    let [MachineAction::CallModel(call)] = &script.effects[..] else {
        panic!("{:?}", script.effects)
    };
    assert_eq!((call.call, call.attempts_before), (1, 1));
}
