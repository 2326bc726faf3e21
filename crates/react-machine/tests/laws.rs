//! The laws of the machine, under generated histories.
//!
//! A history is a list of choices. Most answer an effect that is open, because that is where the
//! interesting states are; the rest are wild: stale, repeated, unknown, out of place.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use layer0::event::*;
use layer0::id::CallId;
use layer0::message::{Message, StopReason, ToolCall};
use layer0::usage::TokenUsage;
use layer0::{Code, Timestamp, ToolSpec};
use proptest::prelude::*;
use react_machine::*;
use serde_json::json;

#[derive(Debug, Clone, Copy)]
enum Choice {
    /// Answer the open model call: (stop reason, number of calls, duplicate ids, has text).
    Answer { stop: u8, calls: usize, same_ids: bool, text: u8 },
    /// Fail one attempt of the open model call.
    Attempt,
    /// Fail the open model call.
    Fail,
    /// Admit or refuse the waiting batch; the bits say which call runs.
    Admit(u8),
    /// Answer an open execution.
    ToolAnswer { pick: usize, ok: bool, clock_back: bool },
    /// Leave a note.
    Note,
    /// Stop the run.
    Cancel,
    /// Send something that does not fit.
    Wild { kind: u8, number: u32 },
}

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        6 => (0..10_u8, 0..5_usize, any::<bool>(), 0..4_u8)
            .prop_map(|(stop, calls, same_ids, text)| Choice::Answer { stop, calls, same_ids, text }),
        2 => Just(Choice::Attempt),
        1 => Just(Choice::Fail),
        5 => any::<u8>().prop_map(Choice::Admit),
        8 => (0..8_usize, any::<bool>(), any::<bool>())
            .prop_map(|(pick, ok, clock_back)| Choice::ToolAnswer { pick, ok, clock_back }),
        1 => Just(Choice::Note),
        1 => Just(Choice::Cancel),
        3 => (0..9_u8, 0..4_u32).prop_map(|(kind, number)| Choice::Wild { kind, number }),
    ]
}

/// An agent whose guards leave a history alone for longer.
fn patient() -> Arc<AgentDefinition> {
    let mut definition = (*definition()).clone();
    definition.limits.max_repeated_batch_steps = None;
    definition.limits.max_stagnation_steps = None;
    Arc::new(definition)
}

fn definition() -> Arc<AgentDefinition> {
    let mut definition = AgentDefinition::new("prop", "Be brief.");
    definition.limits.max_iterations = 5;
    definition.limits.max_parallel_tools = 3;
    definition.tools = Arc::from([ToolSpec::new("look", "looks", json!({"type": "object"}))]);
    Arc::new(definition)
}

fn started() -> RunStarted {
    RunStarted {
        input: "question".into(),
        session: "s".into(),
        agent: AgentRecord {
            name: "prop".into(),
            digest: "d".into(),
            definition: Arc::new(json!({})),
        },
        parent: None,
    }
}

/// Drives a machine through choices and keeps the books the laws are checked against.
struct World {
    machine: Machine,
    log: Vec<Entry>,
    model: Option<ModelCall>,
    attempts: u32,
    batch: Option<Arc<[ToolCall]>>,
    /// Is the memory asked: to read (true), to write (false)?
    memory: Option<bool>,
    open: Vec<ToolRun>,
    finish: Option<Finish>,
    now: i64,
}

impl World {
    fn new() -> Self {
        Self::of(definition())
    }

    fn of(definition: Arc<AgentDefinition>) -> Self {
        let machine = Machine::new(definition).unwrap();
        let mut world = Self {
            machine,
            log: Vec::new(),
            model: None,
            attempts: 0,
            batch: None,
            memory: None,
            open: Vec::new(),
            finish: None,
            now: 1_000,
        };
        world.accept(Input::fact(Timestamp::from_millis(1_000), started()));
        world
    }

    fn at(&mut self) -> Timestamp {
        self.now += 7;
        Timestamp::from_millis(self.now)
    }

    fn accept(&mut self, input: Input) {
        self.machine.handle(input).expect("an input that answers what is open is taken");
        self.drain();
    }

