//! Facts that do not fit, each with why (SPEC E11).

use backstop_react_machine::*;
use layer0::event::*;
use layer0::failure::{Facts, Retry};
use layer0::message::StopReason;
use layer0::usage::TokenUsage;
use layer0::{Code, Timestamp, code};
use serde_json::{Number, json};

use crate::script::{Script, agent, data, ids};
use crate::world::started;

fn answer(call: u32) -> ModelResponded {
    ModelResponded::new(call, "hm", [].into(), StopReason::End, TokenUsage::default())
}

fn failed(call: u32) -> ModelFailed {
    ModelFailed::new(call, code::PROVIDER_TRANSIENT, vec!["busy".into()], 1)
}

fn exhausted(reason: &'static str) -> BudgetExhausted {
    BudgetExhausted::new(
        Code::new(reason),
        "cost_usd",
        Number::from(1),
        Number::from(1),
        "1 of 1 used",
    )
}

/// Spec: E11, D6. What only the machine decides is no fact.
#[test]
fn decisions_are_not_taken_as_facts() {
    let decisions: [EventKind; 6] = [
        RunWaiting::new(WaitFor::Approval, Vec::new()).into(),
        ModelRequested::new(1, "d", "t", 1).into(),
        exhausted(code::BUDGET_EVENTS).into(),
        ApprovalRequested::new("apr_1", "c0", "plain", json!({}), "hash").into(),
        ContextCompacted::new(1, 2, 3, 4).into(),
        GuardTripped::new(Code::new("guard.stagnation"), "stagnation", 1, 1, "stuck").into(),
    ];
    for decision in decisions {
        let event = decision.event_type();
        let refused = format!("`{event}` is the machine's to decide");
        assert_eq!(Script::new(agent()).refusal(decision.clone()), refused);
        assert_eq!(Script::asking(agent(), &["plain"]).refusal(decision), refused);
    }
}

/// Spec: E11
#[test]
fn answers_fit_the_open_model_call() {
    let mut script = Script::new(agent());
    assert_eq!(script.refusal(started()), "`run.started` while the model is asked");
    assert_eq!(script.refusal(answer(2)), "`model.responded` numbered 2, expected 1");
    assert_eq!(script.refusal(failed(2)), "`model.failed` numbered 2, expected 1");
    let attempt = |call, attempt| ModelAttempted::new(call, attempt, "script");
    assert_eq!(script.refusal(attempt(2, 1)), "`model.attempted` numbered 2, expected 1");
    assert_eq!(script.refusal(attempt(1, 2)), "`model.attempted` numbered 2, expected 1");
    let [MachineAction::CallModel(call)] = &script.effects[..] else {
        panic!("{:?}", script.effects)
    };
    let first = call.id;
    script.recover();
    let stale: [EventKind; 4] = [
        attempt(1, 2).into(),
        answer(1).into(),
        failed(1).into(),
        exhausted(code::BUDGET_COST_USD).into(),
    ];
    for fact in stale {
        let event = fact.event_type();
        let refused = script.machine.handle(MachineInput::answer(script.at(), first, fact));
        assert_eq!(refused, Err(Misuse::Stale { epoch: 1, number: 1 }), "{event}");
    }
    script.take(exhausted(code::BUDGET_COST_USD));
    assert_eq!(script.reason(), "budget.cost_usd");
    assert_eq!(script.refusal(Warning::new("late")), "`warning` after the run ended");
}

