//! The client scenarios of the official conformance suite, where it is installed: `npm install --prefix target/npm
//! @modelcontextprotocol/conformance`. It wants Node 22.

use std::path::{Path, PathBuf};
use std::process::Command;

use backstop_mcp::{ClientCredentials, McpServer};
use backstop_tool::{Arguments, ToolSource};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::support::{checks, context};

/// Those about what this client does. The others are about logins of people, and answers to elicitation.
const SCENARIOS: [&str; 4] =
    ["initialize", "tools_call", "sse-retry", "auth/client-credentials-basic"];

pub(crate) fn trials() -> Vec<Trial> {
    checks![the_official_suite_is_passed]
}

/// Spec: Q11
async fn the_official_suite_is_passed() {
    let folder = std::env::var_os("BACKSTOP_NPM").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/npm"),
        PathBuf::from,
    );
    let suite = folder.join("node_modules/.bin/conformance");
    let works = Command::new(&suite).arg("list").output().is_ok_and(|list| list.status.success());
    if !works {
        eprintln!("not run: {} is not there, or this Node cannot run it", suite.display());
        return;
    }
    let results = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    for scenario in SCENARIOS {
        let run = Command::new(&suite)
            .args(["client", "--scenario", scenario, "--command"])
            .arg(format!("{} conformance", this.display()))
            .arg("--output-dir")
            .arg(results.path())
            .output()
            .unwrap();
        let said = [run.stdout, run.stderr].concat();
        assert!(run.status.success(), "{scenario}: {}", String::from_utf8_lossy(&said));
    }
}

/// What the suite starts, with the URL of its server as the last argument: connects, and calls each tool.
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
        for tool in client.tools() {
            let arguments = Arguments::from(json!({"a": 5, "b": 3}));
            tool.call(&arguments, &context()).await.unwrap();
        }
    });
}
