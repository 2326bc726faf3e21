//! Runs that are reopened, in the same record.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_event_log::{EventLog, Log, LogError, RunState};
use backstop_provider::{ErrorKind, ScriptedAnswer};
use backstop_react::{
    Agent, AgentBuilder, Budget, CancellationToken, Gate, GateVerdict, HookContext, HookPoint,
    Limits, Memory, MemoryEntry, MemoryQuery, Moment, NotReopenable, ReopenRequest, ResumeError,
    RunOutcome, RunRequest, replay, status,
};
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::error::BoxError;
use layer0::event::{Event, EventKind, RunReopened};
use layer0::failure::Failure;
use layer0::id::{RunId, SessionId};
use layer0::message::{Message, StopReason};
use layer0::stop::Stop;
use layer0::usage::BudgetIncrease;
use serde_json::json;

use crate::bench::*;

/// Number of times that each call acted.
#[derive(Default)]
struct Acted(AtomicUsize);

/// Pays, and counts it.
#[tool]
async fn pay(cents: u32, context: &ToolContext) -> Result<String, ToolError> {
    let acted = context.state::<Arc<Acted>>();
    acted.map(|acted| acted.0.fetch_add(1, Ordering::SeqCst));
    Ok(format!("paid {cents}"))
}

fn pays(id: &str) -> ScriptedAnswer {
    calls([call(id, "pay", json!({"cents": 5}))])
}

fn stops(text: &str, reason: StopReason) -> ScriptedAnswer {
    ScriptedAnswer::saying(text).stop_reason(reason)
}

impl Bench {
    async fn reopen(
        &self,
        agent: AgentBuilder,
        request: ReopenRequest,
    ) -> Result<RunOutcome, ResumeError> {
        let agent = agent.build().unwrap();
        let (done, result) = tokio::sync::oneshot::channel();
        tokio::spawn(self.clock.track(Box::pin(async move {
            let _ = done.send(agent.reopen(request).await);
        })));
        result.await.unwrap()
    }
}

/// Returns the run that ended, however it did.
async fn ended(bench: &Bench, agent: AgentBuilder) -> RunId {
    match bench.run(agent).await {
        Ok(outcome) => outcome.run_id,
        Err(failure) => failure.run_id,
    }
}

fn openings(events: &[Event]) -> Vec<&RunReopened> {
    let openings = events.iter().filter_map(|event| match &event.kind {
        EventKind::RunReopened(reopened) => Some(reopened),
        _ => None,
    });
    openings.collect()
}

/// Checks that each episode has one end, its last event.
fn check_episodes(events: &[Event], count: usize) {
    let is_end =
        |event: &Event| matches!(event.kind, EventKind::RunFinished(_) | EventKind::RunFailed(_));
    let ends: Vec<usize> = (0..events.len()).filter(|at| is_end(&events[*at])).collect();
    assert_eq!(ends.len(), count, "{:?}", types(events));
    assert_eq!(ends.last(), Some(&(events.len() - 1)));
    for end in &ends[..count - 1] {
        assert_eq!(events[end + 1].kind.event_type(), "run.reopened");
    }
}

/// Returns the messages of people to the model since the run was reopened last.
fn told(events: &[Event], outcome: &RunOutcome) -> Vec<String> {
    assert!(!openings(events).is_empty());
    let said = outcome.transcript.messages().iter().filter_map(|message| match &**message {
        Message::User { content, .. } => Some(content.to_string()),
        _ => None,
    });
    said.skip(1).collect()
}

/// A way to end, with the needs of the next episode, and its model's messages.
struct End {
    name: &'static str,
    reason: &'static str,
    answers: Vec<ScriptedAnswer>,
    build: fn(AgentBuilder) -> AgentBuilder,
    more: BudgetIncrease,
    told: &'static [&'static str],
}

fn same(agent: AgentBuilder) -> AgentBuilder {
    agent
}

