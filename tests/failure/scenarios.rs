//! The scenarios pass, those that must not do not, and the same comes of them every time.

use backstop_config::Scenario;
use serde_json::json;

use crate::support::played::{Played, failing, files, named, passing, play};
use crate::support::story::same_ids;

/// Spec: C6
#[test]
fn every_scenario_passes() {
    let failed: Vec<String> = passing()
        .iter()
        .filter(|played| !played.rehearsal.pass)
        .map(|played| {
            let diff = played.rehearsal.diff.as_deref().unwrap_or("no diff");
            format!("{}:\n  {}", played.name, diff.replace('\n', "\n  "))
        })
        .collect();
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n"));
}

/// Spec: C6
#[test]
fn what_must_not_pass_says_why() {
    let diffs: Vec<(&str, bool, &str)> = failing()
        .iter()
        .map(|played| {
            let rehearsal = &played.rehearsal;
            (played.name.as_str(), rehearsal.pass, rehearsal.diff.as_deref().unwrap_or_default())
        })
        .collect();
    assert_eq!(
        diffs,
        [
            (
                "expected_reason",
                false,
                "reason: expected \"provider.rate_limited\", got \"provider.auth_failed\""
            ),
            ("reopen_completed", false, "reopen: the run completed (run.not_reopenable)"),
            ("script_exhausted", false, "model: asked more often than it has answers"),
            (
                "script_exhausted_below",
                false,
                "model of `clerk`: asked more often than it has answers"
            ),
            (
                "unused_parts",
                false,
                "unused: decision 1 of 1\n\
                 unused: fault of the log at seq 700\n\
                 unused: fault of the error store\n\
                 unused: fault of the result store\n\
                 unused: hook `cap`\n\
                 unused: hook `cap` of `clerk`\n\
                 unused: signal `cancel` at 400000 ms\n\
                 unused: cancel at 500000 ms"
            ),
            (
                "wrong_expectation",
                false,
                "outcome: expected \"failed\", got \"completed\"\n\
                 reason: expected \"provider.other\", got \"\"\n\
                 output: expected \"Goodbye.\", got \"Hello.\"\n\
                 events:\n\
                 \u{20}\u{20}expected run.started … tool.responded … run.finished\n\
                 \u{20}\u{20}got      run.started model.requested model.attempted model.responded \
                 run.finished"
            ),
        ]
    );
}

/// Spec: C6
#[test]
fn unused_parts_are_listed() {
    let failed = failing().iter().find(|played| played.name == "unused_parts").unwrap();
    let unused = failed.json["unused"].as_array().unwrap();
    let left =
        ["1 answer of the model", "2 calls of tool `pay`", "1 answer of the model of `clerk`"];
    assert_eq!(unused[unused.len() - 3..], left);
    assert_eq!(named("unused_parts_are_allowed").json["unused"], json!(["hook `cap`"]));
    assert_eq!(named("memory_hangs").json["unused"], json!([]));
}

/// Spec: C6
#[test]
fn exhausted_script_fails_without_a_retry() {
    let played = failing().iter().find(|played| played.name == "script_exhausted").unwrap();
    assert_eq!(played.json["outcome"], "failed");
    assert_eq!(played.json["reason"], "provider.other");
    let chain = played.json["error"]["chain"].as_array().unwrap();
    assert!(
        chain.iter().any(|cause| cause.as_str().unwrap().starts_with("script exhausted")),
        "{chain:?}"
    );
    assert_eq!(played.data_of("model.attempted").len(), 2);
}

/// Spec: C6
#[tokio::test]
async fn examples_of_the_page_pass() {
    let page = include_str!("../../docs/scenarios.md");
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(examples.len(), 2);
    let folder = tempfile::tempdir().unwrap();
    for (index, example) in examples.iter().enumerate() {
        let file = folder.path().join(format!("{index}.toml"));
        std::fs::write(&file, example).unwrap();
        let played = play(&file).await.unwrap();
        assert!(played.rehearsal.pass, "{:?}", played.rehearsal.diff);
    }
}

/// Spec: G1
#[test]
fn no_iterations_at_all_are_refused_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zero.toml");
    let text = "name = \"zero\"\ninput = \"x\"\n[agent.limits]\nmax_iterations = 0\n";
    std::fs::write(&file, text).unwrap();
    let error = Scenario::read(&file).err().unwrap();
    assert!(error.to_string().contains("`max_iterations` must be at least 1"), "{error}");
}

#[test]
fn every_scenario_states_what_it_expects() {
    for played in passing() {
        let expect = &played.scenario.expect;
        assert!(expect.outcome.is_some(), "{}: no outcome", played.name);
        assert_eq!(
            expect.reason.is_none(),
            played.json["outcome"] == "completed",
            "{}: a reason, exactly where it is not completed",
            played.name
        );
    }
    let mut names: Vec<&str> = passing().iter().map(|p| p.scenario.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), passing().len(), "two scenarios have one name");
}

/// Spec: C6
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_comes_of_a_scenario_every_time() {
    let text = |played: &Played| same_ids(&serde_json::to_string_pretty(&played.json).unwrap());
    let mut differing = Vec::new();
    for path in files("scenarios") {
        let first = text(&play(&path).await.unwrap());
        for _ in 0..3 {
            let again = text(&play(&path).await.unwrap());
            let mut lines = first.lines().zip(again.lines());
            if let Some((first, again)) = lines.find(|(first, again)| first != again) {
                differing.push(format!("{}: {first} / {again}", path.display()));
            }
            assert_eq!(first.lines().count(), again.lines().count(), "{}", path.display());
        }
    }
    assert!(differing.is_empty(), "{differing:#?}");
}
