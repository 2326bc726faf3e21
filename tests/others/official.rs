//! The official servers, through our client.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use backstop::layer0::event::EventKind;
use backstop::{Agent, McpServer, MemoryLog, ScriptedAnswer, ScriptedProvider, read_events};
use serde_json::{Value, json};

/// Where npm has put them.
const NPM: &str = "BACKSTOP_NPM";

fn server(name: &str, arguments: &[&str]) -> Option<McpServer> {
    let Some(folder) = std::env::var_os(NPM).map(PathBuf::from) else {
        eprintln!(
            "not run: {NPM} is not set; `cargo xtask others` installs the servers and sets it"
        );
        return None;
    };
    let script =
        folder.join(format!("node_modules/@modelcontextprotocol/server-{name}/dist/index.js"));
    let command = ["node".to_owned(), script.display().to_string()];
    let command = command.into_iter().chain(arguments.iter().map(ToString::to_string));
    let path = BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap())]);
    Some(McpServer::command(name, command).variables(path))
}

/// Has an agent make these calls, and returns how each was answered: its output, or its code and text.
async fn answers(server: McpServer, calls: Vec<(&str, Value)>) -> Vec<Value> {
    let client = server.connect().await.unwrap();
    let asked: Vec<Value> = calls
        .into_iter()
        .enumerate()
        .map(|(place, (name, arguments))| {
            json!({"tool_calls": [{"id": format!("c{place}"), "name": name, "arguments": arguments}]})
        })
        .chain([json!({"text": "done"})])
        .collect();
    let script: Vec<ScriptedAnswer> = serde_json::from_value(asked.into()).unwrap();
    let log = Arc::new(MemoryLog::new());
    let agent = Agent::builder(ScriptedProvider::new(script))
        .grant("process:spawn")
        .tool_source(client)
        .shared_log(Arc::clone(&log) as _)
        .build()
        .unwrap();
    let outcome = agent.run("go").await.unwrap();
    let (_, events) = read_events(&*log, &outcome.run_id).await.unwrap();
    let answers = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResponded(answer) => Some(match &answer.error {
            Some(error) => json!([error.reason.as_str(), *error.message]),
            None => answer.output.value(),
        }),
        _ => None,
    });
    answers.collect()
}

/// Spec: Q11
#[tokio::test]
async fn filesystem_server_reads_what_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let folder_path = folder.path().canonicalize().unwrap();
    let file = folder_path.join("a.txt");
    std::fs::write(&file, "hello").unwrap();
    let Some(server) = server("filesystem", &[folder_path.to_str().unwrap()]) else { return };
    let said = answers(
        server.roots([&folder_path]),
        vec![
            ("filesystem__read_text_file", json!({"path": file})),
            ("filesystem__read_text_file", json!({"path": "/etc/passwd"})),
            ("filesystem__read_text_file", json!({})),
            (
                "filesystem__write_file",
                json!({"path": folder_path.join("b.txt"), "content": "bye"}),
            ),
        ],
    )
    .await;
    assert_eq!(said[0]["content"], "hello", "{said:?}");
    assert_eq!(said[1][0], "tool.execution_failed", "{said:?}");
    assert!(said[1][1].as_str().unwrap().contains("outside allowed directories"), "{said:?}");
    assert_eq!(said[2][0], "tool.invalid_input", "refused before it is sent: {said:?}");
    assert_eq!(std::fs::read_to_string(folder_path.join("b.txt")).unwrap(), "bye", "{said:?}");
}

/// Spec: Q11, Q8
#[tokio::test]
async fn everything_server_is_understood() {
    let Some(server) = server("everything", &["stdio"]) else { return };
    let said = answers(
        server,
        vec![
            ("everything__echo", json!({"message": "hi"})),
            ("everything__get-sum", json!({"a": 2, "b": 3})),
            ("everything__get-structured-content", json!({"location": "Chicago"})),
            ("everything__get-tiny-image", json!({})),
            ("everything__trigger-long-running-operation", json!({"duration": 1, "steps": 4})),
        ],
    )
    .await;
    assert_eq!(said[0], "Echo: hi");
    assert!(said[1].as_str().unwrap().contains('5'), "{said:?}");
    assert!(said[2]["temperature"].is_number(), "{said:?}");
    assert!(said[3].as_str().unwrap().contains("image/png"), "{said:?}");
    assert!(said[4].as_str().unwrap().contains("completed"), "{said:?}");
}