/// Spec: E11, B2
#[test]
fn tool_facts_fit_their_call() {
    let mut definition = agent();
    definition.budget.max_tool_calls = Some(2);
    let mut script = Script::asking(definition, &["plain", "safe", "plain", "plain"]);
    let request =
        |call: &str, tool: &str, number| ToolRequested::new(call, tool, json!({}), number);
    let attempt = |call: &str| ToolAttempted::new(call, 1, "tool.execution_failed", "busy", 1);
    let done = |call: &str, tool: &str| ToolResponded::success(call, tool, json!("done"), 1);
    assert_eq!(script.refusal(request("c9", "plain", 1)), "no open call `c9`");
    let other = "while the call is of another tool";
    assert_eq!(script.refusal(request("c0", "safe", 1)), format!("`tool.requested` {other}"));
    assert_eq!(script.refusal(done("c0", "safe")), format!("`tool.responded` {other}"));
    assert_eq!(
        script.refusal(request("c0", "plain", 2)),
        "`tool.requested` numbered 2, expected 1"
    );
    assert_eq!(script.refusal(attempt("c0")), "`tool.attempted` while the call is not running");
    script.begin("c0", "plain");
    let running = "`tool.requested` while the call is already running";
    assert_eq!(script.refusal(request("c0", "plain", 2)), running);
    script.begin("c1", "safe");
    let none_left = "while no execution is left of the budget";
    assert_eq!(script.refusal(request("c2", "plain", 3)), format!("`tool.requested` {none_left}"));
    assert_eq!(script.refusal(attempt("c0")), format!("`tool.attempted` {none_left}"));
    let effect = script.machine.find_effect(&"c1".into()).unwrap();
    let refused =
        script.machine.handle(MachineInput::answer(script.at(), effect, done("c0", "plain")));
    assert!(matches!(refused, Err(Misuse::Stale { .. })), "it is another call's");
    script.end("c0", "plain");
    assert_eq!(script.refusal(done("c0", "plain")), "call `c0` was already answered");
    assert_eq!(script.refusal(request("c0", "plain", 3)), "call `c0` was already answered");
}

/// Spec: E11, S1
#[test]
fn stored_error_is_named_by_its_answer() {
    let mut script = Script::at_work(agent(), &["plain", "safe"]);
    let stored = |call: &str, error: &str| ErrorStored::new(error, call, "plain", 1, 10);
    assert_eq!(script.refusal(stored("c9", "err_1")), "no open call `c9`");
    script.take(stored("c0", "err_1"));
    let refused = "`error.stored` while its error is stored already";
    assert_eq!(script.refusal(stored("c0", "err_2")), refused);
    let mut failed =
        ToolResponded::refusal("c0".into(), "plain".into(), "tool.execution_failed", "no");
    let elsewhere = "`tool.responded` while its error is stored elsewhere, or not at all";
    assert_eq!(script.refusal(failed.clone()), elsewhere);
    failed.error.as_mut().unwrap().error_id = Some("err_2".into());
    assert_eq!(script.refusal(failed.clone()), elsewhere);
    failed.error.as_mut().unwrap().error_id = Some("err_1".into());
    script.take(failed);
    assert_eq!(script.refusal(stored("c0", "err_1")), "call `c0` was already answered");
    // A call that runs again may fail in another way.
    script.take(stored("c1", "err_3"));
    script.recover();
    script.end("c1", "safe");
}

/// Spec: E11, T14
#[test]
fn notes_are_of_calls_that_were_made() {
    let mut script = Script::at_work(agent(), &["probed"]);
    let probed = |call: &str| ToolProbed::new(call, Verdict::Unknown, None);
    assert_eq!(script.refusal(probed("c9")), "no open call `c9`");
    script.take(probed("c0"));
    assert_eq!((script.last().actor, script.last().caused_by), (Actor::Runtime, Some(4)));
    let settled = |verdict| ToolResolved::new("c0", "ops", verdict, None, "ops says so");
    let refused = "`tool.resolved` while it says nothing";
    assert_eq!(script.refusal(settled(Verdict::Unknown)), refused);
    let stranger = ToolResolved::new("c9", "ops", Verdict::Happened, None, "ops says so");
    assert_eq!(script.refusal(stranger), "no open call `c9`");
    script.take(settled(Verdict::Happened));
    assert_eq!(script.refusal(settled(Verdict::DidNot)), "no open call `c0`");
}

/// Spec: T14. A probe that was certain leaves nothing to be said of the call.
#[test]
fn certain_probe_leaves_nothing_unsettled() {
    for (verdict, unsettled) in
        [(Verdict::Unknown, 1), (Verdict::DidNot, 0), (Verdict::Happened, 0)]
    {
        let mut script = Script::at_work(agent(), &["probed"]);
        script.recover();
        script.take(ToolProbed::new("c0", verdict, None));
        let refused = ToolResponded::refusal("c0".into(), "probed".into(), "tool.timeout", "no");
        script.take(refused);
        assert_eq!(script.machine.unsettled_calls().count(), unsettled, "{verdict:?}");
    }
}

