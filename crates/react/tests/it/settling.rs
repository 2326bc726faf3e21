//! Calls whose outcome is unknown: tools are asked, people say it.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{EventLog, Inbox, InboxRequest, Log, RunWriter, read_events};
use backstop_orchestrator::LocalOrchestrator;
use backstop_provider::{ErrorKind, ScriptedAnswer, ScriptedProvider};
use backstop_react::{
    Agent, AgentBuilder, ForkRequest, ReopenRequest, ResumeError, RunOutcome, RunRequest,
    Settlement, replay, resolve,
};
use backstop_tool::{Probe, State, ToolContext, ToolError, tool};
use layer0::Operator;
use layer0::error::OperatorError;
use layer0::event::{Event, EventKind, Verdict};
use layer0::failure::Failure;
use layer0::id::RunId;
use layer0::message::Message;
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;
use serde_json::{Value, json};

use crate::bench::*;

/// A bank, as the tools see it.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<Books>>);

#[derive(Default)]
struct Books {
    /// The keys of the payments that were asked for.
    asked: Vec<String>,
    /// Number of probes.
    probes: usize,
    /// The answer to a probe.
    says: &'static str,
    /// The end of a payment.
    ends: &'static str,
}

impl Bank {
    fn new(ends: &'static str, says: &'static str) -> Self {
        Self(Arc::new(Mutex::new(Books { ends, says, ..Books::default() })))
    }

    fn payments(&self) -> usize {
        self.0.lock().unwrap().asked.len()
    }

    fn probes(&self) -> usize {
        self.0.lock().unwrap().probes
    }
}

async fn paid(cents: u32, bank: State<Bank>, context: &ToolContext) -> Result<Probe, ToolError> {
    let says = {
        let mut books = bank.0.lock().unwrap();
        books.probes += 1;
        assert!(books.asked.iter().all(|key| *key == context.idempotency_key));
        books.says
    };
    match says {
        "happened" => Ok(Probe::happened_with(json!({ "paid": cents }))),
        "happened somehow" => Ok(Probe::Happened(None)),
        "did not" => Ok(Probe::DidNot),
        "panics" => panic!("the bank is closed"),
        "hangs" => std::future::pending().await,
        "fails" => Err(ToolError::ExecutionFailed("no connection".into())),
        _ => Ok(Probe::Unknown),
    }
}

async fn ask_bank(bank: &Bank, context: &ToolContext) -> Result<String, ToolError> {
    let (ends, count) = {
        let mut books = bank.0.lock().unwrap();
        books.asked.push(context.idempotency_key.clone());
        (books.ends, books.asked.len())
    };
    match ends {
        "hangs" => std::future::pending().await,
        "fails once" if count > 1 => Ok("paid at last".into()),
        "fails" | "fails once" => Err(ToolError::ExecutionFailed("connection lost".into())),
        _ => Ok("paid".into()),
    }
}

/// Pays.
#[tool(probe = paid)]
async fn pay(cents: u32, bank: State<Bank>, context: &ToolContext) -> Result<String, ToolError> {
    let _ = cents;
    ask_bank(&bank, context).await
}

/// Pays, and knows for sure.
#[tool(name = "pay", probe = paid, probe_is_final)]
async fn pay_surely(
    cents: u32,
    bank: State<Bank>,
    context: &ToolContext,
) -> Result<String, ToolError> {
    let _ = cents;
    ask_bank(&bank, context).await
}

/// Pays, and cannot say what became of it.
#[tool(name = "pay")]
async fn pay_blindly(
    cents: u32,
    bank: State<Bank>,
    context: &ToolContext,
) -> Result<String, ToolError> {
    let _ = cents;
    ask_bank(&bank, context).await
}

fn pays() -> ScriptedAnswer {
    calls([call("c1", "pay", json!({ "cents": 5 }))])
}

fn agent(bench: &Bench, bank: &Bank, answers: Vec<ScriptedAnswer>) -> AgentBuilder {
    bench.agent(answers).name("payer").state(bank.clone())
}

/// Copies a run into a log of its own, as a process leaves it that dies while the call runs.
async fn dies_in_the_call(bench: &Bench, run: &RunId) -> Bench {
    let mut events = bench.events(run).await;
    let is_call = |event: &Event| matches!(event.kind, EventKind::ToolRequested(_));
    events.truncate(events.iter().position(is_call).unwrap() + 1);
    let mut records = bench.log.records(run, 1).await.unwrap();
    records.truncate(events.len());
    let left = Bench::new();
    let log: Arc<dyn EventLog> = Arc::clone(&left.log) as _;
    RunWriter::copy(log, run.clone(), &events, records).commit().await.unwrap();
    left
}

