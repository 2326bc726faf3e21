//! Real processes and real files.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use builtin_tools::{CommandTool, FsRead, FsSearch};
use layer0::{Timestamp, ToolSpec};
use serde_json::{Value, json};
use tool::{Grants, Tool, ToolContext, ToolError, Toolset};

fn context() -> ToolContext {
    ToolContext::new("run_1".into(), "s-1".into(), "c1".into(), Timestamp::default())
}

fn shell(script: &str, folder: &Path) -> CommandTool {
    let spec = ToolSpec::new("sh", "Runs.", json!({"type": "object"})).capability("process:spawn");
    let path = std::env::var("PATH").unwrap();
    let variables = BTreeMap::from([("PATH".to_owned(), path)]);
    CommandTool::new(spec, "sh", ["-c".to_owned(), script.to_owned()], folder, variables)
}

async fn run(script: &str) -> Result<Value, ToolError> {
    let folder = tempfile::tempdir().unwrap();
    shell(script, folder.path()).call(&json!({"a": "b c", "n": [1]}), &context()).await
}

#[tokio::test]
async fn arguments_arrive_as_one_line_and_output_is_read_as_json() {
    assert_eq!(run("cat").await.unwrap(), json!({"a": "b c", "n": [1]}));
    assert_eq!(run("wc -l | tr -d ' '").await.unwrap(), json!(1));
    assert_eq!(run("echo plain text").await.unwrap(), json!("plain text\n"));
}

#[tokio::test]
async fn a_failure_carries_all_of_stderr_and_how_it_ended() {
    let check = async |script: &str, code: &str, text: &str| {
        let error = run(script).await.unwrap_err();
        assert_eq!(error.author_code().map(|code| &**code), Some(code), "{script}");
        assert!(
            matches!(error.kind(), ToolError::ExecutionFailed(said) if said == text),
            "{error:?}"
        );
    };
    check("echo out; printf 'line 1\\nline 2' >&2; exit 3", "exit_3", "line 1\nline 2").await;
    check("printf out; exit 4", "exit_4", "out").await;
    check("exit 5", "exit_5", "`sh` ended with exit status: 5 and said nothing").await;
    check("kill -9 $$", "signal_9", "`sh` ended with signal: 9 (SIGKILL) and said nothing").await;
}

#[tokio::test]
async fn a_command_sees_only_the_variables_it_was_given() {
    let output = run("env | sort | cut -d= -f1 | grep -v -e '^PWD$' -e '^_$' -e SHLVL -e OLDPWD")
        .await
        .unwrap();
    assert_eq!(output, json!("PATH\n"));
}

#[tokio::test]
async fn a_command_that_does_not_exist_says_so() {
    let spec = ToolSpec::new("x", "x", json!({"type": "object"}));
    let tool = CommandTool::new(spec, "no-such-program-here", [], ".", BTreeMap::new());
    let error = tool.call(&json!({}), &context()).await.unwrap_err();
    assert!(error.to_string().starts_with("starting `no-such-program-here` failed: "), "{error}");
}

/// Spec: T7
#[tokio::test]
async fn giving_up_a_call_kills_the_whole_group() {
    let folder = tempfile::tempdir().unwrap();
    let tool = shell("sleep 300 & echo $! > child; wait", folder.path());
    let call = tokio::spawn(async move { tool.call(&json!({}), &context()).await });
    let file = folder.path().join("child");
    let pid = loop {
        match std::fs::read_to_string(&file) {
            Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
            _ => tokio::task::yield_now().await,
        }
    };
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let gone = || {
        // A killed process may linger as a zombie until it is reaped.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    };
    for _ in 0..2_000 {
        if gone() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("process {pid} is still there");
}

async fn call(admitted: &tool::Admitted) -> Result<Value, ToolError> {
    let mut context = context();
    context.granted = admitted.needs().clone();
    admitted.tool().call(&admitted.arguments, &context).await
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
        std::os::unix::fs::symlink(outside.path(), inside.path().join("logs/link")).unwrap();
        Self { inside, outside }
    }

    fn admit(&self, name: &str, arguments: Value) -> Result<tool::Admitted, ToolError> {
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
    assert_eq!(places, ["logs/a.log:2", "logs/b.log:1"]);
    let bounded = files
        .call("fs_search", json!({"path": "logs", "pattern": ".", "max_matches": 1}))
        .await
        .unwrap();
    assert_eq!(bounded["more"], 3);
    let bad = files.call("fs_search", json!({"path": "logs", "pattern": "("})).await.unwrap_err();
    assert!(matches!(bad, ToolError::InvalidInput(_)), "{bad}");
}

/// Spec: Y1
#[test]
fn searching_a_folder_needs_a_grant_to_any_depth() {
    let files = Files::new();
    let base = std::fs::canonicalize(files.inside.path()).unwrap();
    let tools = Toolset::new().with(FsSearch::new(&base)).unwrap();
    let arguments = json!({"path": "logs", "pattern": "x"});
    for (grant, allowed) in [("logs/**", true), ("logs/*", false), ("logs", false), ("**", true)] {
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
async fn a_link_that_changes_after_it_was_judged_is_noticed() {
    let files = Files::new();
    let logs = files.inside.path().join("logs");
    let flip = logs.join("flip");
    for (name, arguments) in [
        ("fs_read", json!({"path": "logs/flip"})),
        ("fs_search", json!({"path": "logs/flip", "pattern": "ERROR"})),
    ] {
        std::os::unix::fs::symlink(logs.join("a.log"), &flip).unwrap();
        let admitted = files.admit(name, arguments).unwrap();
        std::fs::remove_file(&flip).unwrap();
        std::os::unix::fs::symlink(files.outside.path().join("secret"), &flip).unwrap();
        let error = call(&admitted).await.unwrap_err();
        assert!(error.to_string().contains("changed between being judged"), "{error}");
        std::fs::remove_file(&flip).unwrap();
    }
}

/// Spec: Y1. A missing file outside of what is granted reads like one that is there.
#[test]
fn nobody_learns_what_existsoutside_of_the_grants() {
    let files = Files::new();
    for path in ["/etc/passwd", "/etc/no-such-file", "../nowhere"] {
        let refused = files.admit("fs_read", json!({"path": path})).err().unwrap();
        assert!(matches!(refused, ToolError::PermissionDenied { .. }), "{path}: {refused}");
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

#[tokio::test]
async fn a_command_that_has_ended_is_not_waited_for_because_of_its_children() {
    assert_eq!(run("sleep 300 & echo done").await.unwrap(), json!("done\n"));
}

/// Spec: S3
#[tokio::test]
async fn bytes_that_are_no_text_are_kept() {
    let error = run("printf 'bad \\377\\376' >&2; exit 1").await.unwrap_err();
    let ToolError::ExecutionFailed(text) = error.kind() else { panic!("{error:?}") };
    let raw: Value = serde_json::from_str(text).unwrap();
    assert_eq!(raw, json!({"message": "bad \u{fffd}\u{fffd}", "bytes_base64": "YmFkIP/+"}));
}

#[tokio::test]
async fn a_blank_stderr_does_not_hide_what_was_said() {
    let error = run("echo real message; echo >&2; exit 1").await.unwrap_err();
    assert!(matches!(error.kind(), ToolError::ExecutionFailed(text) if text == "real message\n"));
}
