//! Each part of a tool's step, stopped in each way: a result that is there is recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_error_store::{
    Lookup, MemoryResultStore, NewResult, Pruned, ResultEntry, ResultFilter, ResultRecord,
    ResultStore, Retention, StoreError,
};
use backstop_event_log::{EventLog, InboxRequest, MemoryLog, verify_run};
use backstop_provider::ScriptedProvider;
use backstop_react::{
    Agent, Budget, Gate, GateVerdict, HookContext, HookPoint, Limits, Moment, Observer, RunRequest,
    replay,
};
use backstop_tool::{Probe, State, ToolContext, ToolError, tool};
use layer0::error::BoxError;
use layer0::event::EventKind;
use layer0::id::{ResultId, RunId, SessionId};
use layer0::stop::Stop;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::bench::*;

const RUN: &str = "run_stopped";
const WALL: Duration = Duration::from_secs(3);
const WAYS: [Way; 4] = [Way::Cancel, Way::Time, Way::Sibling, Way::Signal];
const PARTS: [Part; 5] = [Part::Call, Part::Child, Part::Hook, Part::Probe, Part::Store];

/// The way of stopping a run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// The caller cancels it.
    Cancel,
    /// A gate ends it at another call.
    Sibling,
    /// A signal named `cancel`.
    Signal,
    /// Its time is up.
    Time,
}

/// The part of a tool's step that is running when the run is stopped.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    /// The tool has just returned.
    Call,
    /// A child run has returned, and an observer is called.
    Child,
    /// An observer is called.
    Hook,
    /// The tool is probed about a failed call.
    Probe,
    /// A large result is stored.
    Store,
}

/// Stops the run in one way.
#[derive(Clone)]
struct Stopper {
    way: Way,
    token: CancellationToken,
    log: Arc<MemoryLog>,
    clock: VirtualClock,
    aborts: Arc<Notify>,
    probes: Arc<AtomicUsize>,
}

impl Stopper {
    fn new(way: Way, bench: &Bench) -> Self {
        let (log, clock) = (Arc::clone(&bench.log), bench.clock.clone());
        let (token, aborts, probes) = Default::default();
        Self { way, token, log, clock, aborts, probes }
    }

    async fn stop(&self) {
        match self.way {
            Way::Cancel => self.token.cancel(),
            Way::Signal => {
                let (run, name, data) = (RunId::from(RUN), "cancel".into(), Value::Null.into());
                let signal = InboxRequest::Signal { run, name, data, cause: None };
                assert!(self.log.send(signal, "ops", self.clock.now()).await.unwrap());
            }
            Way::Sibling => self.aborts.notify_one(),
            Way::Time => {}
        }
    }

    /// Stops the run, and continues for longer than it may take.
    async fn stop_and_hang(&self) {
        self.stop().await;
        self.clock.sleep(2 * WALL).await;
    }
}

/// An observer that hangs after `pay`.
struct Hangs(Stopper);

#[async_trait]
impl Observer for Hangs {
    fn name(&self) -> &str {
        "hangs"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::AfterTool]
    }
    async fn observe(&self, moment: Moment<'_>, _: &HookContext) -> Result<(), BoxError> {
        if matches!(moment, Moment::AfterTool { tool: "pay", .. }) {
            self.0.stop_and_hang().await;
        }
        Ok(())
    }
}

/// A gate that ends the run after `add`, on demand.
struct Aborts(Stopper);

#[async_trait]
impl Gate for Aborts {
    fn name(&self) -> &str {
        "aborts"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::AfterTool]
    }
    async fn judge(&self, moment: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        if matches!(moment, Moment::AfterTool { tool: "add", .. }) && self.0.way == Way::Sibling {
            self.0.aborts.notified().await;
            return Ok(GateVerdict::Abort("enough".into()));
        }
        Ok(GateVerdict::Continue)
    }
}

/// Takes its time to store a result, as a busy database does.
struct Busy(MemoryResultStore, Stopper);

#[async_trait]
impl ResultStore for Busy {
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError> {
        self.1.stop().await;
        // With a time limit, it is still running when the time is up.
        let wait = if self.1.way == Way::Time { 4 } else { 1 };
        let wait = Duration::from_secs(wait);
        self.1.clock.sleep(wait).await;
        self.0.put(result).await
    }
    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError> {
        self.0.keep(result).await
    }
    async fn keep_expired(&self, session: &SessionId, id: &ResultId) -> Result<(), StoreError> {
        self.0.keep_expired(session, id).await
    }
    async fn get(
        &self,
        session: &SessionId,
        id: &ResultId,
    ) -> Result<Lookup<ResultRecord>, StoreError> {
        self.0.get(session, id).await
    }
    async fn find(&self, id: &ResultId) -> Result<Lookup<ResultRecord>, StoreError> {
        self.0.find(id).await
    }
    async fn list(&self, filter: ResultFilter) -> Result<Vec<ResultEntry>, StoreError> {
        self.0.list(filter).await
    }
    async fn prune(
        &self,
        retention: Retention,
        now: layer0::Timestamp,
    ) -> Result<Pruned, StoreError> {
        self.0.prune(retention, now).await
    }
}

