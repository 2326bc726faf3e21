//! What holds for every scenario, and what single ones show beyond events and output.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::played::{Played, failing, named, passing};

fn everything() -> impl Iterator<Item = &'static Played> {
    passing().iter().chain(failing())
}

/// Has the run no end: it waits for a person, or its log failed?
fn is_open(played: &Played) -> bool {
    played.json["outcome"] == "waiting_approval" || played.json["reason"] == "log.append_failed"
}

fn count(played: &Played, event_type: &str) -> usize {
    played.data_of(event_type).len()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// Spec: D1
#[test]
fn events_are_numbered_and_caused_by_earlier_ones() {
    for played in everything() {
        let name = &played.name;
        for (index, event) in played.events().iter().enumerate() {
            assert_eq!(number(&event["seq"]), index as u64 + 1, "{name}");
            match event["caused_by"].as_u64() {
                None => {
                    // A store's degradation belongs to no single call, a signal comes from outside.
                    let alone = index == 0
                        || event["type"] == "error_store.degraded"
                        || event["type"] == "warning"
                        || event["actor"] == "memory"
                        || event["type"] == "run.reopened"
                        || event["type"] == "run.resumed"
                        || event["type"] == "signal.received";
                    assert!(alone, "{name}: {event}");
                }
                Some(cause) => assert!((1..=index as u64).contains(&cause), "{name}: {event}"),
            }
        }
    }
}

/// Spec: H1
#[test]
fn run_has_one_first_and_last_event() {
    for played in everything().filter(|played| !is_open(played)) {
        let types = played.event_types();
        let ends =
            types.iter().filter(|event| matches!(**event, "run.finished" | "run.failed")).count();
        let starts = types.iter().filter(|event| **event == "run.started").count();
        // One end for each episode.
        let episodes = 1 + types.iter().filter(|event| **event == "run.reopened").count();
        assert_eq!((starts, ends), (1, episodes), "{}", played.name);
        let last = *types.last().unwrap();
        let failed = played.json["outcome"] == "failed";
        assert_eq!(types[0], "run.started", "{}", played.name);
        assert_eq!(last, if failed { "run.failed" } else { "run.finished" }, "{}", played.name);
    }
}

/// Spec: T2
#[test]
fn every_call_begins_once_and_has_one_answer() {
    for played in everything() {
        let asked = played.data_of("model.responded").into_iter().flat_map(|responded| {
            responded["tool_calls"].as_array().unwrap().iter().map(|call| &call["id"])
        });
        let asked: Vec<&str> = asked.map(|id| id.as_str().unwrap()).collect();
        let ids = |event_type| -> Vec<&str> {
            let data = played.data_of(event_type).into_iter();
            data.map(|data| data["call_id"].as_str().unwrap()).collect()
        };
        let (began, answered) = (ids("tool.requested"), ids("tool.responded"));
        let set = |ids: &[&str]| ids.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        assert_eq!(set(&asked).len(), asked.len(), "{}: ids are unique", played.name);
        assert!(set(&answered).is_subset(&set(&asked)), "{}", played.name);
        if !is_open(played) {
            assert_eq!(asked.len(), answered.len(), "{}", played.name);
        }
        assert_eq!(set(&began).len(), began.len(), "{}", played.name);
        for answer in played.data_of("tool.responded") {
            assert_eq!(answer["ok"] == true, answer["error"].is_null(), "{}", played.name);
        }
    }
}

/// Spec: T3, T4, T6
#[test]
fn model_reads_answers_in_call_order() {
    for played in everything() {
        for request in played.requests() {
            let messages = request["messages"].as_array().unwrap();
            let mut open: Vec<&str> = Vec::new();
            for message in messages {
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    open.push(call["id"].as_str().unwrap());
                }
                if message["role"] != "tool" {
                    continue;
                }
                let id = message["tool_call_id"].as_str().unwrap();
                assert_eq!(open.remove(0), id, "{}: in call order", played.name);
                let answers = played.data_of("tool.responded").into_iter();
                let answer = answers.into_iter().find(|answer| answer["call_id"] == id).unwrap();
                let is_error = message["is_error"] == true;
                assert_eq!(is_error, answer["ok"] == false, "{} {id}", played.name);
                let shown = if is_error { &answer["output"]["error"] } else { &answer["output"] };
                let text = shown.as_str().map_or_else(|| shown.to_string(), ToOwned::to_owned);
                let content = message["content"].as_str().unwrap();
                // What repeats itself ends with a line that the record has not.
                let note = content.strip_prefix(&*text).unwrap_or("it is another text");
                assert!(
                    note.is_empty() || note.starts_with("\nNote: this call was made "),
                    "{} {id}: {content}",
                    played.name
                );
            }
            assert!(open.is_empty(), "{}: unanswered: {open:?}", played.name);
        }
    }
}