async fn resumed(bench: &Bench, agent: AgentBuilder, run: &RunId) -> RunOutcome {
    let (agent, run) = (agent.build().unwrap(), run.clone());
    on(bench, async move { agent.resume(run).await.unwrap() }).await
}

/// Returns a bench whose run died during a payment, with the run's id and the agent to resume it.
async fn died(
    bank: &Bank,
    with: impl Fn(AgentBuilder) -> AgentBuilder,
) -> (Bench, RunId, AgentBuilder) {
    let before = Bench::new();
    let first = with(agent(&before, bank, vec![pays(), says("done")]));
    let run = before.run(first).await.unwrap().run_id;
    let bench = dies_in_the_call(&before, &run).await;
    let next = with(agent(&bench, bank, vec![says("done")]));
    (bench, run, next)
}

fn answer(events: &[Event]) -> (bool, Value, Option<String>) {
    let answers = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResponded(answer) => Some(answer),
        _ => None,
    });
    let answers: Vec<_> = answers.collect();
    let [answer] = answers[..] else { panic!("{} answers", answers.len()) };
    let reason = answer.error.as_ref().map(|error| error.reason.to_string());
    (answer.ok, answer.output.value(), reason)
}

fn verdicts(events: &[Event]) -> Vec<Verdict> {
    let said = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolProbed(probed) => Some(probed.verdict),
        _ => None,
    });
    said.collect()
}

/// Spec: T14, D5. Before an open call is answered as interrupted, its tool is asked.
#[tokio::test]
async fn an_interrupted_call_is_asked_about() {
    let interrupted = json!({ "error": "Interrupted: may already have acted" });
    for (says, verdict, ok, output) in [
        ("happened", Verdict::Happened, true, json!({ "paid": 5 })),
        (
            "happened somehow",
            Verdict::Happened,
            true,
            json!("It happened; what it answered is not known."),
        ),
        (
            "did not",
            Verdict::DidNot,
            false,
            json!({ "error": "Interrupted: did not happen; may be called again" }),
        ),
        ("cannot say", Verdict::Unknown, false, interrupted.clone()),
        ("panics", Verdict::Unknown, false, interrupted.clone()),
        ("hangs", Verdict::Unknown, false, interrupted.clone()),
        ("fails", Verdict::Unknown, false, interrupted.clone()),
    ] {
        let bank = Bank::new("pays", says);
        let (bench, run, next) = died(&bank, |agent| agent.tool(pay)).await;
        let outcome = resumed(&bench, next, &run).await;
        assert_eq!(outcome.stop, Stop::Completed, "{says}");
        let events = bench.events(&run).await;
        let recovered = events.iter().find_map(|event| match &event.kind {
            EventKind::RunRecovered(recovered) => Some(recovered),
            _ => None,
        });
        let recovered = recovered.unwrap();
        assert_eq!((recovered.probing.len(), recovered.interrupted.len()), (1, 0), "{says}");
        assert_eq!(verdicts(&events), [verdict], "{says}");
        let reason = (!ok).then(|| "tool.interrupted".to_owned());
        assert_eq!(answer(&events), (ok, output, reason), "{says}");
        assert_eq!((bank.payments(), bank.probes()), (1, 1), "{says}: it is not paid twice");
        assert_eq!(outcome.usage.tool_calls, 1, "{says}: to ask is no execution");
        assert!(replay(&*bench.log, &run).await.unwrap().is_some(), "{says}");
        if verdict == Verdict::DidNot {
            let log: Arc<dyn EventLog> = Arc::clone(&bench.log) as _;
            let settled = resolve(log, &run, &"c1".into(), Settlement::call_happened("ops")).await;
            assert!(matches!(settled, Err(ResumeError::CallNotOpen { .. })), "{settled:?}");
        }
    }
}