fn ends() -> Vec<End> {
    let none = BudgetIncrease::new();
    let end =
        |name, reason, answers, told| End { name, reason, answers, build: same, more: none, told };
    let look = |id: &str| calls([call(id, "add", json!({"x": 1, "y": 2}))]);
    let say = |id: &str| look(id).text("hm");
    let budget =
        |name, reason, answers, build, more| End { name, reason, answers, build, more, told: &[] };
    vec![
        end("auth", "provider.auth_failed", vec![fails(ErrorKind::AuthFailed)], &[]),
        end("empty", "provider.invalid_response", vec![says(""), says("")], &[]),
        end(
            "context",
            "provider.context_overflow",
            vec![stops("half", StopReason::ContextExceeded)],
            &[],
        ),
        end(
            "max tokens",
            "model.max_tokens",
            vec![stops("half", StopReason::MaxTokens)],
            &["continue"],
        ),
        end("refusal", "model.refusal", vec![stops("", StopReason::Refusal)], &["continue"]),
        end(
            "filter",
            "model.content_filter",
            vec![stops("hm", StopReason::ContentFilter)],
            &["continue"],
        ),
        End {
            build: |agent| agent.limits(Limits::new().max_iterations(1)),
            ..end("iterations", "guard.max_iterations", vec![look("c1")], &["continue"])
        },
        End {
            build: |agent| agent.limits(Limits::new().max_repeated_batch_steps(1)),
            ..end("loop", "guard.loop_detected", vec![look("c1"), look("c2")], &["continue"])
        },
        End {
            build: |agent| agent.limits(Limits::new().max_stagnation_steps(1)),
            ..end("stagnation", "guard.stagnation", vec![say("c1"), say("c2")], &["continue"])
        },
        End {
            build: |agent| agent.limits(Limits::new().max_parallel_tools(1)),
            ..end(
                "parallel",
                "guard.parallel_tool_limit",
                vec![calls([
                    call("c1", "add", json!({"x": 1, "y": 2})),
                    call("c2", "add", json!({"x": 1, "y": 3})),
                ])],
                &["continue"],
            )
        },
        budget(
            "model calls",
            "budget.model_calls",
            vec![look("c1")],
            |agent| agent.budget(Budget::new().model_calls(1)),
            none.model_calls(1),
        ),
        budget(
            "tool calls",
            "budget.tool_calls",
            vec![calls([
                call("c1", "add", json!({"x": 1, "y": 2})),
                call("c2", "add", json!({"x": 1, "y": 3})),
            ])],
            |agent| agent.budget(Budget::new().tool_calls(1)),
            none.tool_calls(1),
        ),
        budget(
            "events",
            "budget.events",
            vec![look("c1")],
            |agent| agent.budget(Budget::new().events(5)),
            none.events(50),
        ),
        budget(
            "tokens",
            "budget.total_tokens",
            vec![look("c1").usage(tokens(60, 60))],
            |agent| agent.budget(Budget::new().total_tokens(100)),
            none.total_tokens(100),
        ),
        budget(
            "time",
            "budget.wall_time",
            vec![look("c1").delay_ms(5_000)],
            |agent| agent.budget(Budget::new().wall(Duration::from_secs(2))),
            none.wall(Duration::from_secs(1)),
        ),
    ]
}

fn tokens(input: u64, output: u64) -> layer0::usage::TokenUsage {
    layer0::usage::TokenUsage::new(input, output)
}

