//! Files with mistakes in them, as their authors meet them.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use config::{AgentFile, ConfigError, Scenario};

fn written(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.toml");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn agent_error(text: &str) -> ConfigError {
    let (_folder, path) = written(text);
    AgentFile::read(&path).unwrap_err()
}

fn scenario_error(text: &str) -> ConfigError {
    let (_folder, path) = written(text);
    Scenario::read(&path).unwrap_err()
}

#[track_caller]
fn check(error: &ConfigError, line: usize, what: &str, hint: &str) {
    assert_eq!(error.line(), Some(line), "{error}");
    assert!(error.to_string().ends_with(what), "{error}");
    assert_eq!(error.hint().unwrap_or_default(), hint);
}

/// Spec: C5
#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest_one() {
    let error = agent_error("[model]\nprovider = \"script\"\n[agent.limits]\nmax_iteration = 3\n");
    check(&error, 4, "unknown field `max_iteration`", "did you mean `max_iterations`?");
    let error = agent_error("[model]\nprovider = \"antropic\"\n");
    check(&error, 2, "unknown variant `antropic`", "did you mean `anthropic`?");
    let error = scenario_error("name = \"x\"\ninput = \"y\"\n[[model]]\ntxt = \"z\"\n");
    check(&error, 4, "unknown field `txt`", "did you mean `text`?");
    let error = scenario_error(
        "name = \"x\"\ninput = \"y\"\n[[model]]\nerror = { kind = \"rate_limit\" }\n",
    );
    check(&error, 4, "unknown variant `rate_limit`", "did you mean `rate_limited`?");
    let error = scenario_error("name = \"x\"\ninput = \"y\"\n[qqq]\n");
    assert!(
        error.hint().is_some_and(|hint| hint.starts_with("known here: name, input")),
        "{error}"
    );
}

#[test]
fn what_is_not_supported_yet_is_refused_not_ignored() {
    let error = agent_error("[model]\nprovider = \"script\"\n[[mcp]]\nname = \"files\"\n");
    assert!(error.to_string().ends_with("`mcp` is not supported yet"), "{error}");
}

#[test]
fn other_mistakes_are_located_too() {
    check(&agent_error("[model]\nprovider = 3\n"), 2, "wanted string or table", "");
    check(&agent_error("[model\n"), 1, "unclosed table, expected `]`", "");
    let missing = AgentFile::read(std::path::Path::new("/no/such/file.toml")).unwrap_err();
    assert!(missing.to_string().ends_with("/no/such/file.toml: cannot be read"), "{missing}");
}