/// Spec: T14. A call that certainly did not happen is made again by the runtime, and counted.
#[tokio::test]
async fn a_final_no_lets_the_call_run_again() {
    let bank = Bank::new("pays", "did not");
    let (bench, run, next) = died(&bank, |agent| agent.tool(pay_surely)).await;
    let outcome = resumed(&bench, next, &run).await;
    let events = bench.events(&run).await;
    assert_eq!(answer(&events), (true, json!("paid"), None));
    assert_eq!((bank.payments(), bank.probes()), (2, 1));
    assert_eq!(outcome.usage.tool_calls, 2, "it ran twice");
    let summary = bench.log.summary(&run).await.unwrap().unwrap();
    assert_eq!(summary.usage, outcome.usage);
    assert!(replay(&*bench.log, &run).await.unwrap().is_some());
}

/// Spec: T14. Also when the process lives, and the call failed.
#[tokio::test]
async fn failed_calls_that_may_have_acted_are_probed() {
    let text = "Tool 'pay' failed: connection lost";
    for (says, ok, output) in [
        ("happened", true, json!({ "paid": 5 })),
        (
            "did not",
            false,
            json!({ "error": format!("{text}\n[Error ID: E]\nIt did not happen; may be called again.") }),
        ),
        ("cannot say", false, json!({ "error": format!("{text}\n[Error ID: E]") })),
    ] {
        let (bench, bank) = (Bench::new(), Bank::new("fails", says));
        let outcome = bench.run(agent(&bench, &bank, vec![pays(), says_done()]).tool(pay)).await;
        let run = outcome.unwrap().run_id;
        let events = bench.events(&run).await;
        let (is_ok, said, _) = answer(&events);
        let id = events.iter().find_map(|event| match &event.kind {
            EventKind::ErrorStored(stored) => Some(stored.error_id.to_string()),
            _ => None,
        });
        let said = said.to_string().replace(&id.unwrap_or_else(|| "no id".into()), "E");
        assert_eq!((is_ok, said), (ok, output.to_string()), "{says}");
        assert_eq!((bank.payments(), bank.probes()), (1, 1), "{says}");
        assert!(replay(&*bench.log, &run).await.unwrap().is_some(), "{says}");
    }
    let (bench, bank) = (Bench::new(), Bank::new("fails once", "did not"));
    let payer = agent(&bench, &bank, vec![pays(), says_done()]).tool(pay_surely);
    let outcome = bench.run(payer).await.unwrap();
    assert_eq!(tool_texts(&outcome), [("paid at last".to_owned(), false)]);
    assert_eq!((bank.payments(), outcome.usage.tool_calls), (2, 2));
    let keys = bank.0.lock().unwrap().asked.clone();
    assert_eq!(keys[0], keys[1], "the bank can tell that it is the same payment");
}

fn says_done() -> ScriptedAnswer {
    says("done")
}

/// Spec: D7. The call of a copied run has that run's key, so no tool can be asked about it.
#[tokio::test]
async fn a_copy_asks_about_no_call() {
    let bank = Bank::new("pays", "did not");
    let (bench, run, next) = died(&bank, |agent| agent.tool(pay)).await;
    let at = u64::try_from(bench.events(&run).await.len()).unwrap();
    let next = next.build().unwrap();
    let copy = on(&bench, async move { next.fork(ForkRequest::new(run, at)).await.unwrap() });
    let copy = copy.await;
    let (ok, _, reason) = answer(&bench.events(&copy.run_id).await);
    assert_eq!((ok, reason.as_deref()), (false, Some("tool.interrupted")));
    assert_eq!(bank.probes(), 0);
}

/// Spec: T14, A1. A person settles a call of a run that no process runs; its next owner answers it so.
#[tokio::test]
async fn a_person_settles_an_open_call() {
    for (settlement, ok, output) in [
        (
            Settlement::call_happened("ops").with_output(json!({ "id": 7 })),
            true,
            json!({ "id": 7 }),
        ),
        (
            Settlement::call_happened("ops"),
            true,
            json!("It happened; what it answered is not known."),
        ),
        (
            Settlement::did_not("ops"),
            false,
            json!({ "error": "Interrupted: did not happen; may be called again" }),
        ),
    ] {
        let bank = Bank::new("pays", "cannot say");
        let (bench, run, next) = died(&bank, |agent| agent.tool(pay)).await;
        let log: Arc<dyn EventLog> = Arc::clone(&bench.log) as _;
        resolve(Arc::clone(&log), &run, &"c1".into(), settlement.clone()).await.unwrap();
        assert_eq!(types(&bench.events(&run).await).last(), Some(&"tool.resolved"));
        let again = resolve(log, &run, &"c1".into(), settlement).await.unwrap_err();
        assert_eq!(again.code(), "run.call_not_open", "it is settled once");
        assert!(matches!(again, ResumeError::CallSettled { .. }), "{again:?}");
        let outcome = resumed(&bench, next, &run).await;
        assert_eq!(outcome.stop, Stop::Completed);
        let events = bench.events(&run).await;
        let reason = (!ok).then(|| "tool.interrupted".to_owned());
        assert_eq!(answer(&events), (ok, output, reason));
        assert_eq!((bank.payments(), bank.probes()), (1, 0), "what is known is not asked");
        assert!(replay(&*bench.log, &run).await.unwrap().is_some());
    }
}

