//! The guards' exact counting, and what ends a run from outside.

use std::sync::Arc;

use backstop_react_machine::*;
use layer0::event::*;
use layer0::message::{Message, StopReason, ToolCall};
use layer0::usage::TokenUsage;
use serde_json::json;

use crate::world::{World, definition, response};

/// One turn of the model for the guards' tests.
struct Step<'a> {
    text: &'a str,
    calls: &'a [(&'a str, i64)],
    /// Output of the tools.
    result: &'a str,
}

impl World {
    /// Lets the model take a turn, and runs its tools; returns whether the run continues.
    fn turn(&mut self, step: &Step<'_>) -> bool {
        self.attempt(None);
        let Some(call) = self.model.take() else { return false };
        let tool_calls = step.calls.iter().enumerate().map(|(index, (name, argument))| {
            ToolCall::new(format!("{}-{index}", call.call), *name, json!({ "argument": argument }))
        });
        let responded = ModelResponded::new(
            call.call,
            step.text,
            tool_calls.collect(),
            StopReason::ToolUse,
            TokenUsage::default(),
        );
        let at = self.at();
        self.accept(MachineInput::answer(at, call.id, responded));
        self.admit(0x0f);
        while let Some(run) = self.open.pop() {
            let mut answer = response(run.call_id, true);
            answer.tool = run.tool;
            answer.output = json!(step.result).into();
            let at = self.at();
            self.accept(MachineInput::answer(at, run.id, answer));
        }
        self.finish.is_none()
    }
}

fn guarded(change: impl FnOnce(&mut AgentDefinition)) -> World {
    let mut definition = (*definition()).clone();
    definition.limits = Limits::new().max_iterations(50);
    definition.budget.max_tool_calls = None;
    change(&mut definition);
    World::of(Arc::new(definition))
}

const LOOK: &[(&str, i64)] = &[("look", 1), ("peek", 2)];
const KOOL: &[(&str, i64)] = &[("peek", 2), ("look", 1)];

/// Spec: G2
#[test]
fn an_identical_batch_is_counted_whatever_is_between() {
    let mut world = guarded(|definition| definition.limits.max_repeated_batch_steps = Some(2));
    assert!(world.turn(&Step { text: "a", calls: LOOK, result: "same" }));
    assert!(world.turn(&Step { text: "b", calls: &[("look", 9)], result: "same" }));
    assert!(world.turn(&Step { text: "c", calls: KOOL, result: "same" }), "order does not matter");
    assert!(world.turn(&Step { text: "d", calls: &[("look", 1)], result: "same" }), "number does");
    let before = world.machine.usage().tool_calls;
    assert!(!world.turn(&Step { text: "e", calls: LOOK, result: "same" }));
    assert_eq!(world.machine.usage().tool_calls, before, "nothing of it runs");
    let Some(Finish::Failed(FailureCause::Loop { signature, count: 3, limit: 2 })) = &world.finish
    else {
        panic!("{:?}", world.finish)
    };
    assert!(signature.starts_with("look:") && signature.contains("|peek:"), "{signature}");
    let Some(EventKind::GuardTripped(tripped)) =
        world.log.iter().map(|entry| &entry.kind).find(|kind| kind.event_type() == "guard.tripped")
    else {
        panic!("it is an event")
    };
    assert_eq!((&*tripped.guard, tripped.count, tripped.limit), ("loop_detected", 3, 2));
    assert_eq!(tripped.signature.as_ref(), Some(signature));
}

/// Spec: G2
#[test]
fn the_limit_of_a_loop_counts_exactly() {
    fn turns_until_loop(limit: Option<u32>) -> usize {
        let mut world = guarded(|definition| definition.limits.max_repeated_batch_steps = limit);
        (0..20).take_while(|_| world.turn(&Step { text: "", calls: LOOK, result: "same" })).count()
    }
    assert_eq!(turns_until_loop(Some(0)), 0, "the first trips");
    assert_eq!(turns_until_loop(Some(1)), 1);
    assert_eq!(turns_until_loop(Some(2)), 2);
    assert_eq!(turns_until_loop(None), 20, "off");
    assert_eq!(turns_until_loop(Limits::default().max_repeated_batch_steps), 4, "the fifth trips");
}

impl World {
    /// Returns the texts of the tools' answers of the last turn, as the model reads them.
    fn last_answers(&self) -> Vec<String> {
        let messages = self.machine.transcript().messages().iter().rev();
        let answers = messages.map_while(|message| match &**message {
            Message::Tool { content, .. } => Some(content.to_string()),
            _ => None,
        });
        answers.collect()
    }
}

