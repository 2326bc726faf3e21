//! Answers to calls.

use std::sync::atomic::Ordering;

use backstop_event_log::{Decision, Inbox, Log, RunFilter, Runs};
use backstop_react::ReopenRequest;
use layer0::Timestamp;
use layer0::stop::Outcome;
use rmcp::model::{CallToolRequest, ClientRequest, RequestMetaObject};
use rmcp::service::PeerRequestOptions;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, call, params, shown};

/// Spec: Q10
#[tokio::test]
async fn agent_is_a_tool_of_its_name() {
    let client = Bench::new().client().await;
    let tools = client.list_all_tools().await.unwrap();
    assert_eq!((tools.len(), &*tools[0].name), (1, "clerk"));
    assert_eq!(tools[0].input_schema["properties"]["input"]["type"], "string");
    let (is_error, text, said) = call(&client, json!({"input": "sweep"})).await;
    assert_eq!((is_error, text.as_str()), (false, "did: sweep"));
    assert_eq!((&said["outcome"], &said["output"]), (&json!("completed"), &json!("did: sweep")));
    assert!(said["run"].as_str().unwrap().starts_with("run_"));
}

/// Spec: Q10. A failure, and an answer that was cut, are errors with their facts.
#[tokio::test]
async fn failures_state_code_retry_and_effect() {
    let client = Bench::new().client().await;
    let (is_error, text, said) = call(&client, json!({"input": "fail"})).await;
    assert!(is_error && text.starts_with("provider.quota_exhausted: "), "{text}");
    let error = &said["error"];
    assert_eq!(error["code"], "provider.quota_exhausted");
    assert_eq!((&error["retry"], &error["effect"]), (&json!("never"), &json!("none")));
    assert_eq!(said["outcome"], "failed");

    let (is_error, text, said) = call(&client, json!({"input": "cut"})).await;
    assert!(
        is_error && text.contains("model.max_tokens") && text.ends_with("half an ans"),
        "{text}"
    );
    assert_eq!(
        (&said["outcome"], &said["error"]["code"]),
        (&json!("incomplete"), &json!("model.max_tokens"))
    );
}

/// Spec: Q10. Clients read it as JSON Schema; the providers' APIs refuse some keywords at its head.
#[tokio::test]
async fn schema_asks_for_input_or_run() {
    let tool = Bench::new().client().await.list_all_tools().await.unwrap().remove(0);
    let keywords = Value::from((*tool.input_schema).clone());
    // Models follow no exclusion of properties, and no count of them.
    for refused in ["anyOf", "oneOf", "allOf", "not", "enum", "minProperties", "maxProperties"] {
        assert_eq!(keywords.get(refused), None);
    }
    let schema = backstop_tool::Schema::new(&keywords).unwrap();
    for fits in [json!({"input": "a"}), json!({"run": "run_1"}), json!({"input": "a", "run": ""})] {
        assert_eq!(schema.check_arguments(&fits), Ok(()));
    }
    for misfit in [json!({"input": 7}), json!({"inptu": "a"})] {
        assert!(schema.check_arguments(&misfit).is_err(), "{misfit}");
    }
}

/// Spec: Q10. Models fill in what they are shown.
#[tokio::test]
async fn blank_argument_counts_as_left_out() {
    let client = Bench::new().client().await;
    for run in [json!(null), json!(""), json!(" ")] {
        let (is_error, text, said) = call(&client, json!({"input": "sweep", "run": run})).await;
        assert_eq!((is_error, text.as_str()), (false, "did: sweep"));
        for input in [json!(null), json!("")] {
            let again = json!({"input": input, "run": said["run"]});
            let (_, text, again) = call(&client, again).await;
            assert_eq!((text.as_str(), &again["run"]), ("did: sweep", &said["run"]));
        }
    }
}

/// Spec: Q10. A client that does not read holds up neither a stop nor the end that it made itself.
#[tokio::test(start_paused = true)]
async fn unread_answers_never_outlive_the_end() {
    for closes in [false, true] {
        let (ours, theirs) = tokio::io::duplex(1024);
        let (input, read) = tokio::io::duplex(64 * 1024);
        let (stop, bench) = (CancellationToken::new(), Bench::new());
        let served = tokio::spawn(bench.server().serve_streams(read, theirs, stop.clone()));
        let (mut lines, mut input) = (BufReader::new(ours).lines(), input);
        for line in [
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        ] {
            input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        }
        lines.next_line().await.unwrap().unwrap();
        for id in 1..=50 {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/list\"}}\n");
            input.write_all(line.as_bytes()).await.unwrap();
        }
        match closes {
            true => drop(input),
            false => stop.cancel(),
        }
        served.await.unwrap().unwrap();
    }
}