    fn drain(&mut self) {
        loop {
            match self.machine.poll() {
                Output::Append(entry) => {
                    assert!(self.finish.is_none(), "nothing after the end");
                    self.log.push(entry);
                }
                Output::Perform(Effect::CallModel(call)) => {
                    self.attempts = call.attempts_before;
                    self.model = Some(call);
                }
                Output::Perform(Effect::AdmitTools(batch)) => self.batch = Some(batch.calls),
                Output::Perform(Effect::RunTool(run)) => self.open.push(run),
                Output::Perform(Effect::ReadMemory { .. }) => self.memory = Some(true),
                Output::Perform(Effect::WriteMemory { .. }) => self.memory = Some(false),
                Output::Perform(other) => panic!("unknown effect {other:?}"),
                Output::Wait => return assert!(self.finish.is_none()),
                Output::Finish(finish) => {
                    assert!(self.finish.is_none(), "one end");
                    self.finish = Some(finish);
                    return;
                }
                other => panic!("unknown output {other:?}"),
            }
        }
    }

    fn step(&mut self, choice: Choice) {
        if self.finish.is_some() {
            return self.refused(Input::fact(self.last(), Warning { message: "late".into() }));
        }
        if self.memory.is_some() && !matches!(choice, Choice::Cancel | Choice::Wild { .. }) {
            return self.memory_answer(choice);
        }
        match choice {
            Choice::Answer { stop, calls, same_ids, text } => {
                self.answer(stop, calls, same_ids, text);
            }
            Choice::Attempt => self.attempt(Some(Code::new("provider.transient"))),
            Choice::Fail => self.fail(),
            Choice::Admit(bits) => self.admit(bits),
            Choice::ToolAnswer { pick, ok, clock_back } => self.tool_answer(pick, ok, clock_back),
            Choice::Note => {
                let at = self.at();
                self.accept(Input::fact(at, Warning { message: "note".into() }));
            }
            Choice::Cancel => self.cancel(),
            Choice::Wild { kind, number } => self.wild(kind, number),
        }
    }

    fn memory_answer(&mut self, choice: Choice) {
        let Some(reading) = self.memory.take() else { return };
        let at = self.at();
        let fact: EventKind = match (matches!(choice, Choice::Attempt | Choice::Fail), reading) {
            (true, _) => MemoryDegraded {
                operation: "any".into(),
                reason: "memory.timeout".into(),
                message: "m".into(),
            }
            .into(),
            (false, true) => MemoryRead { entries: vec!["one".into(), "two".into()] }.into(),
            (false, false) => MemoryWrote { count: 1 }.into(),
        };
        self.accept(Input::fact(at, fact));
    }

    fn cancel(&mut self) {
        let at = self.at();
        let signal = SignalReceived { name: CANCEL.into(), data: json!(null) };
        self.accept(Input::fact(at, signal));
    }

    fn last(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    fn attempt(&mut self, code: Option<Code>) {
        let Some(call) = &self.model else { return };
        let attempted = ModelAttempted {
            call: call.call,
            attempt: self.attempts + 1,
            provider: "script".into(),
            code,
            status: None,
            delay_ms: None,
            usage: Some(TokenUsage { input_tokens: 3, output_tokens: 2, cached_tokens: 1 }),
        };
        self.attempts += 1;
        let (id, at) = (call.id, self.at());
        self.accept(Input::answer(at, id, attempted));
    }

    fn answer(&mut self, stop: u8, calls: usize, same_ids: bool, text: u8) {
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
            _ if calls > 0 => StopReason::ToolUse,
            _ => StopReason::End,
        };
        let tool_calls = (0..calls)
            .map(|index| ToolCall {
                id: if same_ids { "c".into() } else { format!("c{index}").into() },
                name: "look".into(),
                arguments: json!({ "index": index }),
            })
            .collect();
        let responded = ModelResponded {
            call: call.call,
            text: ["", " \n", "hm", "answer"][usize::from(text)].into(),
            thinking: None,
            tool_calls,
            stop_reason,
            usage: TokenUsage::default(),
        };
        let at = self.at();
        self.accept(Input::answer(at, call.id, responded));
    }

    fn fail(&mut self) {
        let Some(call) = self.model.take() else { return };
        let failed = ModelFailed {
            call: call.call,
            reason: "provider.transient".into(),
            message: "gave up".into(),
            chain: vec!["gave up".into()],
            attempts: self.attempts,
        };
        let at = self.at();
        self.accept(Input::answer(at, call.id, failed));
    }

    fn admit(&mut self, bits: u8) {
        let Some(calls) = self.batch.take() else { return };
        for (index, call) in calls.iter().enumerate() {
            let at = self.at();
            if bits & (1 << index) == 0 {
                self.accept(Input::fact(at, response(call.id.clone(), false)));
            } else {
                let requested = ToolRequested {
                    call_id: call.id.clone(),
                    tool: call.name.clone(),
                    arguments: call.arguments.clone(),
                    execution: self.machine.usage().tool_calls + 1,
                };
                self.accept(Input::fact(at, requested));
            }
        }
    }

