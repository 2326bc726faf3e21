//! Every scenario says which rule it holds, and the rules that can be held are.

use std::collections::BTreeSet;

use regex::Regex;

use crate::support::played::{Played, failing, passing};

/// The rules that scenarios hold; add to them, never take one out.
const HELD: &[&str] = &[
    "A1", "A2", "A3", "B1", "B2", "B3", "C6", "D1", "D2", "D12", "E2", "E8", "E10", "E11", "G1",
    "G4", "G5", "G6", "H1", "H2", "L1", "L2", "M1", "O1", "O2", "O3", "O4", "O5", "P3", "P5", "P6",
    "P7", "P9", "R2", "R3", "R4", "R5", "R8", "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9",
    "T2", "T3", "T4", "T5", "T6", "T7", "T10", "T13", "T14", "Y1",
];

#[test]
fn every_scenario_states_its_subject_and_rules() {
    let rule = Regex::new(r"^(E|R|P|T|S|L|M|V|H|Y|A|G|B|D|X|O|K|N|Ob|C)[1-9][0-9]?$").unwrap();
    let mut problems = Vec::new();
    for played in passing().iter().chain(failing()) {
        let words: usize = header(played).map(|line| line.split_whitespace().count()).sum();
        if words < 20 {
            problems.push(format!("{}: too little is said of it", played.name));
        }
        let rules = rules(played);
        if rules.is_empty() {
            problems.push(format!("{}: no rule is named", played.name));
        }
        for id in rules.into_iter().filter(|id| !rule.is_match(id)) {
            problems.push(format!("{}: `{id}` is no rule's id", played.name));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn every_rule_that_scenarios_can_hold_is_held() {
    let held: BTreeSet<&str> = passing().iter().flat_map(rules).collect();
    let missing: Vec<&&str> = HELD.iter().filter(|rule| !held.contains(**rule)).collect();
    assert!(missing.is_empty(), "no scenario holds {missing:?}");
}

/// Returns the lines of the comment at the top, without their marks.
fn header(played: &Played) -> impl Iterator<Item = &str> {
    played.text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim)
}

fn rules(played: &Played) -> Vec<&str> {
    let named = header(played).filter_map(|line| line.strip_prefix("Spec:"));
    named.flat_map(|rules| rules.split(',')).map(str::trim).collect()
}