/// Spec: T13
#[test]
fn the_tool_list_never_changes_inside_a_run() {
    for played in everything() {
        let Some(first) = played.requests().first() else { continue };
        for request in played.requests() {
            assert_eq!(request["tools"], first["tools"], "{}", played.name);
        }
        let digests = played.data_of("model.requested");
        assert!(
            digests.iter().all(|data| data["tools_digest"] == digests[0]["tools_digest"]),
            "{}",
            played.name
        );
    }
    let tools = &named("tools_list_stays").requests()[0]["tools"];
    assert_eq!(*tools, serde_json::json!(["b", "a", "c", "get_error_detail", "get_tool_result"]));
}

/// Spec: S7
#[test]
fn detail_tool_needs_tools_and_a_store() {
    for played in everything() {
        let has_store =
            !matches!(played.scenario.error_store.fail, Some(backstop_config::StoreFault::None));
        for request in played.requests() {
            let tools = request["tools"].as_array().unwrap();
            let has_tool = tools.iter().any(|tool| tool == "get_error_detail");
            let scenario = &played.scenario;
            let has_own = !scenario.tools.is_empty() || !scenario.operator.is_empty();
            assert_eq!(has_tool, has_store && has_own, "{}", played.name);
        }
    }
}

/// Spec: R8
#[test]
fn attempts_are_counted_and_each_is_one_request() {
    for played in everything() {
        let (name, usage) = (&played.name, &played.json["usage"]);
        let attempts = played.data_of("model.attempted");
        // What it dispatched and has returned counts for a run too.
        let below = played.runs().iter().filter(|run| {
            run["parent"] == played.json["run"] && run["outcome"] != "waiting_approval"
        });
        let below: Vec<&Value> = below.map(|run| &run["usage"]).collect();
        let own = |key: &str| {
            number(&usage[key]) - below.iter().map(|usage| number(&usage[key])).sum::<u64>()
        };
        assert_eq!(own("model_attempts"), attempts.len() as u64, "{name}");
        // An open circuit refuses an attempt without a request.
        let refused = attempts.iter().filter(|data| data["code"] == "provider.circuit_open");
        assert_eq!(played.requests().len() + refused.count(), attempts.len(), "{name}");
        let sum = |key: &str| -> u64 {
            attempts.iter().map(|data| data["usage"][key].as_u64().unwrap_or(0)).sum()
        };
        for key in ["input_tokens", "output_tokens", "cached_tokens"] {
            assert_eq!(own(key), sum(key), "{name}");
        }
        let total = sum("input_tokens") + sum("output_tokens");
        assert_eq!(own("total_tokens"), total, "{name}");
        let begun = count(played, "tool.requested") + count(played, "tool.attempted");
        assert_eq!(own("tool_calls"), begun as u64, "{name}");
        // While a person decides and while it is parked, a run's time stands still.
        if count(played, "approval.requested") + count(played, "run.parked") == 0 {
            assert_eq!(usage["wall_ms"], played.json["elapsed_ms"], "{name}");
        }
    }
    for (name, input, output) in
        [("model_retried", 30, 3), ("model_failed_attempts_billed", 200, 12)]
    {
        let usage = &named(name).json["usage"];
        let billed = (number(&usage["input_tokens"]), number(&usage["output_tokens"]));
        assert_eq!(billed, (input, output), "{name}");
    }
}

/// Spec: R7
#[test]
fn open_circuit_is_waited_for_once() {
    let played = named("model_breaker");
    assert_eq!(played.requests().len(), 6);
    let attempts = played.data_of("model.attempted");
    assert_eq!(attempts[5]["code"], "provider.circuit_open");
    let wait = number(&attempts[5]["delay_ms"]);
    assert!((30_000..33_000).contains(&wait), "{wait}");
    assert_eq!(number(&played.json["elapsed_ms"]), wait);
}

/// Spec: R8
#[test]
fn delay_is_stated_where_an_attempt_follows() {
    for played in everything() {
        let types = played.event_types();
        for (event, next) in played.events().iter().zip(types.iter().skip(1)) {
            if event["type"] == "model.attempted" {
                let data = &event["data"];
                // What is parked waits for its next attempt without a process.
                let follows = *next == "model.attempted" || *next == "run.parked";
                assert_eq!(data["delay_ms"].is_null(), !follows, "{} {event}", played.name);
            }
        }
    }
}

