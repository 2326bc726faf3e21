//! Outputs of commands, and the lifetime of their processes.
//!
//! The processes hold a named pipe open, which ends when the last of them has died.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use backstop_builtin_tools::{CommandTool, Program};
use backstop_tool::{Tool, ToolContext, ToolError};
use layer0::{JsonText, Timestamp, ToolSpec};
use serde_json::{Value, json};

const LIMIT: usize = 8 * 1024 * 1024;

/// Holds the pipe as file 9, reports its start, and later that it was not killed.
const HELD: &str = "exec 9>pipe; echo up >&9; sleep 20; echo outlived >&9";
/// Ways to start processes outside the group, each with the number of processes.
const WAYS: [(&str, usize); 8] = [
    ("sh held", 1),
    ("sh held & wait", 1),
    ("(sh held &); sleep 20", 1),
    ("setsid sh held; sleep 20", 1),
    ("(setsid sh held &); sleep 20", 1),
    ("setsid sh -c 'setsid sh held & setsid sh held & exit' ; sleep 20", 2),
    ("nohup sh held >nothing 2>&1 & sleep 20", 1),
    ("(nohup setsid sh held <&- >&- 2>&- &); trap '' TERM HUP; sleep 20", 1),
];

fn context() -> ToolContext {
    ToolContext::new("run_1".into(), "s-1".into(), "c1".into(), Timestamp::default())
}

fn shell(script: &str, folder: &Path) -> CommandTool {
    let spec = ToolSpec::new("sh", "Runs.", json!({"type": "object"}));
    let variables = BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap())]);
    let arguments = ["-c".to_owned(), script.to_owned()];
    CommandTool::new(spec, Program::new("sh", arguments, folder, variables))
}

async fn run(script: &str) -> Result<JsonText, ToolError> {
    let folder = tempfile::tempdir().unwrap();
    shell(script, folder.path()).call(&json!({}).into(), &context()).await
}

/// Returns a folder with the named pipe.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::write(folder.path().join("held"), HELD).unwrap();
    (folder, pipe)
}

/// Waits until this number of processes has started.
fn up(pipe: &Path, count: usize) -> BufReader<File> {
    let mut reader = BufReader::new(File::open(pipe).unwrap());
    for _ in 0..count {
        let mut line = String::new();
        while line.is_empty() {
            // A pipe that one process has closed and another has not opened yet ends for a moment.
            reader.read_line(&mut line).unwrap();
        }
        assert_eq!(line, "up\n");
    }
    reader
}

/// Waits until all processes have died, and returns their remaining output.
fn rest(mut reader: BufReader<File>) -> String {
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    rest
}

/// Spec: T7
#[tokio::test(flavor = "multi_thread")]
async fn abandoned_command_dies_outside_its_group_too() {
    for (script, count) in WAYS {
        let (folder, pipe) = folder();
        let tool = shell(script, folder.path());
        let call = tokio::spawn(async move { tool.call(&json!({}).into(), &context()).await });
        let reader = tokio::task::spawn_blocking(move || up(&pipe, count)).await.unwrap();
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        assert_eq!(tokio::task::spawn_blocking(|| rest(reader)).await.unwrap(), "", "{script}");
    }
}

/// Spec: T7. A process that threw its environment away is still a child of one that has it.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_without_its_mark_is_killed() {
    let (folder, pipe) = folder();
    let tool = shell("env -i /bin/sh -c 'setsid sh held & wait' & wait", folder.path());
    let call = tokio::spawn(async move { tool.call(&json!({}).into(), &context()).await });
    let reader = tokio::task::spawn_blocking(move || up(&pipe, 1)).await.unwrap();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(tokio::task::spawn_blocking(|| rest(reader)).await.unwrap(), "");
}

/// The process that the next test kills; no test by itself.
#[tokio::test]
async fn process_that_calls_a_command() {
    let Ok(script) = std::env::var("TEST_SCRIPT") else { return };
    let _ = shell(&script, Path::new(".")).call(&json!({}).into(), &context()).await;
}