/// Spec: D12, H1. Whatever ended it, it goes on from there; a budget needs more, and nothing else does.
#[tokio::test]
async fn every_end_goes_on() {
    for End { name, reason, answers, build, more, told: expected } in ends() {
        let bench = Bench::new();
        let agent = |answers| build(bench.agent(answers).tool(add));
        let (first, request) = (agent(answers).build().unwrap(), RunRequest::new("input"));
        let (done, result) = tokio::sync::oneshot::channel();
        tokio::spawn(bench.clock.track(Box::pin(async move {
            let _ = done.send(first.run(request).await);
        })));
        let run = match result.await.unwrap() {
            Ok(outcome) => outcome.run_id,
            Err(failure) => failure.run_id,
        };
        let known = bench.log.summary(&run).await.unwrap().unwrap();
        assert_eq!(known.reason.as_ref().map(layer0::Code::as_str), Some(reason), "{name}");
        if !more.is_empty() {
            let refused = bench.reopen(agent(vec![]), ReopenRequest::new(run.clone())).await;
            let refused = refused.unwrap_err();
            assert_eq!(refused.code(), "run.not_reopenable", "{name}");
            let hint = refused.hint().unwrap().into_owned();
            let key = serde_json::to_value(more).unwrap();
            let key = key.as_object().unwrap().keys().next().unwrap().clone();
            assert_eq!(hint, format!("give it more: `--budget {key}=+N`"), "{name}");
            assert_eq!(bench.events(&run).await.len() as u64, known.last_seq, "{name}");
        }
        let request = ReopenRequest::new(run.clone()).by("ops").budget(more);
        let outcome = bench.reopen(agent(vec![says("done")]), request).await;
        let outcome = outcome.unwrap_or_else(|e| panic!("{name}: {}", layer0::failure::Chain(&e)));
        assert_eq!((&outcome.stop, outcome.text()), (&Stop::Completed, "done"), "{name}");
        let events = bench.events(&run).await;
        check_episodes(&events, 2);
        let opening = openings(&events)[0];
        assert_eq!((&*opening.by, opening.cause.is_none()), ("ops", true), "{name}");
        assert_eq!(opening.reason.as_ref().map(layer0::Code::as_str), Some(reason), "{name}");
        assert_eq!(opening.budget.as_deref().copied().unwrap_or_default(), more, "{name}");
        assert_eq!(opening.message.as_deref(), expected.first().copied(), "{name}");
        assert_eq!(told(&events, &outcome), expected, "{name}");
        assert!(replay(&*bench.log, &run).await.unwrap().is_some(), "{name}");
        let again = ReopenRequest::new(run.clone()).budget(more);
        let completed = bench.reopen(agent(vec![]), again).await.unwrap_err();
        let ResumeError::NotReopenable { why, .. } = &completed else { panic!("{completed}") };
        assert_eq!(*why, NotReopenable::Completed, "{name}");
    }
}

/// Spec: D12. What ended with `input.invalid` ends so in every episode.
#[tokio::test]
async fn invalid_input_is_final() {
    let bench = Bench::new();
    let agent = bench.agent(vec![says("hm")]).build().unwrap();
    let failure = agent.run(" ").await.unwrap_err();
    let refused = agent.reopen(ReopenRequest::new(failure.run_id).message("now?")).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), "run.not_reopenable");
    assert!(matches!(
        &refused,
        ResumeError::NotReopenable { why: NotReopenable::Final(code), .. } if *code == "input.invalid"
    ));
}

/// Spec: D12, T1. What was completed acts once, and what was cancelled stays answered.
#[tokio::test]
async fn completed_calls_never_run_again() {
    let bench = Bench::new();
    let acted = Arc::new(Acted::default());
    let agent = |answers| {
        let token = acted.clone();
        bench.agent(answers).tool(pay).tool(add).state(token)
    };
    let run = ended(&bench, agent(vec![pays("c1"), fails(ErrorKind::QuotaExhausted)])).await;
    let request = ReopenRequest::new(run.clone()).message("Paid the bill.");
    let script = vec![calls([call("c1", "add", json!({"x": 1, "y": 2}))]), says("done")];
    let outcome = bench.reopen(agent(script), request).await.unwrap();
    assert_eq!(acted.0.load(Ordering::SeqCst), 1);
    let events = bench.events(&run).await;
    let answers: Vec<&str> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ToolResponded(answer) => Some(answer.call_id.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(answers, ["c1", "c1~2"], "ids stay unique in the run");
    assert_eq!(told(&events, &outcome), ["Paid the bill."]);
    assert_eq!((outcome.usage.model_calls, outcome.usage.model_attempts), (4, 4));
    assert_eq!(outcome.usage.tool_calls, 2);
}

/// Spec: D12, G1, G2, G3, G5. The guard that ended the run counts anew, and every other goes on counting.
#[tokio::test]
async fn the_guard_that_tripped_counts_anew() {
    let bench = Bench::new();
    let limits = Limits::new().max_repeated_batch_steps(2).max_iterations(6);
    let one = |id: &str| calls([call(id, "add", json!({"x": 1, "y": 2}))]);
    let two = |id: &str| calls([call(id, "add", json!({"x": 3, "y": 4}))]);
    let agent = |answers| bench.agent(answers).tool(add).limits(limits);
    let script = vec![two("a"), two("b"), one("c"), one("d"), one("e")];
    let run = ended(&bench, agent(script)).await;
    let reason = |run: RunId| {
        let log = Arc::clone(&bench.log);
        async move { log.summary(&run).await.unwrap().unwrap().reason.unwrap().to_string() }
    };
    assert_eq!(reason(run.clone()).await, "guard.loop_detected");
    // It may be asked for twice again, and trips at the third time.
    let script = vec![one("f"), one("g"), one("h")];
    let request = ReopenRequest::new(run.clone()).message("Look again.");
    let failure = bench.reopen(agent(script), request).await.unwrap_err();
    assert_eq!(failure.code(), "guard.loop_detected");
    // The other batch was asked for twice in the first episode.
    let request = ReopenRequest::new(run.clone());
    let failure = bench.reopen(agent(vec![two("i"), says("no")]), request).await.unwrap_err();
    assert_eq!(failure.code(), "guard.loop_detected");
    let tripped: Vec<u64> = bench
        .events(&run)
        .await
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::GuardTripped(tripped) => Some(tripped.count),
            _ => None,
        })
        .collect();
    assert_eq!(tripped, [3, 3, 3]);
    check_episodes(&bench.events(&run).await, 3);
    assert!(replay(&*bench.log, &run).await.unwrap().is_some());
}

