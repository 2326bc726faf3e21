//! The texts of errors, and secrets in them.

use std::sync::Arc;

use backstop_clock::Clock;
use backstop_error_store::{ErrorFilter, ErrorStore};
use backstop_event_log::Log;
use backstop_provider::ScriptedProvider;
use backstop_react::{Agent, ReopenRequest, replay};
use backstop_tool::{ToolError, tool};
use layer0::event::EventKind;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::*;

/// Spec: S5, S9
#[tokio::test]
async fn errors_are_stored_whole_and_redacted() {
    let bench = Bench::new();
    let batch = calls([
        call("c1", "broken", json!({"how": "long"})),
        call("c2", "broken", json!({"how": "key"})),
        call("c3", "broken", json!({"how": "panic"})),
    ]);
    let outcome = bench.run(bench.agent(vec![batch, says("done")]).tool(broken)).await.unwrap();
    let texts = tool_texts(&outcome);
    let stored = bench.errors.list(ErrorFilter::default()).await.unwrap();
    let long = stored.iter().find(|error| error.call_id().as_str() == "c1").unwrap();
    assert_eq!(
        texts[0].0,
        format!(
            "Tool 'broken' failed: Code SQL_ERROR: first line\n[Error ID: {id}]\n\
             Use get_error_detail(error_id=\"{id}\") for the complete error.",
            id = long.id()
        )
    );
    assert_eq!(backstop_error_store::readable(long.raw()).len(), "first line\n".len() + 3_000);
    assert!(texts[1].0.contains("api_key=[redacted]"), "{}", texts[1].0);
    assert!(stored.iter().all(|error| !error.raw().contains("abcdef0123456789")));
    assert!(texts[2].0.starts_with("Tool 'broken' panicked: index 7 out of range for c3\n"));
}

/// Spec: S7
#[tokio::test]
async fn the_model_reads_the_detail_and_recovers() {
    let bench = Bench::new();
    let answers = vec![
        calls([call("c1", "broken", json!({"how": "long"}))]),
        calls([call("c2", "get_error_detail", json!({"error_id": "${error_id.1}"}))]),
        calls([call("c3", "get_error_detail", json!({"error_id": "err_20260101_000000_ffffff"}))]),
        calls([call("c4", "broken", json!({"how": "fine"}))]),
        says("recovered"),
    ];
    let outcome = bench.run(bench.agent(answers).tool(broken)).await.unwrap();
    let texts = tool_texts(&outcome);
    assert!(!texts[1].1 && texts[1].0.contains("trace\\ntrace"), "{}", texts[1].0);
    assert_eq!(texts[2].0, "Error ID not found: err_20260101_000000_ffffff");
    assert_eq!(texts[3], ("fine".into(), false));
    assert_eq!(bench.errors.list(ErrorFilter::default()).await.unwrap().len(), 1);
}

/// A tool that reports its output, then hangs, or returns an output that does not fit its schema.
struct Writer {
    spec: backstop_tool::ToolSpec,
    clock: Arc<dyn Clock>,
}

#[async_trait::async_trait]
impl backstop_tool::Tool for Writer {
    fn spec(&self) -> &backstop_tool::ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        arguments: &backstop_tool::Arguments,
        context: &backstop_tool::ToolContext,
    ) -> Result<backstop_tool::JsonText, ToolError> {
        context.written.read_with(|| Some("Traceback (most recent call last):\nx\n".into()));
        if arguments["hang"] == true {
            self.clock.sleep(std::time::Duration::from_secs(3_600)).await;
        }
        Ok(json!("seen api_key=abcdef0123456789\nrows: 7").into())
    }
}

/// Spec: T7, T10
#[tokio::test]
async fn what_a_failed_tool_wrote_is_stored_whole() {
    let bench = Bench::new();
    let batch = calls([
        call("c1", "write", json!({"hang": true})),
        call("c2", "write", json!({"hang": false})),
    ]);
    let mut spec = backstop_tool::ToolSpec::new("write", "Writes.", json!({"type": "object"}));
    spec.output_schema = Some(json!({"type": "object"}).into());
    let writer = Writer { spec, clock: Arc::new(bench.clock.clone()) };
    let outcome = bench.run(bench.agent(vec![batch, says("done")]).tool(writer)).await.unwrap();
    let texts = tool_texts(&outcome);
    let stored = bench.errors.list(ErrorFilter::default()).await.unwrap();
    let check = |index: usize, call: &str, headline: &str, message: &str, output: &str| {
        let text = &texts[index].0;
        assert!(text.starts_with(&format!("{headline}\n[Error ID: ")), "{text}");
        assert!(text.contains("Use get_error_detail("), "{text}");
        let error = stored.iter().find(|error| error.call_id().as_str() == call).unwrap();
        let raw: serde_json::Value = serde_json::from_str(error.raw()).unwrap();
        assert_eq!(raw, json!({"message": message, "output": output}));
    };
    let written = "Traceback (most recent call last):\nx\n";
    check(0, "c1", "Tool 'write' timed out after 30s", "timed out after 30s", written);
    let why = "invalid output: output must be an object";
    let headline = format!("Tool 'write' failed: {why}");
    check(1, "c2", &headline, why, "seen api_key=[redacted]\nrows: 7");
}