/// Returns the answer to a line that a client writes after its initialisation.
async fn answer_to(line: &str) -> String {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (read, write) = tokio::io::split(theirs);
    tokio::spawn(Bench::new().server().serve_streams(read, write, CancellationToken::new()));
    let (read, mut write) = tokio::io::split(ours);
    let mut lines = BufReader::new(read).lines();
    for line in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        line,
    ] {
        write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }
    lines.next_line().await.unwrap().unwrap();
    lines.next_line().await.unwrap().unwrap()
}

/// Spec: Q10. Half a surrogate pair is no character, and no reason to leave a client without an answer.
#[tokio::test]
async fn half_a_surrogate_pair_is_answered() {
    let answer = answer_to(
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"clerk","arguments":{"input":"sweep \ud83d"}}}"#,
    );
    let answer = answer.await;
    assert!(answer.contains("did: sweep \u{fffd}"), "{answer}");
}

/// Spec: Q10
#[tokio::test]
async fn arguments_must_be_an_object() {
    for (method, code) in [("tools/call", -32602), ("tools/cull", -32601)] {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":2,"method":"{method}","params":{{"name":"clerk","arguments":[1]}}}}"#
        );
        let answer: Value = serde_json::from_str(&answer_to(&line).await).unwrap();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(2), &json!(code)),
            "{answer}"
        );
    }
}

/// Spec: Q10
#[tokio::test]
async fn misfit_calls_start_nothing() {
    let bench = Bench::new();
    let client = bench.client().await;
    for (arguments, why) in [
        (json!({}), "input.invalid: input is required, or run"),
        (json!({"input": null}), "input.invalid: input is required, or run"),
        (json!({"input": {"text": "a"}}), "input.invalid: input must be a string"),
        (json!({"input": "a", "run": "b"}), "input.invalid: give `input` to start a run, or `run`"),
        (json!({"run": 3}), "input.invalid: run must be the id of a run"),
        (json!({"inptu": "a"}), "input.invalid: the arguments are `input`, or `run`"),
    ] {
        let (is_error, text, said) = call(&client, arguments).await;
        assert!(is_error && text.starts_with(why), "{text}");
        assert_eq!(said["error"]["effect"], "none");
    }
    let unknown = rmcp::model::CallToolRequestParams::new("clrk");
    let error = client.call_tool(unknown).await.unwrap_err().to_string();
    assert!(error.contains("unknown tool `clrk`; tools: clerk"), "{error}");
    assert!(bench.log.runs(RunFilter::new()).await.unwrap().is_empty());
}

/// Spec: Q10. A run that waits for an approval is answered with its id, and a later call gets the result, also
/// from another server.
#[tokio::test]
async fn waiting_run_is_asked_for_later() {
    let bench = Bench::new();
    let client = bench.client().await;
    let (is_error, text, said) = call(&client, json!({"input": "pay"})).await;
    let run = said["run"].as_str().unwrap().to_owned();
    assert!(
        !is_error && text.contains("waits for a person's approval") && text.contains(&run),
        "{text}"
    );
    assert_eq!(said["outcome"], "waiting_approval");
    let (_, text, _) = call(&client, json!({"run": run})).await;
    assert!(text.contains("waits for a person's approval"), "it still does: {text}");

    let open = bench.log.open_approvals().await.unwrap();
    assert_eq!(open.len(), 1);
    let approved = bench.log.decide(&open[0].id, Decision::approve("ops"), Timestamp::default());
    assert!(approved.await.unwrap());
    let other = bench.client().await;
    let (is_error, text, said) = call(&other, json!({"run": run})).await;
    assert_eq!((is_error, text.as_str()), (false, "done"));
    assert_eq!(said["run"], run.as_str());
    let again = call(&client, json!({"run": run})).await;
    assert_eq!(again.1, "done");
    assert_eq!(bench.paid.load(Ordering::SeqCst), 1);

    let (is_error, text, _) = call(&client, json!({"run": "run_nowhere"})).await;
    assert!(is_error, "{text}");
}