/// Spec: H1, H2
#[test]
fn hook_stops_the_run_where_it_is_called() {
    let aborted = |point: &str, call: Option<&str>| {
        HookAborted::new("h", point, call.map(Into::into), "hook.aborted", "not today", true)
    };
    let failed = |point: &str, fail_open| {
        HookFailed::new("h", point, None, "hook.failed", "broken", fail_open)
    };
    let mut definition = agent();
    definition.hooks = [HookRecord::new("h", vec![HookPoint::BeforeModel], true)].into();
    let mut script = Script::new(definition);
    assert_eq!(script.refusal(aborted("run_end", None)), "`hook.aborted` while hooks are called");
    assert_eq!(script.refusal(failed("run_end", false)), "`hook.failed` while hooks are called");
    let passed = HookPassed::new("run_end", None);
    assert_eq!(script.refusal(passed), "`hook.passed` while hooks are called");
    script.take(failed("before_model", true));
    assert_eq!(script.machine.paused_at(), Some(HookPoint::BeforeModel), "it is only noted");
    script.take(failed("before_model", false));
    assert_eq!(script.reason(), "hook.rejected");
    let Some(Finish::Failed(failure)) = &script.finish else { panic!("{:?}", script.finish) };
    assert_eq!(failure.chain(), ["hook `h` must not fail", "hook failed: broken"]);

    // After a call, the call's answer comes first; a call that is not running has none to come.
    let mut script = Script::asking(agent(), &["plain", "plain"]);
    assert_eq!(
        script.refusal(aborted("run_start", None)),
        "`hook.aborted` while tools are at work"
    );
    script.begin("c0", "plain");
    script.take(aborted("after_tool", Some("c0")));
    assert_eq!(script.finish, None);
    script.end("c0", "plain");
    assert_eq!(script.reason(), "hook.aborted");
    let mut script = Script::asking(agent(), &["plain", "plain"]);
    script.begin("c0", "plain");
    script.take(aborted("after_tool", Some("c1")));
    assert_eq!(script.reason(), "hook.aborted");
    let mut script = Script::at_work(agent(), &["plain"]);
    script.take(aborted("signal", None));
    assert_eq!(script.reason(), "hook.aborted");
}

/// Spec: E11
#[test]
fn failure_keeps_its_retry_facts() {
    let mut facts =
        Facts::never(code::PROVIDER_TRANSIENT, layer0::failure::Effect::None).retry_facts();
    facts.later = Retry::Backoff;
    let mut script = Script::new(agent());
    let mut failed = failed(1);
    failed.retry = Some(facts);
    script.take(failed);
    let EventKind::RunFailed(ended) = &script.last().kind else { panic!("{:?}", script.last()) };
    assert_eq!((ended.retry, &ended.chain[..]), (Some(facts), &["busy".to_owned()][..]));
    let Some(Finish::Failed(failure)) = &script.finish else { panic!("{:?}", script.finish) };
    assert_eq!(failure.retry_facts(), Some(facts));
}

/// Spec: B1, B3. Time does not run backwards, and the deadline is exact.
#[test]
fn deadline_ends_the_run_to_the_millisecond() {
    let mut definition = agent();
    definition.budget.max_wall_ms = Some(5_000);
    let mut script = Script::asking(definition, &["plain"]);
    script.begin("c0", "plain");
    assert_eq!(script.machine.deadline(), Some(Timestamp::from_millis(6_000)));
    script.machine.tick(Timestamp::from_millis(5_999));
    script.drain();
    assert_eq!(script.finish, None);
    script.now = 900;
    script.take(Warning::new("an earlier clock"));
    assert_eq!(script.last().at, Timestamp::from_millis(1_000));
    script.machine.tick(Timestamp::from_millis(6_000));
    script.drain();
    assert_eq!(script.reason(), "budget.wall_time");
    let texts: Vec<_> = script
        .log
        .iter()
        .filter(|it| it.kind.event_type() == "budget.exhausted")
        .map(data)
        .collect();
    assert_eq!((&texts[0]["limit"], &texts[0]["used"]), (&json!(5_000), &json!(5_000)));
    let unsettled: Vec<_> = script.machine.unsettled_calls().map(|(id, _)| id.clone()).collect();
    assert_eq!(unsettled, ids(&["c0"]));
}