async fn hangs_too(part: String, stopper: State<Stopper>) -> Result<Probe, ToolError> {
    assert_eq!(part, "Probe");
    stopper.probes.fetch_add(1, Ordering::SeqCst);
    stopper.stop_and_hang().await;
    Ok(Probe::Unknown)
}

/// Pays at once, in the way that a part needs.
#[tool(probe = hangs_too)]
async fn pay(part: String, stopper: State<Stopper>) -> Result<String, ToolError> {
    match &*part {
        "Call" => stopper.stop().await,
        "Probe" => return Err(ToolError::ExecutionFailed("receipt 4711 is not printed".into())),
        "Store" => return Ok(format!("receipt 4711 {}", "line ".repeat(5_000))),
        _ => {}
    }
    Ok("receipt 4711".into())
}

/// Stops a run in one way while one part is running. Returns its end.
async fn stopped(part: Part, way: Way, bench: &Bench) -> Result<Stop, String> {
    let stopper = Stopper::new(way, bench);
    let name = format!("{part:?}");
    let first = match part {
        Part::Child => call("c1", "pay", json!({ "input": "pay ada" })),
        _ => call("c1", "pay", json!({ "part": name })),
    };
    let batch = calls([first, call("c2", "add", json!({ "x": 1, "y": 2 }))]);
    let agent = bench
        .agent(vec![batch, says("done")])
        .tool(add)
        .state(stopper.clone())
        .result_store(Busy(MemoryResultStore::new(), stopper.clone()))
        .budget(Budget::new().wall(WALL))
        .limits(Limits::new().hook_timeout(3 * WALL))
        .gate(Aborts(stopper.clone()));
    let agent = match part {
        Part::Child => {
            let below = Agent::builder(ScriptedProvider::saying(["receipt 4711"])).name("pay");
            let below = below.clock(Arc::new(bench.clock.clone()));
            let below = below.shared_log(Arc::clone(&bench.log) as Arc<dyn EventLog>);
            agent.tool(below.build().unwrap().as_tool("Pays."))
        }
        _ => agent.tool(pay),
    };
    let agent = match part {
        Part::Child | Part::Hook => agent.observer(Hangs(stopper.clone())),
        _ => agent,
    };
    let agent = agent.build().unwrap();
    let request = RunRequest::new("pay").run(RunId::from(RUN)).cancelled_by(stopper.token.clone());
    let ended = on(bench, async move { agent.run(request).await }).await;
    ended.map(|outcome| outcome.stop).map_err(|failure| failure.error.to_string())
}

async fn check(part: Part, way: Way) {
    let bench = Bench::new();
    let ended = stopped(part, way, &bench).await;
    let place = format!("{part:?} stopped by {way:?}: {ended:?}");
    let run = RunId::from(RUN);
    let events = bench.events(&run).await;
    let mut answers = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResponded(answer) if answer.call_id.as_str() == "c1" => Some(answer),
        _ => None,
    });
    let answer = answers.next().unwrap();
    assert!(answers.next().is_none(), "{place}: answered twice");
    assert!(answer.output.display_text().contains("receipt 4711"), "{place}: {answer:?}");
    assert_eq!(answer.ok, part != Part::Probe, "{place}");
    if part == Part::Store {
        assert!(types(&events).contains(&"result.stored"), "{place}");
    }
    match (way, part) {
        // A tool that returns at once is not stopped by the time limit.
        (Way::Time, Part::Call) => assert_eq!(ended, Ok(Stop::Completed), "{place}"),
        (Way::Time, _) => assert!(matches!(ended, Ok(Stop::BudgetExhausted { .. })), "{place}"),
        (Way::Sibling, _) => assert!(ended.unwrap_err().contains("enough"), "{place}"),
        (Way::Cancel | Way::Signal, _) => assert_eq!(ended, Ok(Stop::Cancelled), "{place}"),
    }
    // Storing ends, and nothing else holds a stop up.
    let longest = match (way, part) {
        (Way::Time, Part::Store) => Duration::from_secs(4),
        (Way::Time, _) => WALL,
        _ => Duration::from_secs(1),
    };
    assert!(bench.elapsed() <= longest, "{place}: {:?}", bench.elapsed());
    assert!(!bench.log.summary(&run).await.unwrap().unwrap().is_open(), "{place}");
    verify_run(&*bench.log, &run).await.unwrap();
    replay(&*bench.log, &run).await.unwrap();
}

