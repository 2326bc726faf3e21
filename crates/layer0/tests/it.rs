//! Checks of the contract: codes, facts, event formats.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "it/written.rs"]
mod written;

use std::collections::BTreeSet;
use std::time::Duration;

use layer0::error::{BoxError, EnvError, OperatorError, OrchError, StateError};
use layer0::event::{Actor, EVENT_TYPES, Event, EventKind, Hash, Salt, Shape, event_fields};
use layer0::failure::{Effect, Exhausted, Failure, Retry, Seconds, chain, sources};
use layer0::message::{Message, ToolCall};
use layer0::{Timestamp, code};
use serde_json::{Value, json};

/// Spec: E9. Removing or renaming a code breaks people.
#[test]
fn the_catalogue_is_what_it_was() {
    let codes: Vec<&str> = code::CATALOGUE.iter().map(|entry| entry.code).collect();
    insta::assert_snapshot!(codes.join("\n"));
    assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), codes.len(), "codes are unique");
    for entry in code::CATALOGUE {
        assert!(entry.meaning.ends_with('.') && !entry.advice.is_empty(), "{}", entry.code);
    }
}

fn box_error() -> BoxError {
    "inner".into()
}

/// Spec: E6, E9. Each variant's facts.
#[test]
fn every_variant_states_its_facts() {
    let operator: Vec<Box<dyn Failure>> = vec![
        Box::new(OperatorError::model(OperatorError::Retryable("x".into()))),
        Box::new(OperatorError::sub_dispatch("a", OrchError::OperatorNotFound("b".into()))),
        Box::new(OperatorError::cannot_dispatch("a", "no orchestrator")),
        Box::new(OperatorError::ContextAssembly("x".into())),
        Box::new(OperatorError::Retryable("x".into())),
        Box::new(OperatorError::NonRetryable("x".into())),
        Box::new(OperatorError::from_failure(StateError::WriteFailed("x".into()))),
        Box::new(OperatorError::Other(box_error())),
        Box::new(OrchError::OperatorNotFound("x".into())),
        Box::new(OrchError::WorkflowNotFound("x".into())),
        Box::new(OrchError::DispatchFailed("x".into())),
        Box::new(OrchError::DeadlinePassed("x".into())),
        Box::new(OrchError::TooDeep("x".into())),
        Box::new(OrchError::Panicked("x".into())),
        Box::new(OrchError::Shutdown("x".into())),
        Box::new(OrchError::SignalFailed("x".into())),
        Box::new(OrchError::OperatorError(OperatorError::Retryable("x".into()))),
        Box::new(OrchError::Other(box_error())),
        Box::new(StateError::not_found("scope", "key")),
        Box::new(StateError::conflict(&layer0::Scope::Global, "key", Some(7))),
        Box::new(StateError::InvalidKey("it is empty".into())),
        Box::new(StateError::too_large(2, 1)),
        Box::new(StateError::WriteFailed("x".into())),
        Box::new(StateError::Serialization("x".into())),
        Box::new(StateError::Other(box_error())),
        Box::new(EnvError::ProvisionFailed("x".into())),
        Box::new(EnvError::IsolationViolation("x".into())),
        Box::new(EnvError::NetworkDenied("x".into())),
        Box::new(EnvError::CredentialFailed("x".into())),
        Box::new(EnvError::ResourceExceeded("x".into())),
        Box::new(EnvError::OperatorError(OperatorError::NonRetryable("x".into()))),
        Box::new(EnvError::Other(box_error())),
    ];
    let rows: Vec<String> = operator
        .iter()
        .map(|error| {
            format!(
                "{:<28} {:<8} {:<8} {error}",
                error.code(),
                format!("{:?}", error.retry()),
                format!("{:?}", error.effect())
            )
        })
        .collect();
    insta::assert_snapshot!(rows.join("\n"));
    for error in &operator {
        let text = error.to_string();
        assert!(
            !text.ends_with('.') && !text.contains('\n') && !text.starts_with(char::is_uppercase),
            "{text}"
        );
        assert!(code::find(error.code()).is_some(), "{} is in the catalogue", error.code());
    }
}

