//! Requests that a run refuses, and its texts at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_event_log::{Decision, Inbox, Log, MemoryLog, RunFilter, Runs};
use backstop_provider::{ErrorKind, ScriptedAnswer, ScriptedProvider};
use backstop_react::{
    Agent, AgentBuilder, AgentError, Budget, BuildError, Gate, GateVerdict, HookContext, HookPoint,
    Limits, Moment, Price, ResumeError, RunRequest, read_outcome, replay,
};
use backstop_tool::{Tool, ToolContext, ToolError, ToolSpec};
use layer0::error::BoxError;
use layer0::event::EventKind;
use layer0::failure::chain;
use layer0::message::StopReason;
use serde_json::{Value, json};

use crate::bench::*;

fn nested(levels: usize, leaf: Value) -> Value {
    (1..levels).fold(leaf, |inner, _| json!({ "items": inner }))
}

/// Spec: D2. What the log could not read back is refused before anything is written; what is accepted is
/// read back, and does not keep its session from going on.
#[tokio::test]
async fn a_schema_too_deep_to_record_is_refused() {
    for (levels, accepted) in [(3, true), (100, true), (101, false), (126, false), (1_000, false)] {
        let bench = Bench::new();
        let agent = bench.agent(vec![says("1"), says("more")]).build().unwrap();
        let schema = nested(levels, json!({ "type": "integer" }));
        let request = RunRequest::new("go").session("s").output_schema(schema);
        let result = agent.run(request).await;
        let runs = bench.log.runs(RunFilter::default()).await.unwrap();
        assert_eq!(runs.len(), usize::from(accepted), "{levels}");
        match result {
            Ok(outcome) => {
                assert!(accepted, "{levels}");
                assert!(matches!(replay(&*bench.log, &outcome.run_id).await, Ok(Some(_))));
                agent.resume(outcome.run_id).await.unwrap();
            }
            Err(failure) => {
                assert!(!accepted, "{levels}: {failure:#}");
                assert_eq!(failure.code(), "input.invalid");
                assert!(format!("{failure:#}").ends_with("nested deeper than 100 levels"));
            }
        }
        agent.run(RunRequest::new("go on").session("s")).await.unwrap();
    }
}

/// Spec: D2
#[test]
fn a_source_too_deep_to_record_is_refused() {
    let build = |levels| Bench::new().agent(vec![]).source(nested(levels, json!({}))).build();
    assert!(build(100).is_ok());
    let why = chain(&build(101).unwrap_err()).join(": ");
    assert!(why.ends_with("`source` is nested deeper than 100 levels"), "{why}");
}

/// Spec: B1, G1. From the API as from files, before anything runs.
#[test]
fn numbers_that_bound_nothing_are_refused() {
    #[track_caller]
    fn check(key: &str, change: impl FnOnce(AgentBuilder) -> AgentBuilder) {
        let agent = change(Bench::new().agent(vec![says("hi")]));
        match agent.build() {
            Err(BuildError::Definition(error)) => {
                assert!(error.to_string().contains(&format!("`{key}`")), "{error}");
            }
            other => panic!("{key}: {other:?}"),
        }
    }
    for amount in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.5] {
        let price = Price::new;
        check("input_per_mtok", |agent| agent.price(price(amount, 1.0)));
        check("output_per_mtok", |agent| agent.price(price(1.0, amount)));
        let budget = Budget::new().cost_usd(amount);
        check("max_cost_usd", |agent| agent.price(price(1.0, 1.0)).budget(budget));
    }
    let limits = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        move |agent: AgentBuilder| agent.limits(limits)
    };
    check("max_iterations", limits(|limits| limits.max_iterations = 0));
    check("max_concurrent_tools", limits(|limits| limits.max_concurrent_tools = 0));
    check("max_repeated_failures", limits(|limits| limits.max_repeated_failures = Some(0)));
    check("tool_timeout_ms", limits(|limits| limits.tool_timeout_ms = 0));
    check("hook_timeout_ms", limits(|limits| limits.hook_timeout_ms = 0));
    check("memory_timeout_ms", limits(|limits| limits.memory_timeout_ms = 0));
}