    fn tool_answer(&mut self, pick: usize, ok: bool, clock_back: bool) {
        if self.open.is_empty() || self.batch.is_some() {
            return;
        }
        let run = self.open.remove(pick % self.open.len());
        let at = if clock_back { Timestamp::from_millis(5) } else { self.at() };
        self.accept(Input::answer(at, run.id, response(run.call_id, ok)));
    }

    fn wild(&mut self, kind: u8, number: u32) {
        let stale = EffectId { epoch: 0, number };
        let at = self.last();
        let call = self.model.as_ref().map_or(number, |call| call.call);
        let input = match kind {
            0 => Input::fact(at, started()),
            1 => Input::fact(at, response("unknown".into(), true)),
            2 => Input::answer(at, stale, response("c0".into(), true)),
            3 => Input::answer(
                at,
                stale,
                ModelFailed {
                    call,
                    reason: "provider.other".into(),
                    message: "x".into(),
                    chain: vec![],
                    attempts: 1,
                },
            ),
            4 => Input::fact(
                at,
                GuardTripped {
                    reason: "guard.stagnation".into(),
                    guard: "stagnation".into(),
                    count: 1,
                    limit: 1,
                    signature: None,
                    text_hash: None,
                    message: "forged".into(),
                },
            ),
            5 => Input::fact(
                at,
                ToolRequested {
                    call_id: "c0".into(),
                    tool: "look".into(),
                    arguments: json!({}),
                    execution: 99 + number,
                },
            ),
            6 => Input::fact(
                at,
                ModelAttempted {
                    call,
                    attempt: 77 + number,
                    provider: "x".into(),
                    code: None,
                    status: None,
                    delay_ms: None,
                    usage: None,
                },
            ),
            7 => match answered_call(&self.log) {
                Some(id) => Input::fact(at, response(id, true)),
                None => return,
            },
            _ => Input::fact(
                at,
                RunFinished {
                    outcome: layer0::stop::Outcome::Completed,
                    reason: None,
                    message: None,
                    output: "forged".into(),
                    usage: layer0::usage::Usage::default(),
                },
            ),
        };
        self.refused(input);
    }

    fn refused(&mut self, input: Input) {
        let before = self.machine.clone();
        self.machine.handle(input).expect_err("an input that fits nothing is refused");
        assert_eq!(self.machine, before, "a refused input changes nothing");
    }
}

fn answered_call(log: &[Entry]) -> Option<CallId> {
    log.iter().rev().find_map(|entry| match &entry.kind {
        EventKind::ToolResponded(responded) => Some(responded.call_id.clone()),
        _ => None,
    })
}

fn response(call_id: CallId, ok: bool) -> ToolResponded {
    ToolResponded {
        call_id,
        tool: "look".into(),
        ok,
        output: if ok { json!("seen") } else { json!({"error": "Tool 'look' failed"}) },
        duration_ms: 1,
        error: None,
    }
}