/// Spec: E1. Errors travel in every `Result`, so they stay small.
#[test]
fn errors_are_at_most_64_bytes() {
    assert!(size_of::<OperatorError>() <= 64, "{}", size_of::<OperatorError>());
    assert!(size_of::<OrchError>() <= 64);
    assert!(size_of::<StateError>() <= 64);
    assert!(size_of::<EnvError>() <= 64);
}

/// Spec: E5, E7. No text repeats its source, and the source is the error inside.
#[test]
fn wrappers_lead_to_the_error_inside() {
    let inner = OrchError::from(OperatorError::Retryable("queue is full".into()));
    let error = EnvError::from(OperatorError::sub_dispatch("worker", inner));
    assert_eq!(
        chain(&error),
        [
            "operator failed",
            "sub-dispatch to `worker` failed: operator.retryable",
            "operator failed",
            "queue is full"
        ]
    );
    assert!(sources(&error).nth(2).unwrap().is::<OrchError>(), "a caller can downcast to it");
    assert_eq!((error.code(), error.retry()), ("operator.retryable", Retry::Backoff));
}

/// Spec: E8, R9
#[test]
fn giving_up_keeps_code_and_forbids_retry() {
    let last = OrchError::from(OperatorError::Retryable("busy".into()));
    let exhausted = Exhausted::new(3, Duration::from_secs(2), last);
    let error = OrchError::from(exhausted);
    assert_eq!(
        (error.code(), error.retry(), error.effect()),
        ("operator.retryable", Retry::Never, Effect::None)
    );
    assert!(sources(&error).any(|cause| cause.is::<Exhausted<OrchError>>()));
    assert!(chain(&error).contains(&"gave up after 3 attempts".to_owned()));
}

#[test]
fn durations_read_as_people_write_them() {
    let shown = |ms| Seconds(Duration::from_millis(ms)).to_string();
    assert_eq!(
        [shown(0), shown(250), shown(1_500), shown(4_347), shown(30_000)],
        ["0ms", "250ms", "1.5s", "4.347s", "30s"]
    );
}