/// Spec: D12, B1. Time in which the run was over does not count, nor for its summary.
#[tokio::test]
async fn time_while_it_was_over_does_not_count() {
    let bench = Bench::new();
    let budget = Budget::new().wall(Duration::from_secs(10));
    let slow = |text: &str| says(text).delay_ms(4_000);
    let agent = |answers| bench.agent(answers).budget(budget);
    let failing = fails(ErrorKind::AuthFailed).delay_ms(4_000);
    let run = ended(&bench, agent(vec![failing])).await;
    bench.clock.track(Box::pin(bench.clock.sleep(Duration::from_secs(3_600)))).await;
    let request = ReopenRequest::new(run.clone());
    let outcome = bench.reopen(agent(vec![slow("done")]), request).await.unwrap();
    assert_eq!((&outcome.stop, outcome.usage.wall_ms), (&Stop::Completed, 8_000));
    let known = bench.log.summary(&run).await.unwrap().unwrap();
    assert_eq!((known.usage.wall_ms, known.state), (8_000, RunState::Finished));
}

/// Spec: D4, D12. What may be used is what it was started with, and what it was given since.
#[tokio::test]
async fn status_knows_the_larger_budget() {
    let bench = Bench::new();
    let agent = |answers| bench.agent(answers).tool(add).budget(Budget::new().model_calls(1));
    let again = |id: &str| calls([call(id, "add", json!({"x": 1, "y": 2}))]);
    let run = ended(&bench, agent(vec![again("a")])).await;
    for (more, limit) in [(1, 2), (2, 4)] {
        let request =
            ReopenRequest::new(run.clone()).budget(BudgetIncrease::new().model_calls(more));
        let script = (0..more).map(|number| again(&format!("c{number}"))).collect();
        let outcome = bench.reopen(agent(script), request).await.unwrap();
        assert_eq!(outcome.stop.reason().unwrap(), "budget.model_calls");
        assert_eq!(outcome.usage.model_attempts, limit, "no more than it was given");
        let known = status(&*bench.log, &run).await.unwrap().unwrap();
        assert_eq!(known.budget.max_model_calls, Some(limit));
    }
    let exhausted = |event: &&Event| matches!(event.kind, EventKind::BudgetExhausted(_));
    let events = bench.events(&run).await;
    assert_eq!(events.iter().filter(exhausted).count(), 3, "one for each episode");
    check_episodes(&events, 3);
}

/// Spec: D12. A cancelled run goes on; the call that was stopped stays answered.
#[tokio::test]
async fn a_cancelled_run_goes_on() {
    let bench = Bench::new();
    let token = CancellationToken::new();
    let agent = bench.agent(vec![says("late").delay_ms(60_000)]);
    let agent = agent.build().unwrap();
    let request = RunRequest::new("input").cancelled_by(token.clone());
    let timer = bench.clock.sleep(Duration::from_secs(1));
    tokio::spawn(bench.clock.track(Box::pin(async move {
        timer.await;
        token.cancel();
    })));
    let (done, result) = tokio::sync::oneshot::channel();
    tokio::spawn(bench.clock.track(Box::pin(async move {
        let _ = done.send(agent.run(request).await);
    })));
    let outcome = result.await.unwrap().unwrap();
    assert_eq!(outcome.stop, Stop::Cancelled);
    let request = ReopenRequest::new(outcome.run_id.clone());
    let outcome = bench.reopen(bench.agent(vec![says("done")]), request).await.unwrap();
    assert_eq!(told(&bench.events(&outcome.run_id).await, &outcome), ["continue"]);
}