/// Spec: T7, T14, B3
#[tokio::test]
async fn output_of_a_stopped_tool_is_stored() {
    for (idempotent, headline) in
        [(false, "Cancelled: may already have acted"), (true, "Cancelled: the run was stopped")]
    {
        let bench = Bench::new();
        let mut spec = backstop_tool::ToolSpec::new("write", "Writes.", json!({"type": "object"}));
        spec.idempotent = idempotent;
        let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
        let writer = Writer { spec, clock: Arc::clone(&clock) };
        let answers = vec![calls([call("c1", "write", json!({"hang": true}))]), says("done")];
        let agent = bench.agent(answers).tool(writer).build().unwrap();
        let token = backstop_react::CancellationToken::new();
        let request = backstop_react::RunRequest::new("go").cancelled_by(token.clone());
        let again = agent.clone();
        let outcome = on(&bench, async move {
            let cancels = async {
                clock.sleep(std::time::Duration::from_secs(1)).await;
                token.cancel();
            };
            tokio::join!(agent.run(request), cancels).0.unwrap()
        });
        let outcome = outcome.await;
        assert_eq!(outcome.stop, Stop::Cancelled);
        let (text, is_error) = tool_texts(&outcome).remove(0);
        assert!(is_error && text.starts_with(&format!("{headline}\n[Error ID: ")), "{text}");
        let stored = bench.errors.list(ErrorFilter::default()).await.unwrap();
        assert!(stored[0].raw().contains("Traceback"), "{}", stored[0].raw());
        let events = bench.events(&outcome.run_id).await;
        let failure = events.iter().find_map(|event| match &event.kind {
            EventKind::ToolResponded(answer) => answer.error.clone(),
            _ => None,
        });
        let failure = failure.unwrap();
        assert_eq!((failure.reason.as_str(), &*failure.message), ("tool.cancelled", headline));
        replay(&*bench.log, &outcome.run_id).await.unwrap();
        let reopened = ReopenRequest::new(outcome.run_id);
        let reopened = on(&bench, async move { again.reopen(reopened).await });
        assert_eq!(reopened.await.unwrap().text(), "done");
    }
}

/// Spec: S6
#[tokio::test]
async fn without_a_store_the_model_reads_the_head() {
    let bench = Bench::new();
    let answers = vec![calls([call("c1", "broken", json!({"how": "long"}))]), says("done")];
    let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
    let agent = Agent::builder(ScriptedProvider::new(answers)).clock(clock).tool(broken);
    let outcome = bench.run(agent.without_error_store()).await.unwrap();
    let (head, note) = tool_texts(&outcome)[0].0.rsplit_once('\n').map(own).unwrap();
    assert_eq!(head.chars().count(), "Tool error: SQL_ERROR - ".len() + 500);
    assert!(head.starts_with("Tool error: SQL_ERROR - first line\ntrace"));
    assert_eq!(note, "[Cut: 500 of 3011 characters shown; the rest was not kept]");
}

fn own((head, note): (&str, &str)) -> (String, String) {
    (head.to_owned(), note.to_owned())
}

/// Spec: E10
#[tokio::test]
async fn keys_the_process_holds_are_written_nowhere() {
    let bench = Bench::new();
    let key = "plain-looking-secret-value";
    let answers =
        vec![calls([call("c1", "broken", json!({"how": key}))]), says(&format!("it is {key}"))];
    let redactor = backstop_redact::Redactor::new().with_secret(key);
    let outcome = bench.run(bench.agent(answers).tool(broken).redactor(redactor)).await.unwrap();
    assert_eq!(outcome.text(), "it is [redacted]");
    let log = bench.log.records(&outcome.run_id, 1).await.unwrap();
    assert!(log.iter().all(|record| !record.payload.text().unwrap().contains(key)));
}

/// Spec: E10
#[tokio::test]
async fn keys_do_not_stream_to_listeners_either() {
    let bench = Bench::new();
    let key = "plain-looking-secret-value";
    let redactor = backstop_redact::Redactor::new().with_secret(key);
    let agent = bench.agent(vec![says(key)]).redactor(redactor).build().unwrap();
    let mut listener = agent.subscribe();
    agent.run("input").await.unwrap();
    drop(agent);
    while let Some(live) = listener.next().await {
        assert!(!format!("{live:?}").contains(key), "{live:?}");
    }
}

/// Spec: T3, S5. Of a note that is too long, the model reads that it is cut.
#[tokio::test]
async fn notes_are_shown_below_every_failure() {
    /// Fails with a note.
    #[tool]
    async fn noted(kind: String, chars: usize) -> Result<String, ToolError> {
        let error = match kind.as_str() {
            "unavailable" => ToolError::Unavailable("closed".into()),
            _ => ToolError::ExecutionFailed("boom".into()),
        };
        Err(error.with_note("é".repeat(chars)))
    }
    let bench = Bench::new();
    let noted_calls = [("failed", 500), ("failed", 501), ("unavailable", 3)];
    let batch = noted_calls.iter().enumerate().map(|(at, (kind, chars))| {
        call(&format!("c{at}"), "noted", json!({"kind": kind, "chars": chars}))
    });
    let answers = vec![calls(batch.collect::<Vec<_>>()), says("done")];
    let outcome = bench.run(bench.agent(answers).tool(noted)).await.unwrap();
    let texts = tool_texts(&outcome);
    let last = |at: usize| texts[at].0.lines().last().unwrap().to_owned();
    let whole = "é".repeat(500);
    assert_eq!(last(0), format!("[{whole}]"));
    assert_eq!(last(1), format!("[{whole}... (cut: 500 of 501 characters shown)]"));
    assert_eq!(texts[2].0, "Tool 'noted' is not available: closed\n[ééé]");
}
