//! Calls that are made once (SPEC T16), and the use of their answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::{Log, Settlement};
use backstop_provider::ScriptedAnswer;
use backstop_react::RunOutcome;
use backstop_redact::Redactor;
use backstop_state::MemoryStateStore;
use backstop_tool::{FnTool, Probe, ToolContext, ToolError};
use layer0::event::{EventKind, ToolResponded};
use layer0::id::RunId;
use layer0::state::{Scope, StateQuery};
use layer0::{JsonText, StateStore, ToolSpec};
use serde_json::{Value, json};

use crate::bench::{Bench, call, calls, on, says, tool_texts};

/// Takes any object, once for each invoice.
fn invoice(mut spec: ToolSpec) -> ToolSpec {
    spec.schema = json!({ "type": "object" }).into();
    spec.once("/invoice")
}

fn state(bench: &Bench) -> Arc<dyn StateStore> {
    let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
    Arc::new(MemoryStateStore::new().clock(clock))
}

/// A model that asks for invoice 7 this number of times.
fn asks(times: usize) -> Vec<ScriptedAnswer> {
    let asked =
        (1..=times).map(|n| calls([call(&format!("c{n}"), "pay", json!({ "invoice": 7 }))]));
    asked.chain([says("done")]).collect()
}

/// Fails at the first call, and pays at the others. Returns how often it was called, too.
fn loses_first(probe: fn() -> Probe) -> (FnTool, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let tool = FnTool::new("pay", "Pays.", move |_: Value| {
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            match first {
                true => Err(ToolError::ExecutionFailed("connection lost".into())),
                false => Ok("paid"),
            }
        }
    });
    let tool =
        tool.probe(move |_: Value, _: ToolContext| async move { Ok::<_, ToolError>(probe()) });
    (tool.map_spec(invoice), asked)
}

/// A bank that knows payments by their idempotency keys, and cannot say at first. Returns the tool, the payments and
/// the keys that were asked about.
type Keys = Arc<Mutex<Vec<String>>>;
fn bank(is_final: bool) -> (FnTool, Keys, Keys) {
    let (paid, probed): (Keys, Keys) = Default::default();
    let (pays, knows, asked) = (Arc::clone(&paid), Arc::clone(&paid), Arc::clone(&probed));
    let tool = FnTool::with_context("pay", "Pays.", move |_: Value, context: ToolContext| {
        pays.lock().unwrap().push(context.idempotency_key);
        async { Err::<&str, _>(ToolError::ExecutionFailed("connection lost".into())) }
    })
    .probe(move |_: Value, context: ToolContext| {
        let mut asked = asked.lock().unwrap();
        let is_away = asked.is_empty();
        asked.push(context.idempotency_key.clone());
        let is_paid = knows.lock().unwrap().contains(&context.idempotency_key);
        async move {
            Ok::<_, ToolError>(match (is_away, is_paid) {
                (true, _) => Probe::Unknown,
                (_, true) => Probe::Happened(Some(json!({ "receipt": 1 }).into())),
                (_, false) => Probe::DidNot,
            })
        }
    })
    .map_spec(move |spec| if is_final { invoice(spec).probe_is_final() } else { invoice(spec) });
    (tool, paid, probed)
}

async fn answers(bench: &Bench, run: &RunId) -> Vec<ToolResponded> {
    let events = bench.events(run).await;
    let answers = events.into_iter().filter_map(|event| match event.kind {
        EventKind::ToolResponded(answer) => Some(answer),
        _ => None,
    });
    answers.collect()
}

async fn run(bench: &Bench, times: usize, tool: FnTool, state: &Arc<dyn StateStore>) -> RunOutcome {
    let agent = bench.agent(asks(times)).tool(tool).shared_state_store(Arc::clone(state));
    bench.run(agent).await.unwrap()
}

/// Spec: T14, T16
#[tokio::test]
async fn call_that_did_not_happen_is_made_again() {
    let bench = Bench::new();
    let (tool, asked) = loses_first(|| Probe::DidNot);
    let outcome = run(&bench, 2, tool, &state(&bench)).await;
    let texts = tool_texts(&outcome);
    assert!(texts[0].0.ends_with("may be called again."), "{texts:?}");
    assert_eq!((texts[1].0.as_str(), asked.load(Ordering::SeqCst)), ("paid", 2));
}