/// Spec: T14, H1. An answer that was given stays; the model is told when the run is reopened.
#[tokio::test]
async fn a_late_settlement_is_told_when_reopened() {
    let bank = Bank::new("pays", "cannot say");
    let (bench, run, _) = died(&bank, |agent| agent.tool(pay_blindly)).await;
    let failing = agent(&bench, &bank, vec![fails(ErrorKind::AuthFailed)]).tool(pay_blindly);
    let failing = failing.build().unwrap();
    let of = run.clone();
    on(&bench, async move { failing.resume(of).await.unwrap_err() }).await;
    let before = bench.events(&run).await;
    let summary = bench.log.summary(&run).await.unwrap().unwrap();

    let log: Arc<dyn EventLog> = Arc::clone(&bench.log) as _;
    let settlement = Settlement::call_happened("ops").with_output(json!("receipt 9"));
    resolve(log, &run, &"c1".into(), settlement).await.unwrap();
    let events = bench.events(&run).await;
    assert_eq!(events.len(), before.len() + 1, "nothing else is recorded");
    let after = bench.log.summary(&run).await.unwrap().unwrap();
    assert_eq!((after.state, after.usage), (summary.state, summary.usage), "it stays as it ended");
    backstop_event_log::verify_run(&*bench.log, &run).await.unwrap();
    assert!(replay(&*bench.log, &run).await.unwrap().is_some());

    let provider = ScriptedProvider::new([says_done()]);
    let requests = provider.requests();
    let clock = Arc::new(bench.clock.clone());
    let next = Agent::builder(provider).name("payer").state(bank.clone()).tool(pay_blindly);
    let next = next.clock(clock).shared_log(Arc::clone(&bench.log) as Arc<dyn EventLog>);
    let (next, of) = (next.build().unwrap(), run.clone());
    let reopened = on(&bench, async move { next.reopen(ReopenRequest::new(of)).await });
    assert_eq!(reopened.await.unwrap().stop, Stop::Completed);
    let asked = requests.all();
    let told = asked[0].messages.messages().iter().any(|message| {
        matches!(&**message, Message::User { content, .. }
            if content.contains("ops says that call `c1` of `pay` happened. It answered: receipt 9"))
    });
    assert!(told, "{:?}", asked[0].messages);
    assert_eq!(bank.payments(), 1);
    let (ok, _, reason) = answer(&bench.events(&run).await);
    assert_eq!((ok, reason.as_deref()), (false, Some("tool.interrupted")), "the answer stays");
    assert!(replay(&*bench.log, &run).await.unwrap().is_some());
}

/// Spec: T14, A1. The owner of a run takes a settlement of a call that is at work.
#[tokio::test]
async fn a_settlement_ends_a_call_that_hangs() {
    let (bench, bank) = (Bench::new(), Bank::new("hangs", "cannot say"));
    let payer = agent(&bench, &bank, vec![pays(), says_done()]).tool(pay_blindly);
    let payer = payer.build().unwrap();
    let log: Arc<dyn EventLog> = Arc::clone(&bench.log) as _;
    let clock = bench.clock.clone();
    let request = RunRequest::new("pay").run("run_1".into());
    let running = payer.clone();
    let outcome = on(&bench, async move {
        let person = async {
            clock.sleep(Duration::from_secs(5)).await;
            let settlement = Settlement::call_happened("ops").with_output(json!("paid by hand"));
            resolve(log, &"run_1".into(), &"c1".into(), settlement).await.unwrap();
        };
        tokio::join!(running.run(request), person).0.unwrap()
    })
    .await;
    assert_eq!(outcome.stop, Stop::Completed);
    assert_eq!(bench.elapsed(), Duration::from_secs(5), "its timeout is not waited for");
    let events = bench.events(&outcome.run_id).await;
    assert_eq!(answer(&events), (true, json!("paid by hand"), None));
    assert!(bench.log.inbox(&outcome.run_id).await.unwrap().is_empty());
    assert!(replay(&*bench.log, &outcome.run_id).await.unwrap().is_some());
}