/// Spec: D5, D12, B3. A call whose tool returned before the stop is answered with what it returned; hooks behind it
/// are dropped, and storing ends.
#[tokio::test]
async fn stopped_call_keeps_its_result() {
    for part in PARTS {
        for way in WAYS {
            check(part, way).await;
        }
    }
}

/// Counts how often it is asked, and hangs the first time.
#[derive(Clone, Default)]
struct Bank {
    paid: Arc<AtomicUsize>,
    probed: Arc<AtomicUsize>,
    begun: Arc<Notify>,
    verdict: Option<bool>,
}

async fn ask_bank(to: String, bank: State<Bank>) -> Result<Probe, ToolError> {
    bank.probed.fetch_add(1, Ordering::SeqCst);
    Ok(match bank.verdict {
        Some(true) => Probe::happened_with(json!(format!("paid {to}, receipt 4711"))),
        Some(false) => Probe::DidNot,
        None => Probe::Unknown,
    })
}

/// Pays, and waits for the bank the first time.
#[tool(name = "pay", probe = ask_bank)]
async fn pay_probed(to: String, bank: State<Bank>) -> Result<String, ToolError> {
    if bank.paid.fetch_add(1, Ordering::SeqCst) == 0 {
        bank.begun.notify_one();
        std::future::pending::<()>().await;
    }
    Ok(format!("paid {to}"))
}

/// Stops a running payment and reopens its run. Returns the messages to the model, and the types of the events since
/// the first end.
async fn reopened(bank: &Bank) -> (Vec<String>, Vec<&'static str>) {
    let log = Arc::new(MemoryLog::new());
    let stop = CancellationToken::new();
    let answers = vec![calls([call("c1", "pay", json!({ "to": "ada" }))]), says("done")];
    let agent = Agent::builder(ScriptedProvider::new(answers))
        .tool(pay_probed)
        .state(bank.clone())
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    let cancels = async {
        bank.begun.notified().await;
        stop.cancel();
    };
    let run = agent.run(RunRequest::new("pay ada once").cancelled_by(stop.clone()));
    let (outcome, ()) = tokio::join!(run, cancels);
    let outcome = outcome.unwrap();
    assert_eq!(outcome.stop, Stop::Cancelled);
    assert_eq!(tool_texts(&outcome), [("Cancelled: may already have acted".to_owned(), true)]);
    let again = agent.reopen(outcome.run_id.clone()).await.unwrap();
    assert_eq!(again.stop, Stop::Completed);
    let (_, events) = backstop_event_log::read_events(&*log, &outcome.run_id).await.unwrap();
    let ended = types(&events).iter().position(|kind| *kind == "run.finished").unwrap();
    replay(&*log, &outcome.run_id).await.unwrap();
    let told = again.transcript.messages().iter().filter_map(|message| match &**message {
        layer0::message::Message::User { content, .. } => Some(content.to_string()),
        _ => None,
    });
    (told.skip(1).collect(), types(&events)[ended + 1..].to_vec())
}

/// Spec: T14, D12
#[tokio::test]
async fn stopped_call_is_probed_at_reopen() {
    let cases = [
        (Some(true), "`pay` says that its call `c1` happened. It answered: paid ada, receipt 4711"),
        (Some(false), "`pay` says that its call `c1` did not happen; it may be called again."),
        (None, "continue"),
    ];
    for (verdict, expected) in cases {
        let bank = Bank { verdict, ..Bank::default() };
        let (told, events) = reopened(&bank).await;
        assert_eq!(bank.probed.load(Ordering::SeqCst), 1, "{verdict:?}");
        assert_eq!(bank.paid.load(Ordering::SeqCst), 1, "{verdict:?}");
        assert!(told[0].starts_with(expected), "{verdict:?}: {told:?}");
        assert_eq!(events[..2], ["tool.probed", "run.reopened"], "{verdict:?}");
    }
}

/// Waits for its turn.
#[tool]
async fn wait_long(context: &ToolContext) -> Result<String, ToolError> {
    if context.call_id.as_str() == "c1" {
        STOPS.with(CancellationToken::cancel);
    }
    std::future::pending().await
}

thread_local! {
    static STOPS: CancellationToken = CancellationToken::new();
}

/// Spec: T14. A call that waits for a free place has not begun.
#[tokio::test]
async fn queued_call_did_not_act() {
    let batch = ["c1", "c2"].map(|id| call(id, "wait_long", json!({})));
    let stop = STOPS.with(CancellationToken::clone);
    let agent = Agent::builder(ScriptedProvider::new(vec![calls(batch), says("done")]))
        .tool(wait_long)
        .limits(Limits::new().max_concurrent_tools(1))
        .build()
        .unwrap();
    let outcome = agent.run(RunRequest::new("go").cancelled_by(stop)).await.unwrap();
    let texts: Vec<String> = tool_texts(&outcome).into_iter().map(|(text, _)| text).collect();
    assert_eq!(texts, ["Cancelled: may already have acted", "Cancelled: the run was stopped"]);
}
