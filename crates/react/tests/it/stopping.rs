//! Calls that were stopped: a probe at the reopening, and a call that had not begun.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop_event_log::{EventLog, MemoryLog};
use backstop_provider::ScriptedProvider;
use backstop_react::{Agent, Limits, RunRequest, replay};
use backstop_tool::{Probe, State, ToolContext, ToolError, tool};
use layer0::stop::Stop;
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::bench::*;

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