/// Spec: E8
#[test]
fn chain_says_gave_up_where_retries_ended() {
    #[track_caller]
    fn check(name: &str, chain: &[&str]) {
        let played = named(name);
        assert_eq!(played.json["error"]["chain"], serde_json::json!(chain));
        let failed = played.data_of("model.failed")[0];
        assert_eq!(failed["chain"], played.json["error"]["chain"]);
        let attempts = played.data_of("model.attempted").into_iter();
        let attempts = attempts.filter(|attempted| attempted["call"] == failed["call"]).count();
        assert_eq!(number(&failed["attempts"]), attempts as u64);
    }
    check("model_gave_up", &["gave up after 3 attempts", "rate limited: scripted rate limit"]);
    check("model_gave_up_midway", &["gave up after 2 attempts", "scripted transient error"]);
    check("model_attempts", &["gave up after 1 attempts", "scripted transient error"]);
    check("model_deadline", &["gave up after 2 attempts", "rate limited: scripted rate limit"]);
    check("model_retry_budget", &["gave up after 2 attempts", "scripted transient error"]);
    check("model_retry_after_too_long", &["rate limited: scripted rate limit"]);
    check("model_retry_after_limit", &["rate limited: scripted rate limit"]);
    check("model_quota", &["quota exhausted: scripted quota"]);
    check("model_auth", &["authentication failed: scripted refusal of the key"]);
}

/// Spec: R2, R3
#[test]
fn waits_keep_to_their_bounds() {
    #[track_caller]
    fn check(name: &str, bounds: &[(u64, u64)]) {
        let played = named(name);
        let attempts = played.data_of("model.attempted");
        let waits: Vec<u64> =
            attempts.iter().filter_map(|attempt| attempt["delay_ms"].as_u64()).collect();
        assert_eq!(waits.len(), bounds.len(), "{waits:?}");
        for (wait, (least, most)) in waits.iter().zip(bounds) {
            assert!((*least..=*most).contains(wait), "{waits:?}");
        }
        let elapsed = number(&played.json["elapsed_ms"]);
        assert_eq!(elapsed, waits.iter().sum::<u64>(), "waits are real time");
    }
    check("model_retried", &[(0, 500), (0, 1_000)]);
    check("model_retry_after", &[(1_500, 1_650), (2_000, 2_200)]);
    check("model_retry_after_too_long", &[]);
    check("model_retry_after_limit", &[(1_000, 1_100)]);
    check("model_deadline", &[(3_000, 3_300)]);
}

/// Spec: T6, T7
#[test]
fn tools_run_until_their_timeout() {
    #[track_caller]
    fn check(name: &str, elapsed_ms: u64) {
        assert_eq!(number(&named(name).json["elapsed_ms"]), elapsed_ms, "{name}");
    }
    check("tools_batch", 300);
    check("tools_batch_one_fails", 200);
    check("tools_batch_in_turns", 200);
    check("tools_timeout", 5_000);
    check("tools_timeout_of_the_agent", 250);
}

/// Spec: T6, G4
#[test]
fn too_large_batch_runs_nothing() {
    let played = named("tools_batch_too_large");
    assert_eq!(played.json["usage"]["tool_calls"], 0);
    for answer in played.data_of("tool.responded") {
        assert_eq!(answer["error"]["reason"], "tool.cancelled");
    }
}

/// Spec: T3, S7
#[test]
fn tool_failures_have_their_codes() {
    #[track_caller]
    fn check(name: &str, failures: &[(&str, Option<&str>)]) {
        let played = named(name);
        let actual: Vec<(&str, Option<&str>)> = played
            .data_of("tool.responded")
            .into_iter()
            .filter(|answer| answer["ok"] == false)
            .map(|answer| &answer["error"])
            .map(|error| (error["reason"].as_str().unwrap(), error["code"].as_str()))
            .collect();
        assert_eq!(actual, failures);
    }
    check("tools_other_arguments", &[("tool.execution_failed", Some("SQL_ERROR"))]);
    check("tools_not_found", &[("tool.not_found", None)]);
    check("tools_permission_denied", &[("tool.permission_denied", None)]);
    check("tools_invalid_input", &[("tool.invalid_input", None), ("tool.invalid_input", None)]);
    check("tools_malformed_arguments", &[("tool.invalid_input", None)]);
    check("tools_timeout", &[("tool.timeout", None)]);
    check("tools_panic", &[("tool.panicked", None)]);
    check("tools_invalid_output", &[("tool.invalid_output", None)]);
    check("errors_unknown_id", &[("tool.execution_failed", Some("ERROR_NOT_FOUND"))]);
    check("errors_id_is_no_string", &[("tool.invalid_input", Some("INVALID_INPUT")); 2]);
    check("errors_store_unreadable", &[("tool.execution_failed", Some("DATABASE_ERROR"))]);
}

