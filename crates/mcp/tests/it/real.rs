//! The official servers, where they are installed: `npm install --prefix target/npm
//! @modelcontextprotocol/server-everything @modelcontextprotocol/server-filesystem`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use backstop_mcp::{McpServer, Progress};
use backstop_tool::{Arguments, ToolError, ToolSource};
use libtest_mimic::Trial;
use serde_json::json;

use crate::support::{checks, context, tool};

pub(crate) fn trials() -> Vec<Trial> {
    checks![filesystem_server_works, everything_server_works]
}

/// Returns a server that is installed; says where it is looked for when it is not.
fn server(name: &'static str, arguments: &[&str]) -> Option<McpServer> {
    let folder = std::env::var_os("BACKSTOP_NPM").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/npm"),
        PathBuf::from,
    );
    let program = folder.join("node_modules/.bin").join(format!("mcp-server-{name}"));
    if !program.exists() {
        eprintln!("not run: {} is not there", program.display());
        return None;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = vec![program.to_str().unwrap().to_owned()];
    command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let variables = BTreeMap::from([("PATH".to_owned(), path)]);
    Some(McpServer::command(name, command).variables(variables))
}

/// Spec: Q11
async fn filesystem_server_works() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::write(root.join("a.txt"), "hello").unwrap();
    let Some(server) = server("filesystem", &[root.to_str().unwrap()]) else { return };
    let client = server.read_only(["read_*", "list_*"]).connect().await.unwrap();
    assert!(client.left_out().is_empty(), "{:?}", client.left_out());
    let call = async |origin: &str, arguments| {
        tool(&client, origin).call(&Arguments::from(arguments), &context()).await
    };
    let read = call("read_text_file", json!({"path": root.join("a.txt")})).await.unwrap();
    assert!(read.get().contains("hello"), "{read:?}");
    let outside = call("read_text_file", json!({"path": "/etc/passwd"})).await.unwrap_err();
    assert!(matches!(outside.kind(), ToolError::ExecutionFailed(why) if why.contains("denied")));
    let invalid = call("read_text_file", json!({"path": 7})).await.unwrap_err();
    assert!(matches!(invalid.kind(), ToolError::InvalidInput(_)), "{invalid:?}");
}

/// Spec: Q11
async fn everything_server_works() {
    let Some(server) = server("everything", &["stdio"]) else { return };
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let server = server.on_progress(Arc::new(move |progress: Progress| {
        heard.lock().unwrap().push(progress.progress);
    }));
    let client = server.connect().await.unwrap();
    assert!(client.left_out().is_empty(), "{:?}", client.left_out());
    let call = async |origin: &str, arguments| {
        tool(&client, origin).call(&Arguments::from(arguments), &context()).await
    };
    let echo = call("echo", json!({"message": "hi"})).await.unwrap();
    assert_eq!(echo.as_string().unwrap(), "Echo: hi");
    let image = call("get-tiny-image", json!({})).await.unwrap();
    assert!(image.as_string().unwrap().contains("[image: image/png, "), "{image:?}");
    let structured = call("get-structured-content", json!({"location": "New York"})).await.unwrap();
    assert!(structured.is_object(), "{structured:?}");
    let long = json!({"duration": 1, "steps": 4});
    call("trigger-long-running-operation", long).await.unwrap();
    assert!(told.lock().unwrap().len() >= 3, "{told:?}");
}