/// A gate that takes its time over every answer, then lets the run continue or not.
struct Slow(Arc<dyn Clock>, Duration);

#[async_trait]
impl Gate for Slow {
    fn name(&self) -> &str {
        "slow"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::AfterModel]
    }
    async fn judge(&self, _: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        self.0.sleep(self.1).await;
        Ok(GateVerdict::Continue)
    }
}

/// Spec: D6, H1. When hooks let a run go on is a fact, so that replay finds the budget as it was.
#[tokio::test]
async fn time_in_hooks_replays_as_it_passed() {
    for hook_ms in [0, 4_999, 5_000, 5_001, 7_000, 40_000] {
        let bench = Bench::new();
        let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
        let budget = Budget::new().wall(Duration::from_millis(10_000));
        let limits = Limits::new().hook_timeout(Duration::from_millis(60_000));
        let answers = vec![calls([call("c", "add", json!({"x": 1, "y": 2}))]), says("3")];
        let agent = bench
            .agent(answers)
            .tool(add)
            .budget(budget)
            .limits(limits)
            .gate(Slow(clock, Duration::from_millis(hook_ms)));
        let outcome = bench.run(agent).await.unwrap();
        let events = bench.events(&outcome.run_id).await;
        let replayed = replay(&*bench.log, &outcome.run_id).await.unwrap();
        assert!(replayed.is_some(), "{hook_ms}");
        let passed = types(&events).into_iter().filter(|kind| *kind == "hook.passed").count();
        let in_time = [10_000_u64, 5_000].map(|most| u64::from(hook_ms < most));
        assert_eq!(passed as u64, in_time.iter().sum::<u64>(), "{hook_ms}: {:?}", types(&events));
        for until in 1..events.len() as u64 {
            let fork = backstop_react::ForkRequest::new(outcome.run_id.clone(), until);
            // A copy from any event replays as the run does.
            let copy =
                bench.agent(vec![says("3"), says("3"), says("3")]).tool(add).build().unwrap();
            let copied = copy.fork(fork).await.unwrap();
            replay(&*bench.log, &copied.run_id).await.unwrap();
        }
    }
}

/// Spec: O2. A run is as deep after a resume as it was before.
#[tokio::test]
async fn depth_survives_a_resume() {
    let bench = Bench::new();
    let child = bench.agent(vec![says("deep")]).name("child").build().unwrap();
    let agent = |answers| {
        bench
            .agent(answers)
            .tool(add)
            .require_approval("add")
            .tool(child.as_tool("Is deep."))
            .build()
            .unwrap()
    };
    let ask = calls([call("c1", "add", json!({"x": 1, "y": 2}))]);
    let request = RunRequest::new("go").depth(7);
    let waiting = agent(vec![ask]).run(request).await.unwrap();
    let approval = waiting.approvals[0].id.clone();
    let decision = Decision::approve("ops");
    assert!(bench.log.decide(&approval, decision, bench.clock.now()).await.unwrap());
    let answers = vec![calls([call("c2", "child", json!({"input": "go"}))]), says("done")];
    agent(answers).resume(waiting.run_id).await.unwrap();
    let runs = bench.log.runs(RunFilter::default()).await.unwrap();
    let child = runs.iter().find(|run| &*run.agent == "child").unwrap();
    let EventKind::RunStarted(started) = &bench.events(&child.run).await[0].kind else { panic!() };
    assert_eq!(started.depth, 8);
}

/// A part that panics in its own description when configured to.
struct Moody {
    spec: ToolSpec,
    panics_at: &'static str,
    is_moody: Arc<AtomicBool>,
}