/// Each event type can be read from its JSON, and the envelope has the format.
#[test]
fn events_are_read_back_as_written() {
    let samples = json!({
        "run.started": {"run": "run_1", "input": "x", "session": "s", "agent": {"name": "a", "digest": "d", "definition": {}}, "definition_digest": "dd", "root": "run_1", "parent": null, "follows": null,
            "machine": 1, "depth": 2, "allowance": {"model_calls": 3, "cost_nanousd": 4}, "deadline": null, "output_schema": {"type": "object"}, "mcp": [{"server": "s"}],
            "labels": {"tenant": "t"}, "trace_parent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "cause": {"subscription": "tell ops", "run": "run_0", "seq": 4, "length": 2}, "journal": "local", "key_id": "k"},
        "subscription.opened": {"name": "tell ops", "pattern": "run.failed", "follows": "sub_tell ops.1", "head": "00".repeat(32)},
        "behavior.delivered": {"behavior": "tell ops", "run": "run_1", "seq": 4, "event": "run.failed"},
        "behavior.completed": {"behavior": "tell ops", "run": "run_1", "seq": 4, "attempts": 1},
        "behavior.failed": {"behavior": "tell ops", "run": "run_1", "seq": 4, "attempts": 3, "exception_type": "ExitStatus", "reason": "behavior.failed", "message": "exit status 1"},
        "workflow.routed": {"step": "draft", "to": "review"},
        "signal.received": {"name": "input", "data": {"a": 1}, "cause": {"subscription": "tell ops", "run": "run_0", "seq": 4, "length": 1}},
        "operator.returned": {"operator": "worker", "run": "run_2", "outcome": "completed", "reason": null, "usage": {
            "model_calls": 1, "model_attempts": 1, "tool_calls": 0, "input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
            "cached_tokens": 0, "cost_usd": null, "wall_ms": 5}, "output": "42"},
        "operator.refused": {"operator": "worker", "step": "review/2", "reason": "budget.model_calls", "messages": ["m"]},
        "run.waiting": {"for": "approval", "approvals": ["apr_1"]},
        "run.parked": {"until": "2026-01-01T00:00:01.000Z", "reason": "provider.rate_limited", "message": "m"},
        "hook.passed": {"point": "after_model", "call_id": null},
        "tool.responded": {"call_id": "c", "tool": "t", "ok": false, "output": {"error": "e"}, "duration_ms": 1,
            "error": {"reason": "tool.timeout", "code": null, "message": "m", "error_id": "err_1"}},
        "model.attempted": {"call": 1, "attempt": 2, "provider": "p", "code": "provider.transient", "status": 503,
            "delay_ms": 7, "usage": {"input_tokens": 1, "output_tokens": 2, "cached_tokens": 0}, "cost_nanousd": 9,
            "next_provider": "q", "duration_ms": 8, "first_token_ms": 6, "request_id": "req_1"},
        "guard.tripped": {"reason": "guard.max_iterations", "guard": "max_iterations", "count": 1, "limit": 1, "message": "m"},
        "run.finished": {"outcome": "incomplete", "reason": "model.refusal", "message": "m", "output": "o", "usage": {
            "model_calls": 1, "model_attempts": 1, "tool_calls": 0, "input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
            "cached_tokens": 0, "cost_usd": null, "wall_ms": 5}},
    });
    for (event_type, data) in samples.as_object().unwrap() {
        let kind = EventKind::decode(event_type, &data.to_string()).unwrap();
        assert_eq!(kind.event_type(), event_type);
        let at = Timestamp::from_millis(1_767_225_600_001);
        let mut event = Event::new("run_1", 3, at, Actor::Runtime, kind);
        (event.salt, event.hash) = (Some(Salt([6; 16])), Hash([7; 32]));
        let text = serde_json::to_string(&event).unwrap();
        assert!(text.starts_with(&format!(
            r#"{{"run":"run_1","seq":3,"at":"2026-01-01T00:00:00.001Z","type":"{event_type}","actor":"runtime","caused_by":null,"schema":1,"data":{{"#
        )), "{text}");
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
        assert_eq!(serde_json::to_value(&event.kind).unwrap(), *data);
        let fields = event_fields(event_type).unwrap();
        assert_shape(event_type, data, Shape::Object(fields));
    }
    insta::assert_snapshot!(EVENT_TYPES.join("\n"));
}

/// Checks that a value has a shape, without additional fields.
fn assert_shape(path: &str, value: &Value, shape: Shape) {
    let at = |name: &str| format!("{path}.{name}");
    match (shape, value) {
        (Shape::Any, _) | (_, Value::Null) => {}
        (Shape::Object(fields), Value::Object(values)) => {
            for (name, value) in values {
                let field = fields.iter().find(|(field, _)| field == name);
                assert_shape(&at(name), value, field.unwrap_or_else(|| panic!("{}", at(name))).1);
            }
        }
        (Shape::Map(shape), Value::Object(values)) => {
            values.iter().for_each(|(name, value)| assert_shape(&at(name), value, *shape));
        }
        (Shape::List(shape), Value::Array(values)) => {
            values.iter().for_each(|value| assert_shape(path, value, *shape));
        }
        (Shape::Time, Value::String(text)) => assert!(text.parse::<Timestamp>().is_ok(), "{path}"),
        (Shape::Boolean, Value::Bool(_))
        | (Shape::Number, Value::Number(_))
        | (Shape::Text, Value::String(_)) => {}
        (Shape::Count, Value::Number(number)) => assert!(number.is_u64(), "{path}"),
        _ => panic!("{path}: {value} is not {shape:?}"),
    }
}

#[test]
fn what_is_no_event_is_an_error() {
    assert!(EventKind::decode("run.dreamt", "{}").unwrap_err().to_string().contains("run.dreamt"));
    assert!(EventKind::decode("run.resumed", "{}").is_err());
    assert!(serde_json::from_str::<Event>("{}").is_err());
}

#[test]
fn messages_have_the_shape_of_the_format() {
    let call = ToolCall::new("c1", "sql", json!({"q": 1}));
    let shown = |message: Message| serde_json::to_value(message).unwrap();
    assert_eq!(shown(Message::user("hi")), json!({"role": "user", "content": "hi"}));
    assert_eq!(
        shown(Message::assistant("", [call].into())),
        json!({"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "sql", "arguments": {"q": 1}}]})
    );
    assert_eq!(
        shown(Message::tool("c1".into(), "no", true)),
        json!({"role": "tool", "tool_call_id": "c1", "content": "no", "is_error": true})
    );
    assert_eq!(
        shown(Message::tool("c1".into(), "yes", false)),
        json!({"role": "tool", "tool_call_id": "c1", "content": "yes"})
    );
}