/// Spec: T14, T16. What a probe knows of the first call is the answer of the second.
#[tokio::test]
async fn call_elsewhere_is_probed_by_its_own_key() {
    for is_final in [false, true] {
        let bench = Bench::new();
        let (tool, paid, probed) = bank(is_final);
        let store = state(&bench);
        let first = run(&bench, 1, tool.clone(), &store).await;
        let second = run(&bench, 1, tool, &store).await;
        assert!(tool_texts(&first)[0].0.contains("connection lost"));
        let (paid, probed) = (paid.lock().unwrap().clone(), probed.lock().unwrap().clone());
        assert_eq!(probed, [paid[0].clone(), paid[0].clone()]);
        assert_eq!(paid.len(), 1);
        let answer = &answers(&bench, &second.run_id).await[0];
        assert_eq!(answer.output.get(), r#"{"receipt":1}"#);
        let before = answer.done_before.as_ref().unwrap();
        assert_eq!((&before.run, before.call_id.as_str()), (&first.run_id, "c1"));
    }
}

/// Spec: T16. A refused call has no effect: nothing is probed for it, nothing begun again.
#[tokio::test]
async fn refused_call_has_no_effect() {
    let bench = Bench::new();
    let (tool, asked) = loses_first(|| Probe::Unknown);
    let store = state(&bench);
    let first = run(&bench, 1, tool.clone(), &store).await;
    let second = run(&bench, 1, tool, &store).await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let answer = &answers(&bench, &second.run_id).await[0];
    assert_eq!(answer.error.as_ref().unwrap().reason.as_str(), "tool.done_elsewhere");
    let said = &tool_texts(&second)[0].0;
    assert!(said.contains("failed before, and may have acted"), "{said}");
    assert!(said.contains(first.run_id.as_str()) && !said.contains("did not happen"), "{said}");
    let told = bench.events(&second.run_id).await;
    assert!(!told.iter().any(|event| matches!(event.kind, EventKind::ToolProbed(_))));
}

/// Spec: T7, T16. With and without a record, later calls do not wait for one that was given up.
#[tokio::test]
async fn timeout_ends_a_call() {
    for has_log in [true, false] {
        let bench = Bench::new();
        let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
        let slow = Arc::clone(&clock);
        let tool = FnTool::new("pay", "Pays.", move |_: Value| {
            let clock = Arc::clone(&slow);
            async move {
                clock.sleep(Duration::from_secs(600)).await;
                Ok::<_, ToolError>("paid")
            }
        })
        .map_spec(invoice);
        let provider = backstop_provider::ScriptedProvider::new(asks(3));
        let agent = match has_log {
            true => bench.agent(asks(3)),
            false => backstop_react::Agent::builder(provider).clock(clock),
        };
        let outcome = bench.run(agent.tool(tool).shared_state_store(state(&bench))).await.unwrap();
        assert!(bench.elapsed() < Duration::from_secs(35), "{:?}", bench.elapsed());
        assert!(tool_texts(&outcome)[2].0.starts_with("Not run: it failed before"));
    }
}

/// Spec: T10, T16. The recorded answer is the tool's, its text as it was, and the model reads whose it is.
#[tokio::test]
async fn recorded_answer_fits_and_keeps_its_text() {
    let bench = Bench::new();
    let text = r#"{"paid":3.10,"sum":123456789012345678901234567890}"#;
    let tool = FnTool::new("pay", "Pays.", move |_: Value| async move {
        Ok::<_, ToolError>(JsonText::parse(text).unwrap())
    });
    let tool = tool.map_spec(|spec| {
        let mut spec = invoice(spec);
        let schema =
            json!({ "properties": { "paid": { "type": "number" } }, "required": ["paid"] });
        spec.output_schema = Some(schema.into());
        spec
    });
    let outcome = run(&bench, 2, tool, &state(&bench)).await;
    let texts = tool_texts(&outcome);
    let told = format!("{text}\ndone before, by call c1 of run {}: not done again", outcome.run_id);
    assert_eq!(texts, [(text.to_owned(), false), (told, false)]);
    assert_eq!(answers(&bench, &outcome.run_id).await[1].output.get(), text);
}

/// Spec: T10, T16. An answer that fits no schema is none for others, but the call was made.
#[tokio::test]
async fn call_with_an_unfit_answer_was_made() {
    let bench = Bench::new();
    let counted = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&counted);
    let tool = FnTool::new("pay", "Pays.", move |_: Value| {
        counts.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, ToolError>(json!({ "paid": "yes" })) }
    });
    let tool = tool.map_spec(|spec| {
        let mut spec = invoice(spec);
        spec.output_schema = Some(json!({ "properties": { "paid": { "type": "number" } } }).into());
        spec
    });
    let outcome = run(&bench, 2, tool, &state(&bench)).await;
    let texts = tool_texts(&outcome);
    assert!(texts[0].1 && texts[0].0.contains("invalid output"), "{texts:?}");
    assert!(!texts[1].1 && texts[1].0.starts_with("It happened;"), "{texts:?}");
    assert_eq!(counted.load(Ordering::SeqCst), 1);
}

