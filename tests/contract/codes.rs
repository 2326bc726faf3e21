//! Which codes of the catalogue scenarios bring about.

use std::collections::BTreeSet;

use layer0::code::CATALOGUE;
use serde_json::Value;

use crate::support::played::{Played, failing, passing};

/// Where codes that no scenario can bring about are brought about: the tables of every error's
/// variants, and the tests of what scenarios have no words for.
const ELSEWHERE: &[&str] = &[
    "contract/snapshots/it__contract__facts__every_variant_states_its_facts.snap",
    "../crates/layer0/tests/snapshots/it__every_variant_states_its_facts.snap",
    "../crates/provider/tests/snapshots/it__every_variant_states_its_facts.snap",
    "../crates/tool/tests/snapshots/it__every_variant_states_its_facts.snap",
    "../crates/behaviors/tests/it/caused.rs",
    "../crates/mcp/src/error.rs",
    "../crates/mcp-server/tests/it/calls.rs",
    "../crates/behaviors/tests/it/failing.rs",
    "../crates/react/tests/it/budgets.rs",
    "../crates/react/tests/it/durable.rs",
    "../crates/react/tests/it/episodes.rs",
    "../crates/react/tests/it/expiry.rs",
    "../crates/react/tests/it/lost.rs",
    "../crates/react/tests/it/once.rs",
    "../crates/store-sqlite/tests/it/moved.rs",
    "durability/kill.rs",
    "../crates/react/tests/it/parts.rs",
    "../crates/react/tests/it/settling.rs",
    "../crates/react/tests/it/typed.rs",
];

/// Codes that stand in records of earlier versions alone.
const OF_EARLIER: &[&str] = &["budget.depth"];

/// Spec: E9
#[test]
fn every_code_has_a_scenario_or_test() {
    let seen: BTreeSet<String> = passing().iter().chain(failing()).flat_map(codes).collect();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let elsewhere: String =
        ELSEWHERE.iter().map(|file| std::fs::read_to_string(root.join(file)).unwrap()).collect();
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let words: BTreeSet<&str> = elsewhere.split(|c| !is_part(c)).collect();
    let nowhere: Vec<&str> = CATALOGUE
        .iter()
        .map(|entry| entry.code)
        .filter(|code| !seen.contains(*code) && !words.contains(code))
        .filter(|code| !OF_EARLIER.contains(code))
        .collect();
    assert!(nowhere.is_empty(), "nothing brings about {nowhere:?}");
}

/// Spec: E9
#[test]
fn codes_that_no_scenario_brings_about() {
    let seen: BTreeSet<String> = passing().iter().chain(failing()).flat_map(codes).collect();
    let unknown: Vec<&String> =
        seen.iter().filter(|code| layer0::code::find(code).is_none()).collect();
    assert!(unknown.is_empty(), "not in the catalogue: {unknown:?}");
    let unseen: Vec<&str> =
        CATALOGUE.iter().map(|entry| entry.code).filter(|code| !seen.contains(*code)).collect();
    insta::assert_snapshot!(unseen.join("\n"));
}

/// Returns the codes of a rehearsal: its reason, the reasons in its log, those of failed attempts,
/// tool calls and stored errors.
fn codes(played: &Played) -> Vec<String> {
    let mut codes = vec![&played.json["reason"], &played.json["error"]["code"]];
    for event in played.events() {
        codes.push(&event["data"]["reason"]);
        codes.push(&event["data"]["error"]["reason"]);
    }
    codes.extend(played.data_of("model.attempted").iter().map(|data| &data["code"]));
    codes.extend(played.json["errors"].as_array().unwrap().iter().map(|error| &error["reason"]));
    codes.into_iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}
