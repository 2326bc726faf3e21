//! Command lines in real processes.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use backstop_builtin_tools::{Program, Shell};
use backstop_tool::{Grants, Tool, ToolContext, ToolError, Toolset};
use layer0::Timestamp;
use serde_json::{Value, json};

fn context() -> ToolContext {
    ToolContext::new("run_1".into(), "s-1".into(), "c1".into(), Timestamp::default())
}

fn shell(folder: &Path) -> Shell {
    let path = std::env::var("PATH").unwrap();
    Shell::new(Program::shell(folder, BTreeMap::from([("PATH".to_owned(), path)])))
}

async fn run(folder: &Path, arguments: Value) -> Result<Value, ToolError> {
    let answer = shell(folder).call(&arguments.into(), &context()).await?;
    Ok(answer.value())
}

/// Spec: N4
#[tokio::test]
async fn a_line_runs_in_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    let line = "for word in one two; do echo $word; done | tr a-z A-Z; basename \"$PWD\"; cat";
    let answer = run(folder.path(), json!({"command": line, "cwd": "sub"})).await.unwrap();
    assert_eq!(answer, "ONE\nTWO\nsub\n");
    let answer = run(folder.path(), json!({"command": "echo '{\"n\":3.25}'; echo '{' >&2"})).await;
    assert_eq!(answer.unwrap(), json!({"n": 3.25}));
    let names = run(folder.path(), json!({"command": "env | cut -d= -f1 | sort | tr '\\n' ' '"}));
    let names = names.await.unwrap();
    let names = names.as_str().unwrap();
    assert!(names.contains("BACKSTOP_CALL") && !names.contains("HOME"), "{names}");
    let error = run(folder.path(), json!({"command": "true", "cwd": "none"})).await.unwrap_err();
    assert_eq!(error.to_string(), "invalid input: cwd `none` is not a folder");
}

/// Spec: N4
#[tokio::test]
async fn a_success_keeps_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    for (line, output, stderr) in [
        (
            "echo out; echo 'warning: 3 files skipped' >&2",
            "out\n",
            Some("warning: 3 files skipped\n"),
        ),
        ("echo err >&2", "", Some("err\n")),
        ("echo out; printf ' \\n' >&2", "out\n", None),
        ("printf '\\377' >&2", "", Some("\u{fffd}")),
    ] {
        let context = context();
        let answer = shell(folder.path()).call(&json!({ "command": line }).into(), &context).await;
        assert_eq!(answer.unwrap().value(), output, "{line}");
        assert_eq!(context.stderr.so_far().as_deref(), stderr, "{line}");
    }
}

/// Spec: N4
#[tokio::test]
async fn a_failure_keeps_both_outputs() {
    let folder = tempfile::tempdir().unwrap();
    for (line, code, text, output) in [
        ("echo out; echo err >&2; exit 3", "exit_3", "err\n", Some("standard output:\nout\n")),
        ("echo out; exit 4", "exit_4", "out\n", None),
        ("echo err >&2; kill -9 $$", "signal_9", "err\n", None),
        ("exit 5", "exit_5", "`sh` ended with exit status: 5 and said nothing", None),
    ] {
        let error = run(folder.path(), json!({ "command": line })).await.unwrap_err();
        assert_eq!(error.author_code().map(|code| &**code), Some(code), "{line}");
        assert_eq!(error.kind().to_string(), text, "{line}");
        assert_eq!(error.output().map(|output| &**output), output, "{line}");
    }
}

/// Spec: Y1
#[test]
fn a_line_needs_to_spawn() {
    let tools = Toolset::new().with(shell(Path::new("."))).unwrap();
    let admit = |grant: &str, arguments: Value| {
        tools.admit("shell", arguments, &Grants::parse([grant]).unwrap())
    };
    let refused = admit("fs:read", json!({"command": "ls"})).err().unwrap();
    assert_eq!(refused.to_string(), "tool `shell` requires `process:spawn`");
    assert!(admit("process:spawn", json!({"command": ""})).is_err());
    assert!(admit("process:spawn", json!({"command": "ls"})).unwrap().spec().approval);
}

/// Spec: T7
#[tokio::test(flavor = "multi_thread")]
async fn giving_up_a_line_kills_its_processes() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let line = "(setsid sh -c 'exec 9>pipe; echo up >&9; sleep 20; echo outlived >&9' &); sleep 20";
    let tool = shell(folder.path());
    let call = tokio::spawn(async move {
        tool.call(&json!({ "command": line }).into(), &context()).await.map(|_| ())
    });
    let opened = tokio::task::spawn_blocking(move || {
        let mut reader = BufReader::new(std::fs::File::open(pipe).unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        (reader, line)
    });
    let (mut reader, line) = opened.await.unwrap();
    assert_eq!(line, "up\n");
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let rest = tokio::task::spawn_blocking(move || {
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        rest
    });
    assert_eq!(rest.await.unwrap(), "");
}