/// Spec: Q10. A long run is answered with its id before the client gives up.
#[tokio::test]
async fn long_run_is_asked_for_until_done() {
    let bench = Bench::new();
    let client = bench.client().await;
    let (is_error, text, said) = call(&client, json!({"input": "slow"})).await;
    let run = said["run"].as_str().unwrap().to_owned();
    assert!(!is_error && text.contains("is still at work"), "{text}");
    assert_eq!(said["outcome"], "running");
    let last = loop {
        let (_, text, said) = call(&client, json!({"run": run})).await;
        if said["outcome"] != "running" {
            break text;
        }
    };
    assert_eq!(last, "late");
    assert_eq!(bench.asked.load(Ordering::SeqCst), 1, "it is one run");
}

/// Spec: Q10. A run that ended here is reopened in another process.
#[tokio::test]
async fn ended_run_is_read_from_its_record() {
    for input in ["cut", "fail"] {
        let bench = Bench::new();
        let client = bench.client().await;
        let mut meta = RequestMetaObject::default();
        meta.insert("backstop/idempotency-key".into(), json!("order-7"));
        let mut keyed = params(json!({"input": input}));
        keyed.meta = Some(meta);
        let first = shown(client.call_tool(keyed.clone()).await.unwrap());
        let run = first.2["run"].as_str().unwrap().to_owned();
        let again = call(&client, json!({"run": run})).await;
        assert_eq!(again, first, "nothing became of it since");
        let reopening = ReopenRequest::new(run.as_str()).by("ops").message("finish");
        bench.clerk().reopen(reopening).await.unwrap();
        let (is_error, text, said) = call(&client, json!({"run": run})).await;
        assert_eq!((is_error, text.as_str()), (false, "done"), "{input}");
        assert_eq!(said["outcome"], "completed");
        let keyed = shown(client.call_tool(keyed).await.unwrap());
        assert_eq!(keyed.1, "done", "{input}");
    }
}

/// Spec: Q10. A call that is made again with its key is answered with the first one's run.
#[tokio::test]
async fn key_makes_a_call_once() {
    let bench = Bench::new();
    let client = bench.client().await;
    let keyed = |input: &str| {
        let mut meta = RequestMetaObject::default();
        meta.insert("backstop/idempotency-key".into(), json!("order-7"));
        let mut params = params(json!({"input": input}));
        params.meta = Some(meta);
        params
    };
    let first = shown(client.call_tool(keyed("sweep")).await.unwrap());
    let second = shown(client.call_tool(keyed("sweep")).await.unwrap());
    assert_eq!(first, second);
    assert_eq!(bench.asked.load(Ordering::SeqCst), 1);
    let (is_error, text, said) = shown(client.call_tool(keyed("mop")).await.unwrap());
    assert!(is_error, "{text}");
    assert_eq!(said["error"]["code"], "input.key_reused");
    assert!(text.contains("a start with this key had another input"), "{text}");
}

/// Spec: Q10. A client that gives up a call which only asks for a run does not end it.
#[tokio::test]
async fn cancel_of_a_poll_leaves_the_run() {
    let bench = Bench::new();
    let client =
        crate::bench::connect(bench.server().answer_within(std::time::Duration::from_millis(50)))
            .await;
    let (_, _, answer) = call(&client, json!({"input": "hang"})).await;
    let run = answer["run"].as_str().unwrap().to_owned();
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params(json!({"run": run}))));
    let sent =
        client.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
    sent.cancel(Some("never mind".into())).await.unwrap();
    let (_, _, answer) = call(&client, json!({"run": run})).await;
    assert_eq!(answer["run"], *run, "it is at work yet: {answer}");
    let summary = bench.log.summary(&run.as_str().into()).await.unwrap().unwrap();
    assert!(summary.is_open(), "{summary:?}");
}

/// Spec: Q10. The client's cancel stops the run.
#[tokio::test]
async fn cancel_of_the_client_stops_the_run() {
    let bench = Bench::new();
    let client =
        crate::bench::connect(bench.server().answer_within(std::time::Duration::from_secs(600)))
            .await;
    let request =
        ClientRequest::CallToolRequest(CallToolRequest::new(params(json!({"input": "hang"}))));
    let sent =
        client.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
    while bench.asked.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    sent.cancel(Some("never mind".into())).await.unwrap();
    let run = loop {
        let runs = bench.log.runs(RunFilter::new()).await.unwrap();
        if let Some(run) = runs.into_iter().find(|run| !run.is_open()) {
            break run;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(run.outcome, Some(Outcome::Cancelled));
    let (_, text, _) = call(&client, json!({"input": "sweep"})).await;
    assert_eq!(text, "did: sweep", "the next call works");
}
