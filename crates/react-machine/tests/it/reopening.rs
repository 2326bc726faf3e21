//! Runs that are opened again (SPEC D12).

use backstop_react_machine::*;
use layer0::code;
use layer0::event::*;
use layer0::message::StopReason;
use layer0::usage::{BudgetIncrease, TokenUsage};
use serde_json::json;

use crate::script::{Script, agent};

fn cancelled(mut script: Script) -> Script {
    script.take(SignalReceived::new(CANCEL, json!(null)));
    script
}

/// Spec: D12. A model that would read again what it read before is told to continue.
#[test]
fn ends_that_need_a_word_get_one() {
    #[track_caller]
    fn check(script: Script, reason: &str, word: Option<&str>) {
        assert_eq!(script.reason(), reason);
        let more = BudgetIncrease::new().model_calls(9).tool_calls(9);
        let said = |message| script.machine.reopening("ops", message, Some(more)).unwrap().message;
        assert_eq!(said(None).as_deref(), word, "{reason}");
        assert_eq!(said(Some("my own".into())).as_deref(), Some("my own"), "{reason}");
    }
    let limited = |change: fn(&mut AgentDefinition)| {
        let mut definition = agent();
        change(&mut definition);
        Script::new(definition)
    };
    // The model was never asked.
    let hooked =
        limited(|it| it.hooks = [HookRecord::new("h", vec![HookPoint::RunStart], true)].into());
    check(cancelled(hooked), "run.cancelled", None);
    check(cancelled(Script::new(agent())), "run.cancelled", Some(CONTINUE));
    let mut cut = Script::new(agent());
    cut.respond(StopReason::MaxTokens, "and so", Vec::new());
    check(cut, "model.max_tokens", Some(CONTINUE));
    let mut last = limited(|it| it.limits.max_iterations = 1);
    last.call(&["plain"]);
    last.begin("c0", "plain");
    last.end("c0", "plain");
    check(last, "guard.max_iterations", Some(CONTINUE));
    let mut many = limited(|it| it.limits.max_parallel_tools = 1);
    many.call(&["plain", "plain"]);
    check(many, "guard.parallel_tool_limit", Some(CONTINUE));
    let mut failed = Script::new(agent());
    failed.take(ModelFailed::new(1, code::PROVIDER_TRANSIENT, vec!["busy".into()], 1));
    check(failed, "provider.transient", None);
    let mut used_up = limited(|it| it.budget.max_tool_calls = Some(1));
    used_up.call(&["plain", "plain"]);
    used_up.begin("c0", "plain");
    used_up.end("c0", "plain");
    let text = BUDGET_CANCELLED;
    used_up.take(ToolResponded::refusal("c1".into(), "plain".into(), code::TOOL_CANCELLED, text));
    check(used_up, "budget.tool_calls", None);
    let mut paused = limited(|it| it.budget.max_model_calls = Some(1));
    paused.take(ModelAttempted::new(1, 1, "script"));
    paused.respond(StopReason::Pause, "so far", Vec::new());
    check(paused, "budget.model_calls", Some(CONTINUE));
}

/// Spec: D12, B2. The budget that ended it has to grow, and room for a model call has to be left.
#[test]
fn reopened_run_needs_room_in_its_budget() {
    let mut definition = agent();
    definition.budget.max_tool_calls = Some(1);
    let mut script = Script::asking(definition, &["plain", "plain"]);
    script.begin("c0", "plain");
    script.end("c0", "plain");
    let text = BUDGET_CANCELLED;
    script.take(ToolResponded::refusal("c1".into(), "plain".into(), code::TOOL_CANCELLED, text));
    assert_eq!(script.reason(), "budget.tool_calls");
    let reopening = |more: Option<BudgetIncrease>| script.machine.reopening("ops", None, more);
    let refused = reopening(None).unwrap_err();
    assert_eq!(refused.to_string(), "1 of 1 of the run's tool calls are used");
    assert_eq!(refused.budget_key(), Some("max_tool_calls"));
    assert!(reopening(Some(BudgetIncrease::new().model_calls(9))).is_err());
    let reopened = reopening(Some(BudgetIncrease::new().tool_calls(1))).unwrap();
    assert_eq!(reopening(Some(BudgetIncrease::new())).err(), reopening(None).err());
    script.take(reopened);
    assert_eq!(script.machine.executions_left(), 1);
}

