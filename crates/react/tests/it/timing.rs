//! Effects of time on a run, and changes of the time of day without an effect.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{EventLog, Log, Ports};
use backstop_provider::ScriptedAnswer;
use backstop_react::{
    Budget, Gate, GateVerdict, HookContext, HookPoint, Memory, MemoryEntry, MemoryQuery, Moment,
    RunRequest, replay,
};
use backstop_tool::{Tool, ToolContext, ToolError, ToolSpec};
use layer0::error::BoxError;
use layer0::event::EventKind;
use layer0::id::SessionId;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::*;

/// A tool that takes the given time, on the clock of its thread or of its task.
struct Slow {
    spec: ToolSpec,
    clock: VirtualClock,
    ms: u64,
}

fn slow(bench: &Bench, ms: u64, limit_ms: u64) -> Slow {
    let spec = ToolSpec::new("slow", "Is slow.", json!({"type": "object"}));
    let spec = spec.timeout(Duration::from_millis(limit_ms));
    Slow { spec, clock: bench.clock.clone(), ms }
}

#[async_trait]
impl Tool for Slow {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        _: &backstop_tool::Arguments,
        _: &ToolContext,
    ) -> Result<backstop_tool::JsonText, ToolError> {
        self.clock.sleep(Duration::from_millis(self.ms)).await;
        Ok(json!("made it").into())
    }
}

/// Keeps the driver busy with a note of its own while other tools run.
struct Busy(VirtualClock);

#[async_trait]
impl Gate for Busy {
    fn name(&self) -> &str {
        "busy"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::AfterTool]
    }
    async fn judge(&self, _: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        self.0.sleep(Duration::from_secs(2)).await;
        Ok(GateVerdict::Continue)
    }
}

/// Spec: T7
#[tokio::test]
async fn a_tool_is_timed_by_what_it_took() {
    for (ms, limit_ms, in_time) in [(50, 100, true), (101, 100, false), (1_500, 100, false)] {
        let bench = Bench::new();
        let gate = Busy(bench.clock.clone());
        let agent = bench
            .agent(vec![calls([call("c", "slow", json!({}))]), says("done")])
            .gate(gate)
            .tool(slow(&bench, ms, limit_ms));
        let outcome = bench.run(agent).await.unwrap();
        let (text, is_error) = tool_texts(&outcome).remove(0);
        assert_eq!(is_error, !in_time, "{ms} of {limit_ms}: {text}");
        assert_eq!(text.starts_with("Tool 'slow' timed out after 100ms"), !in_time, "{text}");
    }
}

/// A log whose appends take their time, during which the driver looks at nothing else.
struct SlowLog(Arc<backstop_event_log::MemoryLog>, VirtualClock);

impl EventLog for SlowLog {
    fn ports(&self) -> Ports<'_> {
        self.0.ports().log(self)
    }
}

#[async_trait]
impl Log for SlowLog {
    async fn append(
        &self,
        batch: backstop_event_log::Batch,
    ) -> Result<(), backstop_event_log::LogError> {
        self.1.sleep(Duration::from_millis(1_500)).await;
        self.0.append(batch).await
    }
    async fn claim(
        &self,
        run: &layer0::id::RunId,
    ) -> Result<backstop_event_log::Claim, backstop_event_log::LogError> {
        self.0.claim(run).await
    }
    async fn summary(
        &self,
        run: &layer0::id::RunId,
    ) -> Result<Option<backstop_event_log::RunSummary>, backstop_event_log::LogError> {
        self.0.summary(run).await
    }
    async fn records(
        &self,
        run: &layer0::id::RunId,
        from_seq: u64,
    ) -> Result<Vec<backstop_event_log::Record>, backstop_event_log::LogError> {
        self.0.records(run, from_seq).await
    }
    fn claim_new(&self, run: &layer0::id::RunId) -> backstop_event_log::Claim {
        self.0.claim_new(run)
    }
}

/// Spec: T7. What takes longer than its limit is stopped, though the driver waits for its log.
#[tokio::test]
async fn a_busy_driver_makes_no_limit_longer() {
    let bench = Bench::new();
    let first = {
        let mut spec = slow(&bench, 10, 5_000);
        spec.spec = ToolSpec::new("quick", "Is quick.", json!({"type": "object"}));
        spec
    };
    let both = [call("c1", "quick", json!({})), call("c2", "slow", json!({}))];
    let agent = bench
        .agent(vec![calls(both), says("done")])
        .shared_log(Arc::new(SlowLog(Arc::clone(&bench.log), bench.clock.clone())))
        .tool(first)
        // Its limit ends while the answer of the other one is appended.
        .tool(slow(&bench, 900, 100));
    let outcome = bench.run(agent).await.unwrap();
    let texts = tool_texts(&outcome);
    assert_eq!(texts[0].0, "made it");
    assert!(texts[1].0.starts_with("Tool 'slow' timed out after 100ms"), "{texts:?}");
}

