//! All built-in tools, checked against the contract of tools.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use backstop_builtin_tools::{
    CommandTool, FsList, FsRead, FsSearch, FsWrite, MemoryForget, MemorySave, MemorySearch,
    Program, Shell,
};
use backstop_state::{MemoryEntries, MemoryStateStore};
use backstop_testkit::contract::{ToolSample, tool};
use backstop_tool::{Grants, Tool};
use layer0::ToolSpec;
use serde_json::{Value, json};

/// Checks a tool that is created in a folder with a file, `a.txt`.
async fn keeps(make: impl Fn(&str) -> (Arc<dyn Tool>, Value) + Send + Sync + 'static) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "one\ntwo\n").unwrap();
    let path = folder.path().canonicalize().unwrap().display().to_string();
    let sample = async move || {
        let (tool, arguments) = make(&path);
        let (read, write) = (format!("fs:read:{path}/**"), format!("fs:write:{path}/**"));
        let granted = [&*read, &*write, "process:spawn", "memory:read:*", "memory:write:*"];
        let folder = format!("fs:read:{path}");
        let granted = granted.into_iter().chain([&*folder]);
        ToolSample::new(tool, arguments).granting(Grants::parse(granted).unwrap())
    };
    tool(sample).check().await;
}

/// Spec: T1, T10, T13, Y1
#[tokio::test]
async fn tools_of_files_keep_the_contract() {
    keeps(|path| (Arc::new(FsList::new(path)), json!({ "path": "." }))).await;
    keeps(|path| (Arc::new(FsRead::new(path)), json!({ "path": "a.txt" }))).await;
    keeps(|path| (Arc::new(FsSearch::new(path)), json!({ "path": "a.txt", "pattern": "o" }))).await;
    keeps(|path| {
        let tool = FsWrite::new(path).without_approval();
        (Arc::new(tool), json!({ "path": "b.txt", "content": "three\n" }))
    })
    .await;
}

/// Spec: T1, T10, T13, Y1
#[tokio::test]
async fn tools_of_programs_keep_the_contract() {
    keeps(|path| {
        let tool = Shell::new(Program::shell(path, BTreeMap::new())).without_approval();
        (Arc::new(tool), json!({ "command": "echo done" }))
    })
    .await;
    keeps(|path| {
        let spec = ToolSpec::new("echo", "Echoes.", json!({ "type": "object" }));
        let spec = spec.capability("process:spawn");
        let tool = CommandTool::new(
            spec,
            Program::new("/bin/echo", ["done".to_owned()], path, BTreeMap::new()),
        );
        (Arc::new(tool), json!({}))
    })
    .await;
}

/// Spec: T1, T10, T13, Y1, K2
#[tokio::test]
async fn tools_of_memory_keep_the_contract() {
    let entries = || MemoryEntries::of_session(Arc::new(MemoryStateStore::new()));
    let (saving, finding, gone) = (entries(), entries(), entries());
    keeps(move |_| (Arc::new(MemorySave::new(saving.clone())), json!({ "text": "an owl" }))).await;
    keeps(move |_| (Arc::new(MemorySearch::new(finding.clone())), json!({ "text": "owl" }))).await;
    keeps(move |_| (Arc::new(MemoryForget::new(gone.clone())), json!({ "id": "note_1" }))).await;
}