/// Stops the run at a point, the first time.
struct Once([HookPoint; 1], Arc<AtomicUsize>);

#[async_trait]
impl Gate for Once {
    fn name(&self) -> &str {
        "once"
    }

    fn points(&self) -> &[HookPoint] {
        &self.0
    }

    async fn judge(&self, _: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        Ok(match self.1.fetch_add(1, Ordering::SeqCst) {
            0 => GateVerdict::Abort("not today".into()),
            _ => GateVerdict::Continue,
        })
    }
}

/// Spec: D12, H1. No gate is passed by reopening: where one stopped the run, it is asked again.
#[tokio::test]
async fn a_gate_that_stopped_judges_again() {
    let cases: [(HookPoint, usize, &[&str]); 4] = [
        (HookPoint::RunStart, 2, &[]),
        (HookPoint::BeforeModel, 2, &[]),
        (HookPoint::AfterModel, 2, &["continue"]),
        (HookPoint::RunEnd, 2, &["continue"]),
    ];
    for (point, times, expected) in cases {
        let bench = Bench::new();
        let asked = Arc::new(AtomicUsize::default());
        let agent = |answers| bench.agent(answers).gate(Once([point], Arc::clone(&asked)));
        let run = ended(&bench, agent(vec![says("first")])).await;
        let known = bench.log.summary(&run).await.unwrap().unwrap();
        assert_eq!(known.reason.unwrap(), "hook.aborted", "{point:?}");
        let request = ReopenRequest::new(run.clone());
        let outcome = bench.reopen(agent(vec![says("done")]), request).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), times, "{point:?}");
        let events = bench.events(&run).await;
        assert_eq!(told(&events, &outcome), expected, "{point:?}");
        check_episodes(&events, 2);
        assert!(replay(&*bench.log, &run).await.unwrap().is_some(), "{point:?}");
    }
}

/// Counts its writes by run, and reads one entry.
#[derive(Default)]
struct Notes(std::sync::Mutex<Vec<(RunId, String)>>, AtomicUsize);

#[async_trait]
impl Memory for Notes {
    async fn read(&self, _: MemoryQuery) -> Result<Vec<String>, BoxError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(vec!["Alice prefers euros".into()])
    }

    async fn write(&self, entry: MemoryEntry) -> Result<(), BoxError> {
        self.0.lock().unwrap().push((entry.run, entry.output.to_string()));
        Ok(())
    }

    async fn forget(&self, _: Option<&SessionId>) -> Result<u64, BoxError> {
        Ok(0)
    }
}

/// Spec: D12, M1. The memory is read once, and written for the run at each end that has an answer.
#[tokio::test]
async fn memory_is_read_once_and_written_per_run() {
    let bench = Bench::new();
    let notes = Arc::new(Notes::default());
    struct Shared(Arc<Notes>);
    #[async_trait]
    impl Memory for Shared {
        async fn read(&self, query: MemoryQuery) -> Result<Vec<String>, BoxError> {
            self.0.read(query).await
        }
        async fn write(&self, entry: MemoryEntry) -> Result<(), BoxError> {
            self.0.write(entry).await
        }
        async fn forget(&self, session: Option<&SessionId>) -> Result<u64, BoxError> {
            self.0.forget(session).await
        }
    }
    let agent = |answers| bench.agent(answers).memory(Shared(Arc::clone(&notes)));
    let run = ended(&bench, agent(vec![stops("half", StopReason::MaxTokens)])).await;
    let request = ReopenRequest::new(run.clone());
    bench.reopen(agent(vec![says("whole")]), request).await.unwrap();
    assert_eq!(notes.1.load(Ordering::SeqCst), 1);
    let written = notes.0.lock().unwrap().clone();
    assert_eq!(written, [(run.clone(), "half".to_owned()), (run, "whole".to_owned())]);
}

