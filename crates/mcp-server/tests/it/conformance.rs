//! The server scenarios of the official conformance suite, where it is installed: `cargo xtask others` does that. It
//! wants Node 22.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::bench::Bench;

/// The revisions in which the scenarios are run.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];
/// Scenarios that are not passed, each with the reason.
const BASELINE: &str = include_str!("../conformance-baseline.txt");

/// Spec: Q11
#[tokio::test]
async fn official_suite_is_passed() {
    let folder = std::env::var_os("BACKSTOP_NPM").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/others"),
        PathBuf::from,
    );
    let suite = folder.join("node_modules/.bin/conformance");
    let listed = Command::new(&suite).arg("list").output().await;
    let Some(listed) = listed.ok().filter(|listed| listed.status.success()) else {
        eprintln!("not run: {} is not there, or this Node cannot run it", suite.display());
        return;
    };
    let baseline: BTreeMap<&str, Vec<&str>> = BASELINE.lines().filter_map(known).collect();
    let scenarios = of_servers(&String::from_utf8_lossy(&listed.stdout));
    assert!(scenarios.len() > 40, "{scenarios:?}");
    let stale: Vec<_> =
        baseline.keys().filter(|name| !scenarios.iter().any(|it| it.0 == **name)).collect();
    assert!(stale.is_empty(), "not in the suite: {stale:?}");

    let (bench, stop) = (Bench::new(), CancellationToken::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(bench.server().serve_http(listener, None, stop.clone()));
    let mut wrong = Vec::new();
    for (scenario, revision) in &scenarios {
        let run = Command::new(&suite)
            .args(["server", "--url", &url, "--scenario", scenario, "--spec-version", revision])
            .output()
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        let is_as_known = match baseline.get(scenario.as_str()).map(Vec::as_slice) {
            None => run.status.success(),
            Some([]) => !run.status.success(),
            Some(checks) => failed_checks(&text).eq(checks.iter().copied()),
        };
        if !is_as_known {
            wrong.push(format!("{scenario} of {revision} is not as the baseline says: {text}"));
        }
    }
    stop.cancel();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Reads a line of the baseline: a scenario, and its checks that are not passed where the others are.
fn known(line: &str) -> Option<(&str, Vec<&str>)> {
    let line = Some(line).filter(|line| !line.starts_with('#') && !line.is_empty())?;
    let (named, _) = line.split_once(": ").expect("a scenario, and the reason");
    Some(match named.split_once(" [") {
        None => (named, Vec::new()),
        Some((scenario, checks)) => (scenario, checks.trim_end_matches(']').split(", ").collect()),
    })
}

/// Reads which checks of a scenario failed.
fn failed_checks(text: &str) -> impl Iterator<Item = &str> {
    let failed = text.lines().filter(|line| line.contains("FAILURE"));
    failed.filter_map(|line| line.split_once(" [")?.1.split([' ', ']']).next())
}

/// Reads which scenarios of servers there are, each with a revision that it is of.
fn of_servers(listed: &str) -> Vec<(String, &'static str)> {
    let servers = listed.split("Client scenarios").next().unwrap_or_default();
    let lines = servers.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split_once(" ["));
    let scenarios = lines.flat_map(|(name, listed)| {
        let revisions = REVISIONS.into_iter().filter(|revision| listed.contains(revision));
        revisions.map(|revision| (name.to_owned(), revision))
    });
    scenarios.collect()
}