/// Spec: T14. A running call may still act, so it cannot be settled as not done.
#[tokio::test]
async fn running_call_is_not_said_undone() {
    let (bench, bank) = (Bench::new(), Bank::new("hangs", "cannot say"));
    let payer = agent(&bench, &bank, vec![pays(), says_done()]).tool(pay_blindly);
    let payer = payer.build().unwrap();
    let log: Arc<dyn EventLog> = Arc::clone(&bench.log) as _;
    let clock = bench.clock.clone();
    let running = payer.clone();
    let outcome = on(&bench, async move {
        let person = async {
            clock.sleep(Duration::from_secs(5)).await;
            let (run, call) = ("run_1".into(), "c1".into());
            let refused = resolve(Arc::clone(&log), &run, &call, Settlement::did_not("ops")).await;
            let refused = refused.unwrap_err();
            assert!(matches!(refused, ResumeError::CallRunning { .. }), "{refused:?}");
            assert_eq!(refused.code(), "run.open");
            // An earlier version sends it.
            let settlement = Settlement::did_not("ops");
            let request = InboxRequest::Settle { run, call, settlement };
            assert!(log.send(request, "ops", clock.now()).await.unwrap());
        };
        tokio::join!(running.run(RunRequest::new("pay").run("run_1".into())), person).0.unwrap()
    })
    .await;
    assert!(bench.elapsed() > Duration::from_secs(5), "it is not stopped");
    let events = bench.events(&outcome.run_id).await;
    assert!(!types(&events).contains(&"tool.resolved"), "{:?}", types(&events));
    let warned = events.iter().any(|event| match &event.kind {
        EventKind::Warning(warning) => warning.message.contains("ops settled call `c1` while"),
        _ => false,
    });
    assert!(warned, "{:?}", types(&events));
    let (ok, _, reason) = answer(&events);
    assert_eq!((ok, reason.as_deref()), (false, Some("tool.timeout")));
    assert!(bench.log.inbox(&outcome.run_id).await.unwrap().is_empty());
    assert!(replay(&*bench.log, &outcome.run_id).await.unwrap().is_some());
}

/// Spec: T14, D5. A settlement that the dead process had not taken is the answer of the call.
#[tokio::test]
async fn settlement_before_a_crash_is_the_answer() {
    for ends in ["resume", "cancel"] {
        let bank = Bank::new("pays", "cannot say");
        let (bench, run, next) = died(&bank, |agent| agent.tool(pay_blindly)).await;
        let settlement = Settlement::call_happened("ops").with_output(json!("paid by hand"));
        let request = InboxRequest::Settle { run: run.clone(), call: "c1".into(), settlement };
        assert!(bench.log.send(request, "ops", bench.clock.now()).await.unwrap());
        let log: Arc<dyn EventLog> = Arc::clone(&bench.log) as _;
        let again = resolve(log, &run, &"c1".into(), Settlement::did_not("ops")).await;
        let again = again.unwrap_err();
        assert!(matches!(again, ResumeError::CallSettled { .. }), "{again:?}");
        match ends {
            "resume" => drop(resumed(&bench, next, &run).await),
            _ => assert!(next.build().unwrap().cancel(&run, "ops").await.unwrap()),
        }
        let events = bench.events(&run).await;
        assert_eq!(answer(&events), (true, json!("paid by hand"), None), "{ends}");
        assert!(bench.log.inbox(&run).await.unwrap().is_empty(), "{ends}");
        assert!(replay(&*bench.log, &run).await.unwrap().is_some(), "{ends}");
    }
}

