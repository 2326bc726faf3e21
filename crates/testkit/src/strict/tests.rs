//! Each rule has a body that it refuses, as an edit of one that its endpoint accepts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::*;

/// The samples of an endpoint.
#[derive(Deserialize)]
struct Samples {
    path: String,
    /// Earlier answers of the endpoint, as a whole.
    said: Vec<Value>,
    /// A request that it accepts.
    takes: Value,
    rules: BTreeMap<String, Sample>,
}

/// A request that a rule refuses.
#[derive(Deserialize)]
struct Sample {
    #[serde(flatten)]
    edit: Edit,
    /// A similar request that is accepted.
    near: Option<Edit>,
}

/// Changes to the accepted request.
#[derive(Deserialize)]
struct Edit {
    /// Values by their JSON Pointers; the last step may be a new field or the next index.
    #[serde(default)]
    set: BTreeMap<String, Value>,
    #[serde(default)]
    remove: Vec<String>,
    /// Lists whose first item is repeated this many times.
    #[serde(default)]
    repeat: BTreeMap<String, usize>,
    /// Text to replace, and its replacement.
    raw: Option<(String, String)>,
}

impl Edit {
    fn apply(&self, taken: &Value) -> String {
        let mut body = taken.clone();
        for (pointer, value) in &self.set {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            match body.pointer_mut(parent) {
                Some(Value::Object(fields)) => drop(fields.insert(key.into(), value.clone())),
                Some(Value::Array(items)) => {
                    let index = key.parse::<usize>().unwrap();
                    match items.get_mut(index) {
                        Some(item) => *item = value.clone(),
                        None => items.push(value.clone()),
                    }
                }
                _ => panic!("{pointer} is nowhere"),
            }
        }
        for pointer in &self.remove {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            match body.pointer_mut(parent) {
                Some(Value::Object(fields)) => drop(fields.remove(key).unwrap()),
                Some(Value::Array(items)) => drop(items.remove(key.parse().unwrap())),
                _ => panic!("{pointer} is nowhere"),
            }
        }
        for (pointer, count) in &self.repeat {
            let items = body.pointer_mut(pointer).and_then(Value::as_array_mut).unwrap();
            let first = items[0].clone();
            items.resize(*count, first);
        }
        let text = body.to_string();
        match &self.raw {
            Some((from, to)) => text.replace(from, to),
            None => text,
        }
    }
}

fn samples(dialect: Dialect) -> Samples {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/wire/strict");
    let text = std::fs::read_to_string(format!("{folder}/{}.json", dialect.name())).unwrap();
    serde_json::from_str(&text).unwrap()
}

impl Samples {
    fn check(&self, dialect: Dialect, body: &str) -> Option<Refusal> {
        let mut said = Said::default();
        self.said.iter().for_each(|answer| said.remember(dialect, answer));
        check(dialect, &said, &self.path, body.as_bytes()).err()
    }
}

#[test]
fn rules_refuse_their_samples_and_nothing_near() {
    let mut wrong = Vec::new();
    for dialect in Dialect::ALL {
        let samples = samples(dialect);
        if let Some(refused) = samples.check(dialect, &samples.takes.to_string()) {
            wrong.push(format!("{}: {refused:?} refuses what is taken", dialect.name()));
        }
        for (id, sample) in &samples.rules {
            let refused = samples.check(dialect, &sample.edit.apply(&samples.takes));
            let by = refused.as_ref().map(|refusal| refusal.rule);
            if by != Some(id) {
                wrong.push(format!("{id}: refused by {refused:?}"));
            }
            let near = sample.near.as_ref().map(|near| near.apply(&samples.takes));
            if let Some(refused) = near.and_then(|near| samples.check(dialect, &near)) {
                wrong.push(format!("{id}: {refused:?} refuses what is near"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_rule_has_a_sample_and_a_source() {
    let mut wrong = Vec::new();
    let mut ids = Vec::new();
    for rule in rules::TABLES.into_iter().flatten() {
        let has_sample = samples(rule.dialects[0]).rules.contains_key(rule.id);
        if !has_sample || !rule.source.starts_with("https://") || ids.contains(&rule.id) {
            wrong.push(rule.id);
        }
        ids.push(rule.id);
    }
    assert!(wrong.is_empty(), "without sample or source, or twice: {wrong:?}");
    for dialect in Dialect::ALL {
        for id in samples(dialect).rules.keys() {
            let rule = rules(dialect).find(|rule| rule.id == id);
            let is_first = rule.is_some_and(|rule| rule.dialects[0] == dialect);
            assert!(is_first, "{} has a sample of {id}", dialect.name());
        }
    }
}

#[test]
fn refusals_have_the_form_of_their_endpoint() {
    let refused = |dialect: Dialect| {
        let samples = samples(dialect);
        let (_, sample) = samples.rules.first_key_value().unwrap();
        samples.check(dialect, &sample.edit.apply(&samples.takes)).unwrap().body
    };
    for (dialect, pointer) in [
        (Dialect::Anthropic, "/error/message"),
        (Dialect::Bedrock, "/message"),
        (Dialect::Gemini, "/error/status"),
        (Dialect::Mistral, "/message"),
        (Dialect::Ollama, "/error"),
        (Dialect::OpenAiChat, "/error/type"),
    ] {
        let body = refused(dialect);
        let text = body.pointer(pointer).and_then(Value::as_str);
        assert!(text.is_some_and(|text| !text.contains("{}")), "{body}");
    }
}

#[test]
fn broken_json_and_unknown_paths_are_refused() {
    let said = Said::default();
    let by = |path: &str, body: &[u8]| check(Dialect::OpenAiChat, &said, path, body).unwrap_err();
    assert_eq!(by("/v1/chat/completions", b"{\"model\":").rule, "every.json");
    let unknown = by("/v1/complete", b"{}");
    assert_eq!((unknown.rule, unknown.status), ("every.path", 404));
}