/// Code that blocks its thread, until it is let go.
struct Blocking(ToolSpec, Arc<Barrier>, Arc<Barrier>);

#[async_trait]
impl Tool for Blocking {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(
        &self,
        _: &backstop_tool::Arguments,
        _: &ToolContext,
    ) -> Result<backstop_tool::JsonText, ToolError> {
        self.1.wait();
        self.2.wait();
        Ok(json!("late").into())
    }
}

/// Spec: T7. Its answer is discarded, and the record says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn blocking_code_is_timed_out_too() {
    let bench = Bench::new();
    let (begun, let_go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let spec = ToolSpec::new("blocking", "Blocks.", json!({"type": "object"}))
        .timeout(Duration::from_millis(100));
    let tool = Blocking(spec, Arc::clone(&begun), Arc::clone(&let_go));
    let agent = bench
        .agent(vec![calls([call("c", "blocking", json!({}))]), says("done")])
        .clock(Arc::new(backstop_clock::SystemClock))
        .tool(tool)
        .build()
        .unwrap();
    let run = tokio::spawn(async move { agent.run("go").await });
    let wait = tokio::task::spawn_blocking(move || begun.wait());
    wait.await.unwrap();
    let outcome = run.await.unwrap().unwrap();
    assert!(tool_texts(&outcome)[0].0.starts_with("Tool 'blocking' timed out after 100ms"));
    tokio::task::spawn_blocking(move || let_go.wait()).await.unwrap();
}

/// A clock that code which blocks its thread can move: no timer fires meanwhile.
#[derive(Debug, Clone)]
struct Blocked(VirtualClock, Arc<AtomicU64>);

impl Clock for Blocked {
    fn now(&self) -> layer0::Timestamp {
        self.0.now()
    }
    fn monotonic(&self) -> Duration {
        self.0.monotonic() + Duration::from_millis(self.1.load(Ordering::Relaxed))
    }
    fn sleep(&self, wait: Duration) -> backstop_clock::BoxFuture {
        self.0.sleep(wait)
    }
    fn track(&self, task: backstop_clock::BoxFuture) -> backstop_clock::BoxFuture {
        Box::pin(self.0.track(task))
    }
}

/// A tool that blocks its thread for the given time.
struct Blocks(ToolSpec, Blocked, u64);

#[async_trait]
impl Tool for Blocks {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(
        &self,
        _: &backstop_tool::Arguments,
        _: &ToolContext,
    ) -> Result<backstop_tool::JsonText, ToolError> {
        self.1.1.fetch_add(self.2, Ordering::Relaxed);
        Ok(json!("made it").into())
    }
}

/// Spec: T7. It is measured, because its own timer cannot fire.
#[tokio::test]
async fn tool_blocking_the_only_thread_times_out() {
    for (ms, in_time) in [(100, true), (101, false)] {
        let bench = Bench::new();
        let clock = Blocked(bench.clock.clone(), Arc::default());
        let spec = ToolSpec::new("blocks", "Blocks.", json!({"type": "object"}))
            .timeout(Duration::from_millis(100));
        let agent = bench
            .agent(vec![calls([call("c", "blocks", json!({}))]), says("done")])
            .clock(Arc::new(clock.clone()))
            .tool(Blocks(spec, clock, ms));
        let outcome = bench.run(agent).await.unwrap();
        let (text, is_error) = tool_texts(&outcome).remove(0);
        assert_eq!((is_error, text == "made it"), (!in_time, in_time), "{ms}: {text}");
    }
}