/// Feeds the facts of a log to a fresh machine; returns it with what it appended.
fn replay(definition: Arc<AgentDefinition>, log: &[Entry]) -> (Machine, Vec<Entry>) {
    let mut machine = Machine::new(definition).unwrap();
    let mut appended = Vec::new();
    for entry in log.iter().filter(|entry| entry.actor != Actor::Machine) {
        machine.handle(Input::fact(entry.at, entry.kind.clone())).expect("a recorded fact fits");
        loop {
            match machine.poll() {
                Output::Append(entry) => appended.push(entry),
                Output::Perform(_) => {}
                _ => break,
            }
        }
    }
    (machine, appended)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn histories_keep_the_laws(
        choices in prop::collection::vec(choice(), 0..60),
        patiently in any::<bool>(),
        remembering in any::<bool>(),
    ) {
        let mut definition = if patiently { patient() } else { definition() };
        Arc::make_mut(&mut definition).memory = remembering;
        let mut world = World::of(definition.clone());
        let mut prefixes = vec![(world.log.len(), world.machine.clone())];
        for choice in choices {
            world.step(choice);
            prefixes.push((world.log.len(), world.machine.clone()));
        }

        // Entries are numbered without a gap, causes point backwards, time never does.
        for (index, entry) in world.log.iter().enumerate() {
            prop_assert_eq!(entry.seq, index as u64 + 1);
            prop_assert!(entry.caused_by.is_none_or(|cause| cause < entry.seq));
        }
        prop_assert!(world.log.is_sorted_by_key(|entry| entry.at));

        // One answer per call, and only to calls that were asked for.
        let mut answers = BTreeMap::<CallId, usize>::new();
        let mut asked = BTreeSet::new();
        for entry in &world.log {
            match &entry.kind {
                EventKind::ModelResponded(responded) => {
                    for call in responded.tool_calls.iter() {
                        prop_assert!(asked.insert(call.id.clone()), "call ids are unique");
                    }
                }
                EventKind::ToolResponded(responded) => {
                    prop_assert!(asked.contains(&responded.call_id));
                    *answers.entry(responded.call_id.clone()).or_default() += 1;
                }
                _ => {}
            }
        }
        prop_assert!(answers.values().all(|count| *count == 1));

        // Bounds hold.
        let usage = world.machine.usage();
        prop_assert!(usage.model_calls <= 5);
        prop_assert!(usage.tool_calls <= 5 * 3);
        prop_assert_eq!(usage.total_tokens, u64::from(usage.model_attempts) * 5);

        // The end is the last entry, and the only one of its kind.
        let ends = |entry: &Entry| {
            matches!(entry.kind, EventKind::RunFinished(_) | EventKind::RunFailed(_))
        };
        let count = world.log.iter().filter(|entry| ends(entry)).count();
        prop_assert_eq!(count, usize::from(world.finish.is_some()));
        if world.finish.is_some() {
            prop_assert!(world.log.last().is_some_and(ends));
            prop_assert_eq!(answers.len(), asked.len(), "no call is left without an answer");
        }

        // Every tool message answers a call of the assistant message before it.
        let mut waiting = BTreeSet::new();
        for message in world.machine.transcript().messages() {
            match &**message {
                Message::Assistant { tool_calls, .. } => {
                    prop_assert!(waiting.is_empty());
                    waiting.extend(tool_calls.iter().map(|call| call.id.clone()));
                }
                Message::Tool { tool_call_id, .. } => prop_assert!(waiting.remove(tool_call_id)),
                _ => prop_assert!(waiting.is_empty()),
            }
        }

        // Replay from every prefix gives an equal machine and the same entries.
        for (length, machine) in &prefixes {
            let (replayed, appended) = replay(definition.clone(), &world.log[..*length]);
            prop_assert_eq!(&replayed, machine);
            prop_assert_eq!(&appended[..], &world.log[..*length]);
        }
    }
}

/// Spec: G1
#[test]
fn tools_of_the_last_call_run_before_the_guard_trips() {
    let mut world = World::of(patient());
    for _ in 0..5 {
        world.answer(9, 1, false, 3);
        world.admit(1);
        world.tool_answer(0, true, false);
    }
    assert_eq!(world.finish, Some(Finish::Failed(FailureCause::MaxIterations(5))));
    assert_eq!(world.machine.usage().tool_calls, 5);
    assert_eq!(&**world.machine.last_text(), "answer");
}

/// Spec: G1
#[test]
fn zero_iterations_are_refused_at_start() {
    let mut definition = AgentDefinition::new("none", "");
    definition.limits.max_iterations = 0;
    assert_eq!(
        Machine::new(Arc::new(definition)).err(),
        Some(DefinitionError::ZeroLimit("max_iterations"))
    );
}

/// Spec: P9
#[test]
fn a_pause_is_resent_under_the_same_call_and_not_for_ever() {
    let mut world = World::of(patient());
    for _ in 0..6 {
        assert_eq!(world.model.as_ref().map(|call| call.call), Some(1));
        world.answer(3, 0, false, 2);
    }
    assert!(matches!(world.finish, Some(Finish::Failed(FailureCause::InvalidResponse(_)))));
    assert_eq!(world.machine.usage().model_calls, 1);
    assert_eq!(world.machine.usage().model_attempts, 6);
}

/// Spec: G6
#[test]
fn an_empty_answer_is_asked_for_once_more() {
    let mut world = World::new();
    world.answer(9, 0, false, 1);
    world.answer(9, 0, false, 3);
    assert!(matches!(&world.finish, Some(Finish::Stopped { output, .. }) if &**output == "answer"));
    let mut world = World::new();
    world.answer(9, 0, false, 0);
    world.answer(9, 0, false, 0);
    assert!(matches!(world.finish, Some(Finish::Failed(FailureCause::InvalidResponse(_)))));
}

/// Spec: P9
#[test]
fn cut_answers_are_incomplete() {
    #[track_caller]
    fn check(stop: u8, reason: &str) {
        let mut world = World::new();
        world.answer(stop, 0, false, 3);
        let Some(Finish::Stopped { stop, output }) = world.finish else { panic!("it stopped") };
        assert_eq!(stop.reason().map(|code| code.to_string()).as_deref(), Some(reason));
        assert_eq!(&*output, "answer");
    }
    check(0, "model.max_tokens");
    check(1, "model.refusal");
    check(2, "model.content_filter");
}

