//! Answers that were cut, through every adapter and the loop: what was said is kept, and nothing that
//! was asked for runs.

use std::sync::Arc;

use backstop::layer0::event::EventKind;
use backstop::layer0::message::StopReason;
use backstop::{
    AgentBuilder, EventLog, MemoryLog, RunRequest, ScriptedAnswer, ToolError, read_events, tool,
};
use backstop_provider::ScriptedToolCall;
use backstop_provider_http::Timeouts;
use backstop_testkit::{Cannot, Loopback};
use serde_json::{Value, json};

use crate::support::wires::{ENDPOINTS, Endpoint};

/// Pay a bill.
#[tool]
async fn pay(bill: Option<u64>) -> Result<String, ToolError> {
    Ok(format!("paid {bill:?}"))
}

fn calling(arguments: Value) -> ScriptedToolCall {
    ScriptedToolCall::new("call-1", "pay", arguments)
}

/// What a run came to: outcome, reason and message, output, and the events of its calls.
struct Seen {
    ended: Value,
    calls: Vec<String>,
}

async fn seen(endpoint: &Endpoint, answer: &ScriptedAnswer, pieces: usize) -> Seen {
    let reply = endpoint.wire.says(answer, true).split(pieces);
    let server = Loopback::replying([reply]);
    let provider = (endpoint.wire.provider)(&server.url(), Timeouts::default());
    let log = Arc::new(MemoryLog::new());
    let agent = AgentBuilder::from_shared(provider).tool(pay);
    let agent = agent.shared_log(Arc::clone(&log) as Arc<dyn EventLog>).build().unwrap();
    let outcome = agent.run(RunRequest::new("Pay the bill.")).await.unwrap();
    assert_eq!(server.count(), 1, "a cut answer is asked for once: {}", endpoint.name);
    let (_, events) = read_events(&*log, &outcome.run_id).await.unwrap();
    let calls = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolRequested(requested) => Some(format!("{} runs", requested.call_id)),
        EventKind::ToolResponded(responded) => {
            let reason = responded.error.as_ref().map(|error| error.reason.as_str());
            Some(reason.unwrap_or("ran").to_owned())
        }
        _ => None,
    });
    let calls = calls.collect();
    let EventKind::RunFinished(finished) = &events.last().unwrap().kind else {
        panic!("{:?}", events.last())
    };
    Seen { ended: serde_json::to_value(finished).unwrap(), calls }
}

/// Spec: P9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_of_a_cut_answer_runs() {
    for endpoint in &ENDPOINTS {
        for (stop_reason, reason) in [
            (StopReason::MaxTokens, "model.max_tokens"),
            (StopReason::Refusal, "model.refusal"),
            (StopReason::ContentFilter, "model.content_filter"),
            (StopReason::from_word("abducted"), "model.unknown_stop"),
        ] {
            if !endpoint.wire.can(Cannot::Stop(stop_reason.clone())) {
                continue;
            }
            for arguments in [json!(""), json!({}), json!(r#"{"bill""#), json!({ "bill": 7 })] {
                for pieces in [1, usize::MAX] {
                    let at = format!("{}: {arguments} {reason}", endpoint.name);
                    let answer = ScriptedAnswer::saying("so far")
                        .tool_calls([calling(arguments.clone())])
                        .stop_reason(stop_reason.clone());
                    let Seen { ended, calls } = seen(endpoint, &answer, pieces).await;
                    assert_eq!(calls, ["tool.cancelled"], "{at}");
                    assert_eq!(ended["outcome"], "incomplete", "{at}");
                    assert_eq!(ended["reason"], reason, "{at}");
                    assert_eq!(ended["output"], "so far", "{at}");
                }
            }
        }
    }
}

/// Spec: P9
#[tokio::test]
async fn an_unknown_stop_keeps_text_and_word() {
    for endpoint in &ENDPOINTS {
        let answer =
            ScriptedAnswer::saying("so far").stop_reason(StopReason::from_word("abducted"));
        let Seen { ended, calls } = seen(endpoint, &answer, 1).await;
        assert!(calls.is_empty(), "{}", endpoint.name);
        assert_eq!(ended["reason"], "model.unknown_stop", "{}", endpoint.name);
        assert_eq!(ended["output"], "so far", "{}", endpoint.name);
        let message = ended["message"].as_str().unwrap();
        assert!(message.contains("`abducted`"), "{}: {message}", endpoint.name);
    }
}