/// Spec: D1, B3. The budget measures what passed, wherever the time of day is set.
#[tokio::test]
async fn the_time_of_day_bounds_no_run() {
    for set_by_ms in [-7_200_000, 7_200_000] {
        for (max_wall_ms, ends) in [(10_000, true), (600_000, false)] {
            let bench = Bench::new();
            let skewed = bench.clock.clone();
            let budget = Budget::new().wall(Duration::from_millis(max_wall_ms));
            struct Setting(VirtualClock, i64);
            #[async_trait]
            impl Gate for Setting {
                fn name(&self) -> &str {
                    "time server"
                }
                fn points(&self) -> &[HookPoint] {
                    &[HookPoint::RunStart]
                }
                async fn judge(
                    &self,
                    _: Moment<'_>,
                    _: &HookContext,
                ) -> Result<GateVerdict, BoxError> {
                    self.0.set_time_of_day(self.1);
                    Ok(GateVerdict::Continue)
                }
            }
            let answer = says("done").delay_ms(60_000);
            let agent = bench.agent(vec![answer]).budget(budget).gate(Setting(skewed, set_by_ms));
            let outcome = bench.run(agent).await.unwrap();
            let exhausted = matches!(outcome.stop, Stop::BudgetExhausted { .. });
            assert_eq!(exhausted, ends, "set by {set_by_ms} ms, {max_wall_ms} ms allowed");
            let took = if ends { max_wall_ms } else { 60_000 };
            assert_eq!(outcome.usage.wall_ms, took);
            let events = bench.events(&outcome.run_id).await;
            let span = events[events.len() - 1].at.since(events[0].at);
            assert_eq!(span, Duration::from_millis(took), "stamps are the run's own clock");
            replay(&*bench.log, &outcome.run_id).await.unwrap();
        }
    }
}

/// Spec: D1, B3. The stamps of the run before it bound nothing.
#[tokio::test]
async fn a_run_behind_one_of_tomorrow_is_bounded() {
    let bench = Bench::new();
    let run = async |answer: ScriptedAnswer| {
        let budget = Budget::new().wall(Duration::from_millis(10_000));
        let agent = bench.agent(vec![answer]).budget(budget).build().unwrap();
        let (done, result) = tokio::sync::oneshot::channel();
        tokio::spawn(bench.clock.track(Box::pin(async move {
            let _ = done.send(agent.run(RunRequest::new("go").session("s")).await);
        })));
        result.await.unwrap().unwrap()
    };
    bench.clock.set_time_of_day(86_400_000);
    let first = run(says("of tomorrow")).await;
    bench.clock.set_time_of_day(-86_400_000);
    let second = run(says("late").delay_ms(60_000)).await;
    assert_eq!(second.stop.reason(), Some("budget.wall_time".into()));
    assert_eq!(second.usage.wall_ms, 10_000);
    assert_eq!(bench.events(&first.run_id).await.len(), 5, "it ended as it should");
}

/// A memory whose operations misbehave as configured.
struct Odd {
    clock: VirtualClock,
    panics: bool,
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send + 'a>>;

impl Memory for Odd {
    fn read<'a, 'b>(&'a self, _: MemoryQuery) -> Answer<'b, Vec<String>>
    where
        'a: 'b,
        Self: 'b,
    {
        assert!(!self.panics, "before there is a future");
        Box::pin(async { Ok(Vec::new()) })
    }

    fn write<'a, 'b>(&'a self, _: MemoryEntry) -> Answer<'b, ()>
    where
        'a: 'b,
        Self: 'b,
    {
        assert!(!self.panics, "before there is a future");
        let clock = self.clock.clone();
        Box::pin(async move {
            clock.sleep(Duration::from_secs(3_600)).await;
            Ok(())
        })
    }

    fn forget<'a, 'b, 'c>(&'a self, _: Option<&'b SessionId>) -> Answer<'c, u64>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        Box::pin(async { Ok(0) })
    }
}

/// Spec: M1, E11
#[tokio::test]
async fn a_memory_that_panics_at_once_is_degraded() {
    let bench = Bench::new();
    let memory = Odd { clock: bench.clock.clone(), panics: true };
    let outcome = bench.run(bench.agent(vec![says("done")]).memory(memory)).await.unwrap();
    assert_eq!((outcome.text(), &outcome.stop), ("done", &Stop::Completed));
    let events = bench.events(&outcome.run_id).await;
    let reasons: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::MemoryDegraded(degraded) => Some(degraded.reason.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, ["memory.panicked", "memory.panicked"]);
}

/// Spec: M1, B3. The answer is there; what is late is the memory.
#[tokio::test]
async fn a_hung_memory_write_leaves_a_run_completed() {
    let bench = Bench::new();
    let memory = Odd { clock: bench.clock.clone(), panics: false };
    let budget = Budget::new().wall(Duration::from_millis(2_000));
    let answer = says("done").delay_ms(1_000);
    let agent = bench.agent(vec![answer]).memory(memory).budget(budget);
    let outcome = bench.run(agent).await.unwrap();
    assert_eq!((outcome.text(), &outcome.stop), ("done", &Stop::Completed));
    assert_eq!(bench.elapsed(), Duration::from_secs(6), "its own limit");
    replay(&*bench.log, &outcome.run_id).await.unwrap();
}