/// Spec: T14. Only what is unknown is settled.
#[tokio::test]
async fn what_is_known_is_not_settled() {
    let (bench, bank) = (Bench::new(), Bank::new("pays", "cannot say"));
    let answers = vec![
        calls([
            call("c1", "pay", json!({ "cents": 5 })),
            call("c2", "pay", json!({})),
            call("c3", "add", json!({ "x": 1, "y": 2 })),
        ]),
        says_done(),
    ];
    let run = bench.run(agent(&bench, &bank, answers).tool(pay_blindly).tool(add)).await;
    let run = run.unwrap().run_id;
    let log: Arc<dyn EventLog> = Arc::clone(&bench.log) as _;
    let count = bench.events(&run).await.len();
    for id in ["c1", "c2", "c3", "c9"] {
        let refused = resolve(Arc::clone(&log), &run, &id.into(), Settlement::did_not("ops")).await;
        let refused = refused.unwrap_err();
        assert!(matches!(refused, ResumeError::CallNotOpen { .. }), "{id}: {refused:?}");
        assert_eq!(refused.code(), "run.call_not_open");
    }
    let blank = resolve(Arc::clone(&log), &run, &"c1".into(), Settlement::did_not(" ")).await;
    assert!(matches!(blank.unwrap_err(), ResumeError::Blank("by")));
    let missing = resolve(log, &"run_9".into(), &"c1".into(), Settlement::did_not("ops")).await;
    assert!(matches!(missing.unwrap_err(), ResumeError::Log(_)));
    assert_eq!(bench.events(&run).await.len(), count);
}

/// Spec: B3. A run that is stopped while a person settles a call keeps what the person said.
#[tokio::test]
async fn settled_call_of_a_cancelled_run_stays_answered() {
    let bank = Bank::new("pays", "cannot say");
    let (bench, run, next) = died(&bank, |agent| agent.tool(pay_blindly)).await;
    let log: Arc<dyn EventLog> = Arc::clone(&bench.log) as _;
    resolve(log, &run, &"c1".into(), Settlement::call_happened("ops")).await.unwrap();
    assert!(next.build().unwrap().cancel(&run, "ops").await.unwrap());
    let events = bench.events(&run).await;
    assert!(answer(&events).0, "it happened");
    assert!(replay(&*bench.log, &run).await.unwrap().is_some());
    let (_, read) = read_events(&*bench.log, &run).await.unwrap();
    assert_eq!(types(&read).last(), Some(&"run.finished"));
}

/// Spec: T14, B3, D12. The run is cancelled while the call that was settled still ends.
#[tokio::test]
async fn settlement_before_a_stop_is_recorded() {
    /// Answers after 2 seconds, whoever wants it to end.
    struct Stubborn(VirtualClock);

    #[async_trait::async_trait]
    impl Operator for Stubborn {
        fn name(&self) -> &str {
            "stubborn"
        }
        async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
            self.0.sleep(Duration::from_secs(2)).await;
            Ok(Answer::from_output(json!("paid")))
        }
    }

    /// Lets another pay.
    #[tool]
    async fn delegate(context: &ToolContext) -> Result<String, ToolError> {
        let answer = context.dispatch("stubborn", Task::text("pay")).await;
        Ok(answer
            .map_err(|error| ToolError::ExecutionFailed(error.to_string()))?
            .output
            .to_string())
    }

    let bench = Bench::new();
    let orchestrator = LocalOrchestrator::builder()
        .clock(Arc::new(bench.clock.clone()))
        .operator(Stubborn(bench.clock.clone()))
        .build()
        .unwrap();
    let answers = vec![calls([call("c1", "delegate", json!({}))]), says_done()];
    let payer = bench.agent(answers).tool(delegate).build().unwrap();
    let (log, clock) = (Arc::clone(&bench.log) as Arc<dyn EventLog>, bench.clock.clone());
    let request = RunRequest::new("pay").run("run_1".into()).orchestrator(Arc::new(orchestrator));
    let outcome = on(&bench, async move {
        let people = async {
            clock.sleep(Duration::from_secs(1)).await;
            let settlement = Settlement::call_happened("ops").with_output(json!("paid by hand"));
            resolve(log, &"run_1".into(), &"c1".into(), settlement).await.unwrap();
            clock.sleep(Duration::from_millis(500)).await;
            assert!(payer.cancel(&"run_1".into(), "ops").await.unwrap());
        };
        tokio::join!(payer.run(request), people).0.unwrap()
    })
    .await;
    assert_eq!(outcome.stop, Stop::Cancelled);
    let events = bench.events(&outcome.run_id).await;
    assert!(types(&events).contains(&"tool.resolved"), "{:?}", types(&events));
    assert_eq!(answer(&events), (true, json!("paid by hand"), None));
    assert!(bench.log.inbox(&outcome.run_id).await.unwrap().is_empty());
    assert!(replay(&*bench.log, &outcome.run_id).await.unwrap().is_some());
}