/// Spec: G2. The model hears of it before the run ends of it; the record has the answers as they came.
#[test]
fn repeated_answers_end_with_a_note() {
    const PENDING: &str = "pending";
    let mut world = guarded(|_| {});
    for _ in 0..2 {
        assert!(world.turn(&Step { text: "", calls: LOOK, result: PENDING }));
        assert_eq!(world.last_answers(), [PENDING, PENDING]);
    }
    for times in [3, 4] {
        assert!(world.turn(&Step { text: "", calls: KOOL, result: PENDING }));
        let noted = format!(
            "{PENDING}\nNote: this call was made {times} times with the same result; the run ends \
             after 4."
        );
        assert_eq!(world.last_answers(), [noted.clone(), noted]);
    }
    for entry in &world.log {
        if let EventKind::ToolResponded(responded) = &entry.kind {
            assert_eq!(responded.output, json!(PENDING));
        }
    }
    assert!(!world.turn(&Step { text: "", calls: LOOK, result: PENDING }));
    assert!(matches!(
        world.finish,
        Some(Finish::Failed(FailureCause::Loop { count: 5, limit: 4, .. }))
    ));
}

/// Spec: G2
#[test]
fn notes_are_left_out_where_nothing_ends() {
    #[track_caller]
    fn never_noted(change: impl FnOnce(&mut AgentDefinition), result: impl Fn(i32) -> String) {
        let mut world = guarded(change);
        for turn in 0..6 {
            if !world.turn(&Step { text: "", calls: LOOK, result: &result(turn) }) {
                break;
            }
            let answers = world.last_answers();
            assert!(answers.iter().all(|answer| !answer.contains("Note:")), "{answers:?}");
        }
    }
    let same = |_| "same".to_owned();
    never_noted(|_| {}, |turn| turn.to_string());
    never_noted(|definition| definition.limits.max_repeated_batch_steps = None, same);
    never_noted(|definition| definition.limits.max_repeated_batch_steps = Some(2), same);
    let patterns = || Arc::from(["look".to_owned(), "peek".to_owned()]);
    never_noted(|definition| definition.exploratory_tools = patterns(), same);
}

/// Spec: G2. What changed once counts toward the limit, and not as the same result.
#[test]
fn note_names_repeated_results() {
    let mut world = guarded(|_| {});
    for result in ["queued", "pending", "pending"] {
        assert!(world.turn(&Step { text: "", calls: &[("look", 1)], result }));
    }
    assert_eq!(
        world.last_answers(),
        ["pending\nNote: this call was made 2 times with the same result; the run ends after 3."]
    );
    assert!(world.turn(&Step { text: "", calls: &[("look", 1)], result: "pending" }));
    assert_eq!(
        world.last_answers(),
        ["pending\nNote: this call was made 3 times with the same result; the run ends after 3."]
    );
    assert!(!world.turn(&Step { text: "", calls: &[("look", 1)], result: "pending" }));
}

/// Spec: G2
#[test]
fn progress_gets_the_higher_limit() {
    let mut world = guarded(|_| {});
    let changing = (0..40)
        .take_while(|n| world.turn(&Step { text: "", calls: LOOK, result: &n.to_string() }))
        .count();
    assert_eq!(changing, 15, "results that change are progress");
    for (declared, pattern) in [(true, ""), (false, "OOK")] {
        let mut world = guarded(|definition| {
            let mut tool = definition.tools[0].clone();
            tool.exploratory = declared;
            definition.tools = Arc::from([tool]);
            if !pattern.is_empty() {
                definition.exploratory_tools = Arc::from([pattern.to_owned()]);
            }
        });
        let looks = (0..40)
            .take_while(|_| world.turn(&Step { text: "", calls: &[("look", 1)], result: "same" }))
            .count();
        assert_eq!(looks, 15, "looking around is progress");
    }
}

/// Spec: G3
#[test]
fn sixth_same_text_is_stagnation() {
    let mut world = guarded(|definition| definition.limits.max_repeated_batch_steps = None);
    // A and B take turns; the calls were seen after the first two turns.
    for turn in 0..10 {
        let text = if turn % 2 == 0 { "a" } else { "b" };
        assert!(world.turn(&Step { text, calls: LOOK, result: "same" }), "turn {turn}");
    }
    assert!(
        world.turn(&Step { text: "a", calls: &[("look", 77)], result: "same" }),
        "a new call is progress"
    );
    assert!(world.turn(&Step { text: "", calls: LOOK, result: "same" }), "no text does not count");
    assert!(!world.turn(&Step { text: "a", calls: LOOK, result: "same" }));
    let Some(Finish::Failed(FailureCause::Stagnation { text_hash, count: 7, limit: 5 })) =
        &world.finish
    else {
        panic!("{:?}", world.finish)
    };
    assert_eq!(&**text_hash, "af63dc4c8601ec8c");
}