/// Spec: T14
#[test]
fn calls_of_unknown_outcome_are_probed() {
    #[track_caller]
    fn check(name: &str, verdict: &str, executions: usize, answer: &str) {
        let played = named(name);
        assert_eq!(played.data_of("tool.probed")[0]["verdict"], verdict, "{name}");
        let begun = count(played, "tool.requested") + count(played, "tool.attempted");
        assert_eq!(begun, executions, "{name}");
        let text = played.tool_messages()[0].1;
        assert!(text.ends_with(answer), "{name}: {text}");
    }
    check("tools_probe_happened", "happened", 1, "{\"receipt\":12}");
    check("tools_probe_did_not", "did_not", 1, "\nIt did not happen; may be called again.");
    check("tools_probe_is_final", "did_not", 2, "paid");
    check("tools_probe_unknown", "unknown", 1, "]");
}

/// Spec: S1, S4, S5, S8
#[test]
fn stored_errors_are_bounded_told_and_counted() {
    for played in everything() {
        let stored = played.json["errors"].as_array().unwrap();
        let noted: BTreeSet<&str> = played
            .data_of("error.stored")
            .into_iter()
            .map(|data| data["error_id"].as_str().unwrap())
            .collect();
        let rows: BTreeSet<&str> =
            stored.iter().map(|error| error["id"].as_str().unwrap()).collect();
        assert_eq!(noted, rows, "{}", played.name);
        let seen: u64 = stored.iter().map(|error| number(&error["occurrences"])).sum();
        assert_eq!(seen, count(played, "error.stored") as u64, "{}", played.name);
        for error in stored {
            let summary = error["summary"].as_str().unwrap();
            assert!(summary.chars().count() <= 100, "{}: {summary}", played.name);
            assert!(!summary.contains(char::is_control), "{}: {summary}", played.name);
            assert!(error["raw"].is_object(), "{}: {error}", played.name);
        }
        for answer in played.data_of("tool.responded") {
            if let Some(id) = answer["error"]["error_id"].as_str() {
                let text = answer["output"]["error"].as_str().unwrap();
                assert!(text.contains(&format!("\n[Error ID: {id}]")), "{}: {text}", played.name);
            }
        }
    }
}

/// Spec: S6
#[test]
fn storeless_model_reads_500_characters() {
    let head = |name: &str| named(name).tool_messages()[0].1.to_owned();
    let error = "0---------1---------2---------3---------4---------5---------6---------\
                 7---------8---------9---------";
    let error = error.repeat(5);
    assert_eq!(error.len(), 500);
    for (name, prefix) in [
        ("errors_store_locked", "Tool error: SQL_ERROR - "),
        ("errors_store_disk_full", "Error: "),
        ("errors_store_closed", "Error: "),
        ("errors_store_none", "Tool error: SQL_ERROR - "),
    ] {
        let cut = "[Cut: 500 of 600 characters shown; the rest was not kept]";
        assert_eq!(head(name), format!("{prefix}{error}\n{cut}"), "{name}");
    }
}

/// Spec: S9, E10
#[test]
fn no_key_is_left_anywhere() {
    let played = named("errors_key_redacted");
    let json = played.json.to_string();
    assert!(!json.contains("canary"), "{json}");
    assert!(json.matches("[redacted]").count() >= 4, "{json}");
}

/// Spec: G6, P9
#[test]
fn asking_again_is_no_model_call() {
    for (name, calls, attempts) in [
        ("model_empty_once", 1, 2),
        ("model_empty_twice", 1, 2),
        ("model_malformed_once", 1, 2),
        ("model_malformed_twice", 1, 2),
        ("model_pause", 1, 2),
        ("model_pauses_for_ever", 1, 6),
        ("model_context_exceeded", 1, 1),
    ] {
        let usage = &named(name).json["usage"];
        let actual = (number(&usage["model_calls"]), number(&usage["model_attempts"]));
        assert_eq!(actual, (calls, attempts), "{name}");
    }
}

/// Spec: D2, E10
#[test]
fn run_started_holds_the_resolved_agent() {
    let started = named("run_completed").data_of("run.started")[0];
    assert_eq!(started["input"], "What is 40 + 2?");
    assert_eq!(started["session"], "s-1");
    assert_eq!(started["parent"], Value::Null);
    let agent = &started["agent"];
    assert_eq!(agent["name"], "calculator");
    assert_eq!(agent["definition"]["instructions"], "Answer with a number.");
    assert_eq!(agent["definition"]["limits"]["max_iterations"], 25);
    assert_eq!(agent["definition"]["runtime"]["retry"]["attempts"], 3);
}

/// Spec: H1
#[test]
fn an_empty_question_reaches_no_model() {
    let played = named("run_empty_input");
    assert!(played.requests().is_empty());
    assert_eq!(played.json["usage"]["model_calls"], 0);
}