/// Spec: B3, H1. A run that is ending has its end.
#[test]
fn stop_of_an_ending_run_is_noted() {
    let mut definition = agent();
    definition.hooks = [HookRecord::new("h", vec![HookPoint::RunEnd], true)].into();
    let mut script = Script::new(definition);
    script.take(answer(1));
    assert_eq!(script.machine.paused_at(), Some(HookPoint::RunEnd));
    script.effects.clear();
    script.take(SignalReceived::new(CANCEL, json!(null)));
    assert_eq!(script.last().kind.event_type(), "signal.received");
    assert_eq!(script.effects, []);
    script.take(HookPassed::new("run_end", None));
    assert_eq!(script.reason(), "");
}

/// Spec: B2, B3. Once no other attempt follows, time lets the run end of the attempts that were made.
#[test]
fn last_attempt_ends_the_run_when_cut_short() {
    for (delay_ms, reason) in [(None, Some("budget.model_calls")), (Some(5), None)] {
        let mut definition = agent();
        definition.budget.max_model_calls = Some(1);
        let mut script = Script::new(definition);
        let mut attempted = ModelAttempted::new(1, 1, "script");
        (attempted.code, attempted.delay_ms) =
            (Some(Code::new(code::PROVIDER_TRANSIENT)), delay_ms);
        script.take(attempted);
        assert_eq!(script.finish, None);
        script.machine.tick(script.at());
        script.drain();
        let ended = script.finish.is_some().then(|| script.reason());
        assert_eq!(ended.as_deref(), reason);
    }
}

/// Spec: B3. Time before the start is nobody's.
#[test]
fn tick_before_the_start_changes_nothing() {
    let mut definition = agent();
    definition.budget.max_wall_ms = Some(1);
    let definition = CheckedDefinition::new(definition).unwrap();
    let mut machine = Machine::new(definition, Setup::new("run_1".into()));
    let before = machine.clone();
    machine.tick(Timestamp::from_millis(9_000));
    assert_eq!(machine, before);
    assert_eq!((machine.deadline(), machine.is_over()), (None, false));
}

/// Spec: T14, D2. What may be repeated by now is not asked about.
#[test]
fn repeatable_call_is_not_probed() {
    let mut script = Script::at_work(agent(), &["probed"]);
    let refused = ToolResponded::refusal("c0".into(), "probed".into(), "tool.timeout", "no");
    script.take(refused);
    assert_eq!(script.machine.probeable(), ids(&["c0"]));
    let mut other = agent();
    other.tools = other.tools.iter().cloned().map(layer0::ToolSpec::idempotent).collect();
    script.take(RunResumed::new("ops").adopting(AgentRecord::new("prop", "d", json!(other))));
    assert_eq!(script.machine.probeable(), ids(&[]));
}

/// Spec: H1, B3. Calls of an answer that is not read are answered too.
#[test]
fn hook_answers_calls_it_keeps_unread() {
    for (stop, is_said) in [(StopReason::ToolUse, true), (StopReason::Malformed, false)] {
        let mut definition = agent();
        definition.hooks = [HookRecord::new("h", vec![HookPoint::AfterModel], true)].into();
        let mut script = Script::new(definition);
        let call = layer0::message::ToolCall::new("c0", "plain", json!({}));
        script.respond(stop, "", vec![call]);
        script.take(HookAborted::new("h", "after_model", None, "hook.aborted", "no", true));
        assert_eq!(script.reason(), "hook.aborted");
        let answers = script.log.iter().filter(|it| it.kind.event_type() == "tool.responded");
        assert_eq!(answers.map(|it| data(it)["call_id"].clone()).collect::<Vec<_>>(), ["c0"]);
        let said = if is_said { 4 } else { 2 };
        assert_eq!(script.machine.transcript().len(), said);
    }
}