/// Spec: G3, G5
#[test]
fn stagnation_trips_before_loop() {
    let mut world = guarded(|definition| definition.limits.max_stagnation_steps = Some(2));
    assert!(world.turn(&Step { text: "a", calls: LOOK, result: "same" }));
    assert!(world.turn(&Step { text: "a", calls: LOOK, result: "same" }));
    assert!(!world.turn(&Step { text: "a", calls: LOOK, result: "same" }));
    assert!(matches!(world.finish, Some(Finish::Failed(FailureCause::Stagnation { .. }))));

    let mut world = guarded(|definition| definition.limits.max_stagnation_steps = Some(0));
    world.answer(9, 0, false, 3);
    assert!(matches!(world.finish, Some(Finish::Stopped { .. })), "an answer ends the run");
}

/// Spec: T9
#[test]
fn call_that_keeps_failing_alike_is_refused() {
    let mut world = guarded(|_| {});
    let arguments = json!({"argument": 1});
    let mut fail = |code: &str| {
        let call = world.model.take().unwrap();
        let (at, id) = (world.at(), call.id);
        let attempted = ModelAttempted::new(call.call, 1, "script");
        world.accept(MachineInput::answer(at, id, attempted));
        // A further call keeps the batches different.
        let calls = [
            ToolCall::new(format!("c{}", call.call), "look", arguments.clone()),
            ToolCall::new(format!("x{}", call.call), "peek", json!({ "n": call.call })),
        ];
        let (reason, usage) = (StopReason::ToolUse, TokenUsage::default());
        let responded = ModelResponded::new(call.call, "", calls.into(), reason, usage);
        world.accept(MachineInput::answer(at, id, responded));
        world.admit(0x0f);
        while let Some(run) = world.open.pop() {
            let mut answer = response(run.call_id, false);
            answer.tool = run.tool;
            let mut failure = ToolFailure::new("tool.execution_failed", "no");
            failure.code = Some(code.into());
            answer.error = Some(failure);
            world.accept(MachineInput::answer(at, run.id, answer));
        }
        world.machine.repeated_failure("look", &arguments.clone().into())
    };
    assert_eq!(fail("E1"), None);
    assert_eq!(fail("E1"), None);
    assert_eq!(fail("E2"), None, "another code begins anew");
    assert_eq!(fail("E2"), None);
    assert_eq!(fail("E2"), Some(("E2".into(), 3)));
    assert_eq!(world.machine.repeated_failure("look", &json!({"argument": 2}).into()), None);
}

/// Returns the running time of this thread, in nanoseconds, if the system reports it.
fn cpu_time() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Spec: T6, G4. Thousands of calls of one id cost no more a call than a few.
#[test]
fn call_ids_are_made_unique_in_linear_time() {
    fn refuse(count: usize) {
        let mut world = World::new();
        let call = world.model.take().unwrap();
        let one = ToolCall::new("c", "look", json!({}));
        let responded = ModelResponded::new(
            call.call,
            "",
            vec![one; count].into(),
            StopReason::ToolUse,
            TokenUsage::default(),
        );
        let at = world.at();
        world.accept(MachineInput::answer(at, call.id, responded));
        assert!(matches!(
            world.finish,
            Some(Finish::Failed(FailureCause::ParallelToolLimit { .. }))
        ));
        let ids = world.log.iter().filter_map(|entry| match &entry.kind {
            EventKind::ToolResponded(responded) => Some(responded.call_id.clone()),
            _ => None,
        });
        assert_eq!(ids.collect::<std::collections::BTreeSet<_>>().len(), count);
    }
    let time = |times: usize, count| {
        let began = cpu_time()?;
        (0..times).for_each(|_| refuse(count));
        Some(cpu_time()? - began)
    };
    refuse(100);
    let (Some(many_small), Some(one_large)) = (time(8, 2_000), time(1, 16_000)) else { return };
    // As many calls in all; eight times the work if each looked at all before it.
    assert!(one_large < many_small * 4, "{many_small} ns in eight, {one_large} ns at once");
}

/// Spec: B3
#[test]
fn a_cancelled_run_has_every_call_answered() {
    let mut world = World::new();
    world.answer(9, 3, false, 2);
    world.admit(0b011);
    world.tool_answer(0, true, false);
    world.cancel();
    assert_eq!(
        world.finish,
        Some(Finish::Stopped { stop: layer0::stop::Stop::Cancelled, output: "hm".into() })
    );
    let answers =
        world.log.iter().filter(|entry| entry.kind.event_type() == "tool.responded").count();
    assert_eq!(answers, 3);
    assert_eq!(world.machine.transcript().messages().len(), 2 + 1 + 3);
}