/// Spec: D12. A session that went on does not go back.
#[tokio::test]
async fn a_run_that_is_followed_is_not_reopened() {
    let bench = Bench::new();
    let agent = bench.agent(vec![fails(ErrorKind::AuthFailed), says("two")]).build().unwrap();
    let first = agent.run(RunRequest::new("one").session("s-1")).await.unwrap_err();
    let second = agent.run(RunRequest::new("two").session("s-1")).await.unwrap();
    let refused = agent.reopen(first.run_id.clone()).await.unwrap_err();
    assert_eq!(refused.code(), "run.followed");
    let ResumeError::Log(LogError::Followed { run, by, .. }) = &refused else {
        panic!("{refused}")
    };
    assert_eq!((run, by), (&first.run_id, &second.run_id));
    let known = bench.log.summary(&first.run_id).await.unwrap().unwrap();
    assert_eq!(known.state, RunState::Failed, "nothing was written");
}

/// Spec: D12. What is said in an episode is part of the session.
#[tokio::test]
async fn a_session_goes_on_after_the_last_episode() {
    let bench = Bench::new();
    let script = vec![fails(ErrorKind::AuthFailed), says("done"), says("next")];
    let agent = bench.agent(script).build().unwrap();
    let first = agent.run(RunRequest::new("one").session("s-1")).await.unwrap_err();
    let request = ReopenRequest::new(first.run_id.clone()).message("try again");
    agent.reopen(request).await.unwrap();
    let next = agent.run(RunRequest::new("two").session("s-1")).await.unwrap();
    let said = next.transcript.messages().iter().map(|message| match &**message {
        Message::User { content, .. } | Message::Assistant { content, .. } => content.to_string(),
        other => panic!("{other:?}"),
    });
    let said: Vec<String> = said.collect();
    assert_eq!(said, ["one", "try again", "done", "two", "next"]);
}

/// Spec: D12, D8. Of two at once one wins; the other hears what the run is doing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_two_reopeners_wins() {
    for _ in 0..20 {
        let bench = Bench::new();
        let log = Arc::clone(&bench.log) as Arc<dyn EventLog>;
        let agent = |answers: Vec<ScriptedAnswer>| {
            let provider = backstop_provider::ScriptedProvider::new(answers);
            Agent::builder(provider).shared_log(Arc::clone(&log)).build().unwrap()
        };
        let failed = agent(vec![fails(ErrorKind::AuthFailed)]).run("one").await.unwrap_err();
        let open = |_| {
            let (agent, run) = (agent(vec![says("done")]), failed.run_id.clone());
            tokio::spawn(async move { agent.reopen(run).await })
        };
        let (mut won, mut refused) = (0, 0);
        for opened in futures_util::future::join_all((0..2).map(open)).await {
            match opened.unwrap() {
                Ok(outcome) => {
                    assert_eq!(outcome.text(), "done");
                    won += 1;
                }
                Err(error @ ResumeError::Open { .. }) => {
                    assert_eq!(error.code(), "run.open");
                    refused += 1;
                }
                // The other one was done before it asked.
                Err(ResumeError::NotReopenable { why: NotReopenable::Completed, .. }) => {
                    refused += 1;
                }
                Err(other) => panic!("{}", layer0::failure::Chain(&other)),
            }
        }
        assert_eq!((won, refused), (1, 1));
        assert_eq!(openings(&bench.events(&failed.run_id).await).len(), 1);
    }
}

/// Spec: D12. A blank name or word says nothing.
#[tokio::test]
async fn blank_words_are_refused() {
    let agent = Bench::new().agent(vec![]).build().unwrap();
    let blank = |request: ReopenRequest| async { agent.reopen(request).await.unwrap_err() };
    assert!(matches!(blank(ReopenRequest::new("r").by(" ")).await, ResumeError::Blank("by")));
    let silent = ReopenRequest::new("r").message("");
    assert!(matches!(blank(silent).await, ResumeError::Blank("message")));
    let unknown = blank(ReopenRequest::new("r")).await;
    assert!(matches!(unknown, ResumeError::Log(LogError::NotFound(_))));
}