#[async_trait]
impl Tool for Moody {
    fn spec(&self) -> &ToolSpec {
        assert!(self.panics_at != "spec", "no spec");
        &self.spec
    }
    fn stores_errors(&self) -> bool {
        assert!(self.panics_at != "stores_errors", "no idea");
        true
    }
    fn needs(&self, _: &backstop_tool::Arguments) -> Result<Vec<String>, ToolError> {
        assert!(!self.is_moody.load(Ordering::SeqCst), "not again");
        Ok(Vec::new())
    }
    async fn call(
        &self,
        _: &backstop_tool::Arguments,
        _: &ToolContext,
    ) -> Result<backstop_tool::JsonText, ToolError> {
        std::future::pending().await
    }
}

fn moody(panics_at: &'static str, is_moody: &Arc<AtomicBool>) -> Moody {
    let spec = ToolSpec::new("moody", "Is moody.", json!({"type": "object"})).idempotent();
    Moody { spec, panics_at, is_moody: Arc::clone(is_moody) }
}

/// Spec: E11
#[test]
fn tool_with_a_panicking_spec_is_not_added() {
    for panics_at in ["spec", "stores_errors"] {
        let tool = moody(panics_at, &Arc::default());
        let error = Bench::new().agent(vec![]).tool(tool).build().unwrap_err();
        let why = chain(&error).join(": ");
        assert!(why.contains("a tool panicked when it was asked what it is"), "{why}");
    }
}

/// Spec: E11, D5
#[tokio::test]
async fn needs_that_panic_on_a_rerun_are_answered() {
    let bench = Bench::new();
    let _time_stands_still = bench.clock.hold();
    let is_moody = Arc::new(AtomicBool::new(false));
    let agent = |answers| bench.agent(answers).tool(moody("", &is_moody)).build().unwrap();
    let first = agent(vec![calls([call("c", "moody", json!({}))])]);
    let run = layer0::id::RunId::from("run_moody");
    let request = RunRequest::new("go").run(run.clone());
    let task = tokio::spawn(async move { first.run(request).await });
    let begun = async || match bench.log.summary(&run).await.unwrap() {
        Some(summary) => summary.usage.tool_calls == 1,
        None => false,
    };
    while !begun().await {
        tokio::task::yield_now().await;
    }
    task.abort();
    let _ = task.await;
    is_moody.store(true, Ordering::SeqCst);
    let outcome = agent(vec![says("done")]).resume(run).await.unwrap();
    assert_eq!(tool_texts(&outcome)[0].0, "Tool 'moody' panicked: not again");
    assert_eq!(outcome.usage.tool_calls, 2, "to run it again is another execution");
}

/// Stops the run in one way or another.
struct Stopping(Option<&'static str>);

#[async_trait]
impl Gate for Stopping {
    fn name(&self) -> &str {
        "gate"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::RunStart]
    }
    fn fail_open(&self) -> bool {
        false
    }
    async fn judge(&self, _: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        match self.0 {
            Some(reason) => Ok(GateVerdict::Abort(reason.into())),
            None => Err("no connection".into()),
        }
    }
}

