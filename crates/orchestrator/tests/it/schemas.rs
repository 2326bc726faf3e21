//! Agents that declare what their input and their answer have to fit.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use backstop_clock::VirtualClock;
use backstop_event_log::{MemoryLog, RunFilter, Runs};
use backstop_provider::{ModelRequest, ScriptedAnswer};
use backstop_react::{Agent, BuildError, OperatorTool, replay};
use layer0::Orchestrator;
use layer0::failure::Failure;
use layer0::message::Message;
use layer0::operator::{Context, Task};
use serde_json::{Value, json};

use crate::agents::{agent, has_answers};
use crate::{builder, on, start};

fn invoice() -> Value {
    json!({ "type": "object", "required": ["invoice"], "additionalProperties": false,
            "properties": { "invoice": { "type": "string" } } })
}

/// Returns an agent that pays invoices, and answers `{"paid": true}` after `odd` other answers.
fn payer(clock: &VirtualClock, log: &Arc<MemoryLog>, odd: u32, asked: &Asked) -> Agent {
    let (left, asked) = (AtomicU32::new(odd), Arc::clone(asked));
    let answer = move |request: &ModelRequest| {
        asked.lock().unwrap().extend(request.messages.messages().iter().find_map(|message| {
            match &**message {
                Message::User { content, .. } => Some(content.to_string()),
                _ => None,
            }
        }));
        match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => ScriptedAnswer::saying("It is paid."),
            Err(_) => ScriptedAnswer::saying(r#"{"paid": true}"#),
        }
    };
    let answers = json!({ "type": "object", "required": ["paid"] });
    let payer = agent(clock, log, answer).name("payer").input_schema(invoice());
    payer.output_schema(answers).build().unwrap()
}

type Asked = Arc<Mutex<Vec<String>>>;

/// Spec: O1. Before anything starts.
#[tokio::test]
async fn input_that_does_not_fit_starts_nothing() {
    let (clock, log, asked) = (start(), Arc::<MemoryLog>::default(), Asked::default());
    let orchestrator = builder(&clock).operator(payer(&clock, &log, 0, &asked)).build().unwrap();
    for input in [json!("INV-1"), json!({ "invoice": 1 })] {
        let dispatch = orchestrator.dispatch("payer", Task::json(input), Context::root());
        let error = dispatch.await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("input.invalid", false));
    }
    assert!(log.runs(RunFilter::new()).await.unwrap().is_empty());
    assert!(asked.lock().unwrap().is_empty());
}

/// Spec: O1. An answer that does not fit is asked for again once; then the run fails.
#[tokio::test]
async fn answer_that_does_not_fit_is_asked_again() {
    for (odd, code) in [(0, None), (1, None), (2, Some("output.unserializable"))] {
        let (clock, log, asked) = (start(), Arc::<MemoryLog>::default(), Asked::default());
        let orchestrator = builder(&clock).operator(payer(&clock, &log, odd, &asked));
        let orchestrator = orchestrator.build().unwrap();
        let answer = on(&clock, async move {
            let task = Task::json(json!({ "invoice": "INV-1" }));
            orchestrator.dispatch("payer", task, Context::root()).await
        });
        match (answer.await, code) {
            (Ok(answer), None) => assert_eq!(answer.output, json!({ "paid": true })),
            (Err(error), Some(code)) => assert_eq!(error.code(), code),
            (other, _) => panic!("after {odd}: {other:?}"),
        }
        let run = log.runs(RunFilter::new()).await.unwrap().pop().unwrap();
        let questions = u32::try_from(asked.lock().unwrap().len()).unwrap();
        assert_eq!(
            (questions, run.usage.model_attempts),
            (odd.min(1) + 1, odd.min(1) + 1),
            "after {odd}"
        );
        assert_eq!(*asked.lock().unwrap().first().unwrap(), r#"{"invoice":"INV-1"}"#);
        replay(&*log, &run.run).await.unwrap();
    }
}

/// Spec: O1, O2. The tool of such an agent takes its input as arguments, by name or at hand.
#[tokio::test]
async fn tool_takes_what_the_agent_declares() {
    for by_name in [true, false] {
        let (clock, log, asked) = (start(), Arc::<MemoryLog>::default(), Asked::default());
        let calls = AtomicU32::new(0);
        let lead = agent(&clock, &log, move |request| match has_answers(request) {
            true if calls.fetch_add(1, Ordering::SeqCst) > 0 => ScriptedAnswer::saying("done"),
            true => ScriptedAnswer::calling("payer", json!({ "invoice": "INV-1" })),
            false => ScriptedAnswer::calling("payer", json!({ "input": "INV-1" })),
        });
        let payer = payer(&clock, &log, 0, &asked);
        let lead = lead.name("lead");
        let lead = match by_name {
            true => lead.tool(OperatorTool::new("payer", "Pays.").input_schema(&invoice())),
            false => lead.tool(payer.as_tool("Pays.")),
        };
        let orchestrator = builder(&clock).operator(payer).operator(lead.build().unwrap());
        let orchestrator = orchestrator.build().unwrap();
        let answer = on(&clock, async move {
            orchestrator.dispatch("lead", Task::text("pay"), Context::root()).await
        });
        assert_eq!(answer.await.unwrap().output, json!("done"));
        assert_eq!(*asked.lock().unwrap(), [r#"{"invoice":"INV-1"}"#], "by name: {by_name}");
    }
}

#[test]
fn what_is_no_schema_is_refused() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let odd = || agent(&clock, &log, |_| ScriptedAnswer::saying("x"));
    let none = || json!({ "type": "strong" });
    for (builder, wanted) in
        [(odd().input_schema(none()), "input"), (odd().output_schema(none()), "output")]
    {
        match builder.build() {
            Err(BuildError::Schema { of, .. }) => assert_eq!(of, wanted),
            other => panic!("{other:?}"),
        }
    }
}
