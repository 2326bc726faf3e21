//! Real files and their grants.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::os::unix::fs::symlink;

use backstop_builtin_tools::{FsRead, FsSearch};
use backstop_tool::{Grants, ToolContext, ToolError, Toolset};
use layer0::Timestamp;
use serde_json::{Value, json};

async fn call(admitted: &backstop_tool::Admitted) -> Result<Value, ToolError> {
    let mut context =
        ToolContext::new("run_1".into(), "s-1".into(), "c1".into(), Timestamp::default());
    context.granted = admitted.needs().clone();
    admitted.tool().call(&admitted.arguments, &context).await.map(|output| output.value())
}

struct Files {
    inside: tempfile::TempDir,
    outside: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(inside.path().join("logs")).unwrap();
        std::fs::write(inside.path().join("logs/a.log"), "one\ntwo ERROR\nthree\n").unwrap();
        std::fs::write(inside.path().join("logs/b.log"), b"ERROR \xff\n\0binary ERROR\n").unwrap();
        std::fs::write(outside.path().join("secret"), "ERROR secret").unwrap();
        symlink(outside.path(), inside.path().join("logs/link")).unwrap();
        Self { inside, outside }
    }

    fn admit(&self, name: &str, arguments: Value) -> Result<backstop_tool::Admitted, ToolError> {
        let base = std::fs::canonicalize(self.inside.path()).unwrap();
        let grants = Grants::parse([format!("fs:read:{}/logs/**", base.display())]).unwrap();
        let tools =
            Toolset::new().with(FsRead::new(&base)).unwrap().with(FsSearch::new(&base)).unwrap();
        tools.admit(name, arguments, &grants)
    }

    async fn call(&self, name: &str, arguments: Value) -> Result<Value, ToolError> {
        call(&self.admit(name, arguments)?).await
    }
}

/// Spec: Y1, T1
#[tokio::test]
async fn reading_stays_inside_what_is_granted() {
    let files = Files::new();
    let read = files
        .call("fs_read", json!({"path": "logs/a.log", "offset": 4, "limit": 9}))
        .await
        .unwrap();
    assert_eq!(
        read,
        json!({"path": "logs/a.log", "text": "two ERROR", "next_offset": 13, "total_bytes": 20})
    );
    for path in ["logs/../../secret", "logs/link/secret", "/etc/hostname", "."] {
        let refused = files.admit("fs_read", json!({"path": path})).err().unwrap();
        let kind = refused.kind();
        assert!(
            matches!(kind, ToolError::PermissionDenied { .. } | ToolError::InvalidInput(_)),
            "{path}: {refused}"
        );
    }
    let refused = files.admit("fs_read", json!({"path": "logs/link/secret"})).err().unwrap();
    assert!(matches!(refused, ToolError::PermissionDenied { .. }), "{refused}");
    let missing = files.call("fs_read", json!({"path": "logs/none"})).await.unwrap_err();
    assert!(missing.to_string().contains("path `logs/none` cannot be read"), "{missing}");
}

#[tokio::test]
async fn a_search_finds_lines_and_follows_no_link() {
    let files = Files::new();
    let found = files.call("fs_search", json!({"path": "logs", "pattern": "ERR.R"})).await.unwrap();
    let places: Vec<String> = found["matches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| format!("{}:{}", found["file"].as_str().unwrap(), found["line"]))
        .collect();
    assert_eq!(places, ["logs/a.log:2"]);
    let bounded = files
        .call("fs_search", json!({"path": "logs", "pattern": ".", "max_matches": 1}))
        .await
        .unwrap();
    assert_eq!(bounded["more"], 2);
    let bad = files.call("fs_search", json!({"path": "logs", "pattern": "("})).await.unwrap_err();
    assert!(matches!(bad, ToolError::InvalidInput(_)), "{bad}");
}

/// Spec: Y1
#[test]
fn search_needs_a_recursive_grant() {
    let files = Files::new();
    let base = std::fs::canonicalize(files.inside.path()).unwrap();
    let tools = Toolset::new().with(FsSearch::new(&base)).unwrap();
    let arguments = json!({"path": "logs", "pattern": "x"});
    for (grant, allowed) in
        [("logs/**", true), ("logs/*", false), ("*/*", false), ("logs", false), ("**", true)]
    {
        let grants = Grants::parse([format!("fs:read:{}/{grant}", base.display())]).unwrap();
        assert_eq!(
            tools.admit("fs_search", arguments.clone(), &grants).is_ok(),
            allowed,
            "{grant}"
        );
    }
}

/// Spec: Y1. What was judged is what is opened, even when links change in between.
#[tokio::test]
async fn changed_link_is_noticed() {
    let files = Files::new();
    let logs = files.inside.path().join("logs");
    let flip = logs.join("flip");
    for (name, arguments) in [
        ("fs_read", json!({"path": "logs/flip"})),
        ("fs_search", json!({"path": "logs/flip", "pattern": "ERROR"})),
    ] {
        symlink(logs.join("a.log"), &flip).unwrap();
        let admitted = files.admit(name, arguments).unwrap();
        std::fs::remove_file(&flip).unwrap();
        symlink(files.outside.path().join("secret"), &flip).unwrap();
        let error = call(&admitted).await.unwrap_err();
        assert!(error.to_string().contains("`logs/flip` changed between being judged"), "{error}");
        std::fs::remove_file(&flip).unwrap();
    }
}

/// Spec: Y1. Neither where a link leads is told, nor what is there.
#[test]
fn denials_name_the_path_as_asked() {
    let files = Files::new();
    let logs = files.inside.path().join("logs");
    std::fs::create_dir(files.outside.path().join("folder")).unwrap();
    symlink(files.outside.path().join("none"), logs.join("dangling")).unwrap();
    symlink(files.outside.path().join("secret"), logs.join("file")).unwrap();
    for path in [
        "/etc/passwd",
        "/etc/no-such-file",
        "../nowhere",
        "logs/dangling",
        "logs/file",
        "logs/link",
        "logs/link/",
        "logs/link/secret",
        "logs/link/folder",
        "logs/link/none",
        "logs/link/../x",
    ] {
        for (name, arguments, need) in [
            ("fs_read", json!({"path": path}), path.to_owned()),
            (
                "fs_search",
                json!({"path": path, "pattern": "x"}),
                format!("{}/**", path.trim_end_matches('/')),
            ),
        ] {
            let refused = files.admit(name, arguments).err().unwrap();
            let ToolError::PermissionDenied { capability, .. } = refused.kind() else {
                panic!("{name} {path}: {refused}")
            };
            assert_eq!(*capability, format!("fs:read:{need}"), "{name}");
        }
    }
}

/// Spec: T7. Opening a pipe would wait for its other end.
#[tokio::test]
async fn a_pipe_is_no_file_and_hangs_nothing() {
    let files = Files::new();
    let made =
        std::process::Command::new("mkfifo").arg(files.inside.path().join("logs/pipe")).status();
    assert!(made.unwrap().success());
    let error = files.call("fs_read", json!({"path": "logs/pipe"})).await.unwrap_err();
    assert_eq!(error.to_string(), "invalid input: path `logs/pipe` is not a file");
    files.call("fs_search", json!({"path": "logs", "pattern": "x"})).await.unwrap();
}