/// Spec: T7. The command of a dead process would run beside its own second execution.
#[test]
fn commands_die_with_a_process_that_is_killed() {
    for (script, count) in WAYS {
        let (folder, pipe) = folder();
        let mut caller = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process_that_calls_a_command"])
            .env("TEST_SCRIPT", script)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let reader = up(&pipe, count);
        caller.kill().unwrap();
        caller.wait().unwrap();
        assert_eq!(rest(reader), "", "{script}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_ended_command_left_running_lives() {
    let (folder, pipe) = folder();
    let script = "setsid sh -c 'exec 9>pipe; read -r word <more; echo $word >&9' >/dev/null 2>&1 &";
    let more = folder.path().join("more");
    assert!(Command::new("mkfifo").arg(&more).status().unwrap().success());
    let tool = shell(script, folder.path());
    tool.call(&json!({}).into(), &context()).await.unwrap();
    let text = tokio::task::spawn_blocking(move || {
        let reader = BufReader::new(File::open(&pipe).unwrap());
        std::fs::write(more, "alive\n").unwrap();
        rest(reader)
    });
    assert_eq!(text.await.unwrap(), "alive\n");
}

fn text(output: &JsonText) -> String {
    output.as_string().unwrap().into_owned()
}

/// Spec: N4
#[tokio::test]
async fn a_long_output_keeps_its_two_ends() {
    let whole = run(&format!("head -c {LIMIT} /dev/zero | tr '\\0' x")).await.unwrap();
    assert_eq!(text(&whole).len(), LIMIT);
    for more in [1, 70_000, LIMIT] {
        let script = format!(
            "printf first; head -c {} /dev/zero | tr '\\0' x; printf last",
            LIMIT + more - 9
        );
        let cut = text(&run(&script).await.unwrap());
        assert!(cut.starts_with("firstxxx") && cut.ends_with("xxxlast"));
        let bytes = if more == 1 { "byte" } else { "bytes" };
        let note = format!("\n[{more} {bytes} left out here]\n");
        assert!(cut.contains(&note), "{more}");
        assert_eq!(cut.len(), LIMIT + note.len());
    }
}

/// Spec: N4. Not even what looks like JSON is parsed when it is cut.
#[tokio::test]
async fn a_cut_output_is_text() {
    let script = format!("printf '[\"'; head -c {LIMIT} /dev/zero | tr '\\0' x; printf '\"]'");
    assert!(text(&run(&script).await.unwrap()).contains("[4 bytes left out here]"));
}

/// Spec: N4
#[tokio::test]
async fn exit_status_follows_a_long_output() {
    let flood = format!("head -c {} /dev/zero | tr '\\0' x", LIMIT + 1);
    for (script, code, stream) in [
        (format!("{flood} >&2; exit 3"), "exit_3", "xxx"),
        (format!("{flood}; exit 4"), "exit_4", "xxx"),
        (format!("{flood}; {flood} >&2; kill -9 $$"), "signal_9", "xxx"),
        (format!("{flood}; echo why >&2; exit 5"), "exit_5", "why\n"),
    ] {
        let error = run(&script).await.unwrap_err();
        assert_eq!(error.author_code().map(|code| &**code), Some(code));
        let ToolError::ExecutionFailed(text) = error.kind() else { panic!("{error:?}") };
        assert!(text.starts_with(stream), "{script}");
        assert_eq!(text.contains("[1 byte left out here]"), stream == "xxx", "{script}");
    }
}

/// Spec: N4. Test runners and compilers report on standard output.
#[tokio::test]
async fn failed_command_keeps_its_standard_output() {
    let error =
        run("echo 'FAILED test_totals'; echo 'cache is cold' >&2; exit 1").await.unwrap_err();
    assert_eq!(error.kind().to_string(), "cache is cold\n");
    let output = error.output().map(|output| &**output);
    assert_eq!(output, Some("standard output:\nFAILED test_totals\n"));
}

/// Spec: N4
#[tokio::test]
async fn every_ending_keeps_both_outputs() {
    const WRITES: [(&str, &str, &str); 5] = [
        (":", "", ""),
        ("echo to-out", "to-out\n", ""),
        ("echo to-err >&2", "", "to-err\n"),
        ("echo to-out; echo to-err >&2", "to-out\n", "to-err\n"),
        // More than is kept of each.
        (
            "echo to-out; head -c 9000000 /dev/zero; echo; { echo to-err; head -c 9000000 /dev/zero; } >&2",
            "to-out\n",
            "to-err\n",
        ),
    ];
    const ENDS: [(&str, &str); 4] = [
        ("exit 3", "exit_3"),
        ("kill -KILL $$", "signal_9"),
        ("kill -TERM $$", "signal_15"),
        ("ulimit -t 1; while :; do :; done", "signal_9"),
    ];
    for (writes, out, err) in WRITES {
        for (end, code) in ENDS {
            let error = run(&format!("{writes}; {end}")).await.unwrap_err();
            assert_eq!(error.author_code().map(|code| &**code), Some(code), "{writes}; {end}");
            let text = error.kind().to_string();
            let output = error.output().map_or("", |output| output);
            let (shown, stored) = if err.is_empty() { (out, "") } else { (err, out) };
            assert!(text.starts_with(shown), "{writes}; {end}: {text:.200}");
            let stored = if stored.is_empty() {
                "".to_owned()
            } else {
                format!("standard output:\n{stored}")
            };
            assert!(output.starts_with(&stored), "{writes}; {end}: {output:.200}");
            let is_cut = writes.contains("9000000");
            assert_eq!(text.contains("bytes left out here"), is_cut, "{writes}; {end}");
            assert_eq!(output.contains("bytes left out here"), is_cut, "{writes}; {end}");
        }
    }
}

/// Spec: T7. What times out and what is cancelled is given up in the same way.
#[tokio::test(flavor = "multi_thread")]
async fn given_up_command_leaves_both_outputs() {
    for (writes, all) in [
        ("printf to-out", "standard output:\nto-out"),
        ("printf to-err >&2", "standard error:\nto-err"),
        ("printf to-out; printf to-err >&2", "standard output:\nto-out\nstandard error:\nto-err"),
    ] {
        let (folder, pipe) = folder();
        let (tool, context) = (shell(&format!("{writes}; sh held"), folder.path()), context());
        let written = context.written.clone();
        let call = tokio::spawn(async move { tool.call(&json!({}).into(), &context).await });
        let reader = tokio::task::spawn_blocking(move || up(&pipe, 1)).await.unwrap();
        while written.so_far().as_deref() != Some(all) {
            tokio::task::yield_now().await;
        }
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        assert_eq!(written.so_far().as_deref(), Some(all));
        assert_eq!(tokio::task::spawn_blocking(|| rest(reader)).await.unwrap(), "");
    }
}

/// Spec: T7
#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_is_known_before_the_end() {
    let (folder, pipe) = folder();
    let script = "printf 'half a li'; printf 'bad \\377' >&2; sh held";
    let (tool, context) = (shell(script, folder.path()), context());
    let written = context.written.clone();
    assert_eq!(written.so_far(), None);
    let call = tokio::spawn(async move { tool.call(&json!({}).into(), &context).await });
    let reader = tokio::task::spawn_blocking(move || up(&pipe, 1)).await.unwrap();
    let raw: Value = json!({"message": "bad \u{fffd}", "bytes_base64": "YmFkIP8="});
    let all = format!("standard output:\nhalf a li\nstandard error:\n{raw}");
    while written.so_far().as_deref() != Some(&all) {
        tokio::task::yield_now().await;
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(written.so_far(), Some(all));
    assert_eq!(tokio::task::spawn_blocking(|| rest(reader)).await.unwrap(), "");
}

/// Spec: N4
#[tokio::test]
async fn a_command_gains_no_privileges() {
    let own = || privileges(&std::fs::read_to_string("/proc/thread-self/status").unwrap());
    let before = own();
    // Its child processes gain none either.
    let shown = run("cat /proc/self/status; (setsid cat /proc/self/status)").await.unwrap();
    let shown: Value = shown.read().unwrap();
    assert_eq!(privileges(shown.as_str().unwrap()), ["1", "1"]);
    assert_eq!(own(), before, "this process may still do what it could");
}

/// Returns the privilege flags in these reports.
fn privileges(reports: &str) -> Vec<String> {
    let lines = reports.lines().filter_map(|line| line.strip_prefix("NoNewPrivs:"));
    lines.map(|set| set.trim().to_owned()).collect()
}