/// Spec: E13. The record and the live error say the same words.
#[tokio::test]
async fn a_failure_has_one_text() {
    let again = || calls([call("c", "add", json!({"x": 1, "y": 2}))]);
    let says_again = || again().text("hm");
    let limits = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        limits
    };
    type Change = Box<dyn FnOnce(AgentBuilder) -> AgentBuilder>;
    let limited = |limits| -> Change { Box::new(move |agent| agent.limits(limits)) };
    let gated = |gate| -> Change { Box::new(move |agent| agent.gate(gate)) };
    let cases: Vec<(&str, Vec<ScriptedAnswer>, Change)> = vec![
        ("guard.loop_detected", vec![again(); 9], limited(Limits::default())),
        (
            "guard.stagnation",
            vec![says_again(); 9],
            limited(limits(|limits| limits.max_stagnation_steps = Some(1))),
        ),
        (
            "guard.max_iterations",
            vec![again(); 9],
            limited(limits(|limits| limits.max_iterations = 2)),
        ),
        (
            "guard.parallel_tool_limit",
            vec![again()],
            limited(limits(|limits| limits.max_parallel_tools = 0)),
        ),
        ("provider.auth_failed", vec![fails(ErrorKind::AuthFailed)], limited(Limits::default())),
        ("provider.transient", vec![fails(ErrorKind::Transient); 3], limited(Limits::default())),
        (
            "provider.context_overflow",
            vec![says("half").stop_reason(StopReason::ContextExceeded)],
            limited(Limits::default()),
        ),
        ("provider.invalid_response", vec![says(""), says("")], limited(Limits::default())),
        ("hook.aborted", vec![], gated(Stopping(Some("not today")))),
        ("hook.rejected", vec![], gated(Stopping(None))),
    ];
    for (code, answers, change) in cases {
        let bench = Bench::new();
        let failure = bench.run(change(bench.agent(answers).tool(add))).await.unwrap_err();
        assert_eq!(failure.code(), code);
        let events = bench.events(&failure.run_id).await;
        let Some(EventKind::RunFailed(failed)) = events.last().map(|event| &event.kind) else {
            panic!("{code}: it failed")
        };
        assert_eq!(failed.chain.join(": "), chain(failure.error.as_cause()).join(": "), "{code}");
        // The error from the record in another process has the same text.
        let Err(ResumeError::Run(again)) = read_outcome(&*bench.log, &failure.run_id).await else {
            panic!("{code}: it failed")
        };
        assert_eq!(chain(again.error.as_cause()).join(": "), failed.chain.join(": "), "{code}");
        assert_eq!(chain(&again.error).join(": "), chain(&failure.error).join(": "), "{code}");
        let tripped = events.iter().find_map(|event| match &event.kind {
            EventKind::GuardTripped(tripped) => Some(tripped.message.to_string()),
            _ => None,
        });
        assert!(
            tripped.is_none_or(|message| message == failure.error.as_cause().to_string()),
            "{code}"
        );
    }
    let bench = Bench::new();
    let failure = bench.agent(vec![]).build().unwrap().run(" ").await.unwrap_err();
    let events = bench.events(&failure.run_id).await;
    let Some(EventKind::RunFailed(failed)) = events.last().map(|event| &event.kind) else {
        panic!()
    };
    assert!(matches!(failure.error, AgentError::InputValidation(_)));
    assert_eq!(*failed.message, failure.error.to_string());
}

/// Spec: O1
#[tokio::test]
async fn input_that_misfits_starts_nothing() {
    let log = Arc::new(MemoryLog::new());
    let agent = |schema: Value| {
        let provider = ScriptedProvider::saying(["ok"]);
        Agent::builder(provider).input_schema(schema).shared_log(log.clone()).build().unwrap()
    };
    let invoice = json!({"type": "object", "required": ["invoice"]});
    for (schema, input, misfit) in [
        (invoice.clone(), r#"{"invoice": 7}"#, None),
        (invoice.clone(), r#"{"order": 7}"#, Some("invoice")),
        (invoice, "pay invoice 7", Some("input must be an object")),
        (json!({"type": "string"}), "pay invoice 7", None),
        (json!({"type": "string"}), "7", None),
        (json!({"type": "integer"}), "7", None),
        (json!({"type": "integer"}), "seven", Some("input must be an integer")),
    ] {
        let before = log.runs(RunFilter::new()).await.unwrap().len();
        let failed = agent(schema.clone()).run(input).await.err();
        let begun = log.runs(RunFilter::new()).await.unwrap().len() - before;
        assert_eq!(begun, usize::from(misfit.is_none()), "{schema} {input}");
        match (failed.map(|failure| failure.error), misfit) {
            (None, None) => {}
            (Some(AgentError::InputValidation(why)), Some(misfit)) => {
                assert!(why.contains(misfit), "{why}");
            }
            (failed, misfit) => panic!("{schema} {input}: {failed:?}, not {misfit:?}"),
        }
    }
}
