//! A rehearsal as text that a person can check line by line, without what differs each time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use layer0::JsonText;
use regex::{Captures, Regex};
use serde_json::Value;

use crate::support::played::Played;

/// What is told of each event, in this order; what is null is left out.
const TOLD: &[(&str, &[&str])] = &[
    ("run.started", &["input"]),
    ("run.finished", &["outcome", "reason", "message"]),
    ("run.failed", &["reason", "chain"]),
    ("model.requested", &["call", "messages"]),
    ("model.attempted", &["call", "attempt", "code", "status", "delay_ms"]),
    ("model.responded", &["call", "text", "stop_reason"]),
    ("model.failed", &["call", "reason", "chain", "attempts"]),
    ("tool.requested", &["call_id", "tool", "arguments", "execution"]),
    ("tool.responded", &["call_id", "tool", "ok", "duration_ms", "error"]),
    ("guard.tripped", &["reason", "guard", "count", "limit", "message"]),
    ("error.stored", &["error_id", "call_id", "tool", "code", "occurrences", "chars_kept"]),
    ("error_store.degraded", &["operation", "reason", "message"]),
    ("signal.received", &["name"]),
    ("memory.read", &["entries"]),
    ("memory.wrote", &["count"]),
    ("memory.degraded", &["operation", "reason", "message"]),
    ("result.stored", &["result_id", "call_id", "bytes"]),
    ("warning", &["message"]),
    ("budget.exhausted", &["reason", "dimension", "limit", "used"]),
    ("tool.attempted", &["call_id", "execution", "reason", "delay_ms"]),
    ("hook.failed", &["hook", "point", "call_id", "reason", "message", "fail_open"]),
    ("hook.aborted", &["hook", "point", "call_id", "reason", "message", "fail_open"]),
    ("run.waiting", &["approvals"]),
    ("approval.requested", &["approval_id", "call_id", "tool", "arguments", "expires_at"]),
    ("approval.granted", &["approval_id", "call_id", "by", "message", "arguments"]),
    ("approval.denied", &["approval_id", "call_id", "by", "reason", "message"]),
];

/// Tells events, what the model read of its tools, and the stored errors.
pub(crate) fn story(played: &Played) -> String {
    let mut story = String::new();
    for event in played.events() {
        let event_type = event["type"].as_str().unwrap();
        let cause = event["caused_by"].as_u64().map_or("-".to_owned(), |cause| cause.to_string());
        let actor = event["actor"].as_str().unwrap();
        write!(story, "{} {event_type} {actor} <-{cause}", event["seq"]).unwrap();
        let told = TOLD.iter().find(|(told, _)| *told == event_type).map(|(_, keys)| *keys);
        for key in told.unwrap_or_default() {
            let value = &event["data"][key];
            if !value.is_null() {
                write!(story, " {key}={}", sorted(value)).unwrap();
            }
        }
        story.push('\n');
    }
    if let Some(first) = played.requests().first() {
        writeln!(story, "\ntools: {}", sorted(&first["tools"])).unwrap();
    }
    for (id, text, is_error) in played.tool_messages() {
        let mark = if is_error { " error" } else { "" };
        writeln!(story, "{id}{mark}: {}", text.replace('\n', "\n    ")).unwrap();
    }
    for error in played.json["errors"].as_array().unwrap() {
        writeln!(story, "stored {}", sorted(error)).unwrap();
    }
    writeln!(story, "\noutput: {}", played.json["output"]).unwrap();
    writeln!(story, "elapsed: {} ms", played.json["elapsed_ms"]).unwrap();
    writeln!(story, "usage: {}", sorted(&played.json["usage"])).unwrap();
    same_ids(&story)
}

/// Writes JSON with sorted keys, whatever order serde_json keeps.
fn sorted(value: &Value) -> JsonText {
    JsonText::from(value)
}

/// Numbers the ids in order of appearance, and takes out the hashes that cover ids.
pub(crate) fn same_ids(text: &str) -> String {
    let ids = Regex::new(
        r"(?x)
        \b(?<kind>run|ses)_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b
        | \b(?<asked>apr)_[0-9a-f]{16}\b
        | \b(?<stored>err|res)_20260101_[0-9]{6}_[0-9a-f]{6}\b",
    )
    .unwrap();
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let numbered = ids.replace_all(text, |found: &Captures<'_>| {
        let kind =
            found.name("kind").or(found.name("stored")).or(found.name("asked")).unwrap().as_str();
        let number = || {
            let count = counts.entry(kind.to_owned()).or_default();
            *count += 1;
            format!("{kind}_#{count}")
        };
        known.entry(found[0].to_owned()).or_insert_with(number).clone()
    });
    let hashes = Regex::new(r#"("(?:hash|request_digest|salt)": ?)"[0-9a-f]+""#).unwrap();
    hashes.replace_all(&numbered, r#"$1"…""#).into_owned()
}