/// Spec: G4
#[test]
fn an_oversized_batch_trips_before_any_of_it_runs() {
    let mut world = World::new();
    world.answer(9, 4, false, 2);
    assert_eq!(
        world.finish,
        Some(Finish::Failed(FailureCause::ParallelToolLimit { count: 4, limit: 3 }))
    );
    assert!(world.open.is_empty() && world.batch.is_none());
    assert_eq!(world.machine.usage().tool_calls, 0);
}

/// One turn of the model for the guards' tests.
struct Step<'a> {
    text: &'a str,
    calls: &'a [(&'a str, i64)],
    /// What the tools answer.
    result: &'a str,
}

impl World {
    /// Lets the model take a turn, and runs its tools; says whether the run goes on.
    fn turn(&mut self, step: &Step<'_>) -> bool {
        self.attempt(None);
        let Some(call) = self.model.take() else { return false };
        let tool_calls = step.calls.iter().enumerate().map(|(index, (name, argument))| ToolCall {
            id: format!("{}-{index}", call.call).into(),
            name: (*name).into(),
            arguments: json!({ "argument": argument }),
        });
        let responded = ModelResponded {
            call: call.call,
            text: step.text.into(),
            thinking: None,
            tool_calls: tool_calls.collect(),
            stop_reason: StopReason::ToolUse,
            usage: TokenUsage::default(),
        };
        let at = self.at();
        self.accept(Input::answer(at, call.id, responded));
        self.admit(0xff);
        while let Some(run) = self.open.pop() {
            let mut answer = response(run.call_id, true);
            answer.output = json!(step.result);
            let at = self.at();
            self.accept(Input::answer(at, run.id, answer));
        }
        self.finish.is_none()
    }
}

fn guarded(change: impl FnOnce(&mut AgentDefinition)) -> World {
    let mut definition = (*definition()).clone();
    definition.limits = Limits { max_iterations: 50, ..Limits::default() };
    change(&mut definition);
    World::of(Arc::new(definition))
}

const LOOK: &[(&str, i64)] = &[("look", 1), ("peek", 2)];
const KOOL: &[(&str, i64)] = &[("peek", 2), ("look", 1)];

/// Spec: G2
#[test]
fn the_third_identical_batch_is_a_loop_whatever_is_between() {
    let mut world = guarded(|_| {});
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
fn the_sixth_same_text_without_a_new_call_is_stagnation() {
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
fn stagnation_comes_before_loop_and_an_answer_is_never_one() {
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
fn a_call_that_keeps_failing_the_same_way_is_not_to_be_run_again() {
    let mut world = guarded(|_| {});
    let arguments = json!({"argument": 1});
    let mut fail = |code: &str| {
        let call = world.model.take().unwrap();
        let (at, id) = (world.at(), call.id);
        let attempted = ModelAttempted {
            call: call.call,
            attempt: 1,
            provider: "script".into(),
            code: None,
            status: None,
            delay_ms: None,
            usage: None,
        };
        world.accept(Input::answer(at, id, attempted));
        let tool_calls = [ToolCall {
            id: format!("c{}", call.call).into(),
            name: "look".into(),
            arguments: arguments.clone(),
        }];
        let responded = ModelResponded {
            call: call.call,
            text: "".into(),
            thinking: None,
            // Another call beside it keeps the batches apart.
            tool_calls: tool_calls
                .into_iter()
                .chain([ToolCall {
                    id: format!("x{}", call.call).into(),
                    name: "peek".into(),
                    arguments: json!({ "n": call.call }),
                }])
                .collect(),
            stop_reason: StopReason::ToolUse,
            usage: TokenUsage::default(),
        };
        world.accept(Input::answer(at, id, responded));
        world.admit(0xff);
        while let Some(run) = world.open.pop() {
            let mut answer = response(run.call_id, false);
            answer.error = Some(ToolFailure {
                reason: "tool.execution_failed".into(),
                code: Some(code.into()),
                message: "no".into(),
                error_id: None,
            });
            world.accept(Input::answer(at, run.id, answer));
        }
        world.machine.repeated_failure("look", &arguments)
    };
    assert_eq!(fail("E1"), None);
    assert_eq!(fail("E1"), None);
    assert_eq!(fail("E2"), None, "another code begins anew");
    assert_eq!(fail("E2"), None);
    assert_eq!(fail("E2"), Some(("E2".into(), 3)));
    assert_eq!(world.machine.repeated_failure("look", &json!({"argument": 2})), None);
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