/// Spec: D12, B2. The event that opens a run counts.
#[test]
fn opening_event_is_one_of_the_budget() {
    for (max, is_open) in [(5, false), (6, true)] {
        let mut definition = agent();
        definition.budget.max_events = Some(max);
        let mut script = Script::new(definition);
        script.take(ModelFailed::new(1, code::PROVIDER_TRANSIENT, vec!["busy".into()], 1));
        assert_eq!(script.log.len(), 4);
        assert_eq!(script.machine.reopening("ops", None, None).is_ok(), is_open, "{max}");
    }
}

/// Spec: D12, B1. The time between the episodes, and what is open in the old one, are left behind.
#[test]
fn next_episode_begins_where_the_last_ended() {
    let script = Script::new(agent());
    let [MachineAction::CallModel(first)] = &script.effects[..] else {
        panic!("{:?}", script.effects)
    };
    let first = first.clone();
    let mut script = cancelled(script);
    let reopened = script.machine.reopening("ops", Some("go on".into()), None).unwrap();
    script.effects.clear();
    script.take_after(60_000, reopened);
    assert_eq!(script.machine.usage().wall_ms, 0);
    let [MachineAction::CallModel(second)] = &script.effects[..] else {
        panic!("{:?}", script.effects)
    };
    assert_eq!((second.id.epoch, second.call), (2, 2));
    let late = ModelResponded::new(1, "late", [].into(), StopReason::End, TokenUsage::default());
    let late = script.machine.handle(MachineInput::answer(script.at(), first.id, late));
    assert_eq!(late, Err(Misuse::Stale { epoch: 1, number: 1 }));
    let last = script.machine.transcript().messages().last().cloned();
    assert_eq!(last.as_deref(), Some(&layer0::message::Message::user("go on")));
}

/// Spec: D12. What was not done of the beginning is done in the next episode, once.
#[test]
fn beginning_is_done_where_it_was_not() {
    let mut definition = agent();
    definition.hooks = [HookRecord::new("h", vec![HookPoint::RunStart], true)].into();
    definition.memory = true;
    let mut script = cancelled(Script::new(definition));
    let again = script.machine.reopening("ops", None, None).unwrap();
    script.effects.clear();
    script.take(again);
    assert!(matches!(&script.effects[..], [MachineAction::RunHooks(Pause::RunStart { .. })]));
    script.take(HookPassed::new("run_start", None));
    let mut script = cancelled(script);
    let again = script.machine.reopening("ops", None, None).unwrap();
    script.effects.clear();
    script.take(again);
    assert!(matches!(&script.effects[..], [MachineAction::ReadMemory { .. }]));
    script.take(MemoryRead::new(vec!["one".into()]));
    let said = script.machine.transcript().messages();
    let expected = ["Be brief.\n\nMemory:\n- one", "question"];
    let texts: Vec<_> = said
        .iter()
        .map(|message| serde_json::to_value(message).unwrap()["content"].clone())
        .collect();
    assert_eq!(texts, expected);
    let mut script = cancelled(script);
    let again = script.machine.reopening("ops", None, None).unwrap();
    script.effects.clear();
    script.take(again);
    assert!(matches!(&script.effects[..], [MachineAction::CallModel(_)]));
}

/// Spec: D12
#[test]
fn iterations_are_counted_anew() {
    let mut definition = agent();
    definition.limits.max_iterations = 1;
    let mut script = Script::asking(definition, &["plain"]);
    script.begin("c0", "plain");
    script.end("c0", "plain");
    assert_eq!(script.reason(), "guard.max_iterations");
    let again = script.machine.reopening("ops", None, None).unwrap();
    script.take(again);
    script.respond(StopReason::End, "done", Vec::new());
    assert_eq!(script.reason(), "");
}

/// Spec: D12. An input that cannot be answered is final.
#[test]
fn empty_input_is_final() {
    let agent_record = AgentRecord::new("prop", "d", json!({}));
    let mut started = RunStarted::new(" \n", "s".into(), agent_record);
    started.machine = VERSION;
    let script = Script::start(agent(), started);
    let refused = script.machine.reopening("ops", Some("please".into()), None).unwrap_err();
    assert_eq!(refused, NotReopenable::Final(code::INPUT_INVALID.into()));
}