/// Spec: T16, S9. Whatever store the agent was given, and in whatever order.
#[tokio::test]
async fn ledger_holds_no_secret() {
    const KEY: &str = "held-secret-key-4711";
    for redactor_first in [true, false] {
        let bench = Bench::new();
        let store = state(&bench);
        let tool = FnTool::new("pay", "Pays.", |_: Value| async {
            Ok::<_, ToolError>(json!({ "paid with": KEY, "sum": 1.0, KEY: 2 }))
        });
        let ask = calls([call("c1", "pay", json!({ "invoice": 7, "note": KEY }))]);
        let agent = bench.agent(vec![ask, says("done")]).tool(tool.map_spec(invoice));
        let redactor = Redactor::new().with_secret(KEY);
        let agent = match redactor_first {
            true => agent.redactor(redactor).shared_state_store(Arc::clone(&store)),
            false => agent.shared_state_store(Arc::clone(&store)).redactor(redactor),
        };
        let outcome = bench.run(agent).await.unwrap();
        let own = Scope::Run(outcome.run_id.clone());
        for (scope, has_texts) in [(Scope::Global, false), (own, true)] {
            let kept = store.list(StateQuery::new(scope)).await.unwrap();
            assert_eq!(kept.len(), 1);
            let kept = format!("{kept:?}");
            assert_eq!(kept.contains("[redacted]"), has_texts, "{kept}");
            assert!(!kept.contains(KEY), "{kept}");
        }
    }
}

/// Returns how often the tool has paid after each call, for these invoices.
async fn payments_for(invoices: Vec<Value>) -> Vec<usize> {
    let bench = Bench::new();
    let counted = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&counted);
    let tool = FnTool::new("pay", "Pays.", move |_: Value| {
        counts.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, ToolError>("paid") }
    });
    let store = state(&bench);
    let mut payments = Vec::new();
    for invoice_id in invoices {
        let ask = calls([call("c1", "pay", json!({ "invoice": invoice_id }))]);
        let agent = bench.agent(vec![ask, says("done")]);
        let agent = agent.tool(tool.clone().map_spec(invoice));
        bench.run(agent.shared_state_store(Arc::clone(&store))).await.unwrap();
        payments.push(counted.load(Ordering::SeqCst));
    }
    payments
}

/// Spec: T16. Numbers that say the same are one key.
#[tokio::test]
async fn keys_compare_numbers_exactly() {
    let numbers = vec![json!(7), json!(7.0), json!(7.5), json!("7")];
    assert_eq!(payments_for(numbers).await, [1, 1, 2, 3]);
}

/// Spec: T16. The tool gets them as they are, so that what it takes for two values is two keys.
#[tokio::test]
async fn keys_compare_strings_by_code_points() {
    let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
    let strings =
        [composed, decomposed, composed, "CAF\u{c9}", "caf\u{e9} ", "\u{2126}", "\u{3a9}"];
    let payments = payments_for(strings.map(Value::from).to_vec()).await;
    assert_eq!(payments, [1, 2, 2, 3, 4, 5, 6]);
}

/// Spec: T14, T16. What a person says of a call settles its key.
#[tokio::test]
async fn word_of_a_person_settles_the_key() {
    for happened in [true, false] {
        let bench = Bench::new();
        let (tool, asked) = loses_first(|| Probe::Unknown);
        let store = state(&bench);
        let first = run(&bench, 1, tool.clone(), &store).await;
        let agent = bench.agent(vec![]).tool(tool.clone()).shared_state_store(Arc::clone(&store));
        let agent = agent.build().unwrap();
        let settlement = match happened {
            true => Settlement::call_happened("ops").with_output(json!({ "receipt": 9 })),
            false => Settlement::did_not("ops"),
        };
        let id = first.run_id.clone();
        on(&bench, async move { agent.resolve(&id, &"c1".into(), settlement).await })
            .await
            .unwrap();
        assert!(bench.log.summary(&first.run_id).await.unwrap().is_some());
        let second = run(&bench, 1, tool, &store).await;
        let said = &tool_texts(&second)[0].0;
        match happened {
            true => assert!(said.starts_with(r#"{"receipt":9}"#), "{said}"),
            false => assert_eq!(said, "paid"),
        }
        assert_eq!(asked.load(Ordering::SeqCst), if happened { 1 } else { 2 });
    }
}

/// Spec: T16. The clock is set while a call waits for another one with its key.
#[tokio::test]
async fn set_clock_ends_no_wait_for_a_call() {
    for by_ms in [3_600_000, -3_600_000] {
        let bench = Bench::new();
        let clock = bench.clock.clone();
        let tool = FnTool::new("pay", "Pays.", move |_: Value| {
            let clock = clock.clone();
            async move {
                clock.sleep(Duration::from_secs(5)).await;
                clock.set_time_of_day(by_ms);
                clock.sleep(Duration::from_secs(5)).await;
                Ok::<_, ToolError>("paid")
            }
        });
        let both = ["c1", "c2"].map(|id| call(id, "pay", json!({ "invoice": 7 })));
        let agent = bench.agent(vec![calls(both), says("done")]).tool(tool.map_spec(invoice));
        let outcome = bench.run(agent.shared_state_store(state(&bench))).await.unwrap();
        let texts = tool_texts(&outcome);
        let are_paid = texts.iter().all(|(text, is_error)| text.starts_with("paid") && !is_error);
        assert!(are_paid && texts.len() == 2, "{by_ms}: {texts:?}");
    }
}
