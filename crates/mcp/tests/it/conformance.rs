//! The client scenarios of the official conformance suite, if it is installed, as `cargo xtask others` does. The suite
//! needs Node 22.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use backstop_mcp::{ClientCredentials, McpClient, McpServer};
use backstop_tool::{Arguments, Given, People, Tool, ToolError, ToolSource};
use layer0::JsonText;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::support::{checks, context, tool};

/// The revisions that the scenarios are run with.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];
/// Scenarios that do not belong to a revision.
const FURTHER: [&str; 1] = ["auth/client-credentials-basic"];
/// Scenarios that fail, each with the reason.
const BASELINE: &str = include_str!("../conformance-baseline.txt");

pub(crate) fn trials() -> Vec<Trial> {
    checks![the_official_suite_is_passed]
}

/// Spec: Q11
async fn the_official_suite_is_passed() {
    let folder = std::env::var_os("BACKSTOP_NPM").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/others"),
        PathBuf::from,
    );
    let suite = folder.join("node_modules/.bin/conformance");
    let listed = Command::new(&suite).arg("list").output();
    let Some(listed) = listed.ok().filter(|listed| listed.status.success()) else {
        eprintln!("not run: {} is not there, or this Node cannot run it", suite.display());
        return;
    };
    let baseline: Vec<&str> = BASELINE
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split_once(": ").expect("a scenario, and the reason").0)
        .collect();
    let scenarios = of_clients(&String::from_utf8_lossy(&listed.stdout));
    assert!(scenarios.len() > 30, "{scenarios:?}");
    let stale: Vec<_> =
        baseline.iter().filter(|name| !scenarios.iter().any(|it| it.0 == **name)).collect();
    assert!(stale.is_empty(), "not in the suite: {stale:?}");
    let results = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    for (scenario, revision) in &scenarios {
        let of_revision = revision.iter().flat_map(|it| ["--spec-version", it]);
        let run = Command::new(&suite)
            .args(["client", "--scenario", scenario])
            .args(of_revision)
            .arg("--command")
            .arg(format!("{} conformance", this.display()))
            .arg("--output-dir")
            .arg(results.path())
            .output()
            .unwrap();
        let said = [run.stdout, run.stderr].concat();
        let is_known = baseline.contains(&scenario.as_str());
        let text = String::from_utf8_lossy(&said);
        assert_eq!(
            run.status.success(),
            !is_known,
            "{scenario} of {revision:?} (in the baseline: {is_known}): {text}"
        );
    }
}

/// Parses the list of client scenarios, each with its revision.
fn of_clients(listed: &str) -> Vec<(String, Option<&'static str>)> {
    let clients = listed.split("Client scenarios").nth(1).unwrap_or_default();
    let clients = clients.split("Authorization server scenarios").next().unwrap_or_default();
    let lines = clients.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split_once(" ["));
    let scenarios = lines.flat_map(|(name, listed)| {
        let revisions = REVISIONS.into_iter().filter(|it| listed.contains(it)).map(Some);
        let further = FURTHER.contains(&name).then_some(None);
        revisions.chain(further).map(|revision| (name.to_owned(), revision))
    });
    scenarios.collect()
}

/// The client that the suite starts, with the URL of its server as the last argument: connects, and calls each tool.
pub(crate) fn client() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = std::env::args().next_back().unwrap();
        let server = McpServer::url("suite", url);
        let given = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
        let given: Value = serde_json::from_str(&given).unwrap_or_default();
        let server = match (given["client_id"].as_str(), given["client_secret"].as_str()) {
            (Some(id), Some(secret)) => server.oauth(ClientCredentials::new(id, secret)),
            _ => server,
        };
        let client = server.connect().await.unwrap();
        for (name, arguments) in calls(&client, &given) {
            let mut context = context();
            context.people = Some(Arc::new(Defaults));
            tool(&client, &name).call(&Arguments::from(arguments), &context).await.unwrap();
        }
    });
}

/// Returns the requested calls of the suite, or one call of each tool.
fn calls(client: &McpClient, given: &Value) -> Vec<(String, Value)> {
    if let Some(calls) = given["toolCalls"].as_array() {
        let call =
            |call: &Value| (call["name"].as_str().unwrap().to_owned(), call["arguments"].clone());
        return calls.iter().map(call).collect();
    }
    let tools = client.tools();
    let call = |tool: &Arc<dyn Tool>| {
        let origin = tool.spec().origin.as_deref().unwrap().to_owned();
        let arguments = match &*origin {
            // The tool receives the client's view of another tool's schema.
            "json_schema_echo" => {
                let other = tools.iter().find(|it| it.spec().origin != tool.spec().origin).unwrap();
                json!({"schema": other.spec().schema.value()})
            }
            _ => json!({"a": 5, "b": 3}),
        };
        (origin, arguments)
    };
    tools.iter().map(call).collect()
}

/// A person who accepts the proposed values.
struct Defaults;

#[async_trait]
impl People for Defaults {
    async fn ask(&self, _: &str, schema: JsonText) -> Result<Given, ToolError> {
        let schema = schema.value();
        let properties = schema["properties"].as_object().into_iter().flatten();
        let proposed =
            properties.map(|(name, property)| (name.clone(), property["default"].clone()));
        Ok(Given::Data(Value::from_iter(proposed).into()))
    }
}
