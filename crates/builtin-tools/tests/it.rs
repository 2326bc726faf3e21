//! Real processes and real files.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use backstop_builtin_tools::{CommandTool, Program};
use backstop_tool::{Tool, ToolContext, ToolError};
use base64::Engine as _;
use layer0::{Effect, Failure, Timestamp, ToolSpec};
use serde_json::{Value, json};

fn context() -> ToolContext {
    ToolContext::new("run_1".into(), "s-1".into(), "c1".into(), Timestamp::default())
}

fn shell(script: &str, folder: &Path) -> CommandTool {
    let spec = ToolSpec::new("sh", "Runs.", json!({"type": "object"})).capability("process:spawn");
    let path = std::env::var("PATH").unwrap();
    let variables = BTreeMap::from([("PATH".to_owned(), path)]);
    let arguments = ["-c".to_owned(), script.to_owned()];
    CommandTool::new(spec, Program::new("sh", arguments, folder, variables))
}

async fn run(script: &str) -> Result<Value, ToolError> {
    let folder = tempfile::tempdir().unwrap();
    shell(script, folder.path())
        .call(&json!({"a": "b c", "n": [1]}).into(), &context())
        .await
        .map(|output| output.value())
}

#[tokio::test]
async fn command_arguments_are_one_line_of_json() {
    assert_eq!(run("cat").await.unwrap(), json!({"a": "b c", "n": [1]}));
    assert_eq!(run("echo plain text").await.unwrap(), json!("plain text\n"));
}

#[tokio::test]
async fn failure_carries_stderr_and_exit() {
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
async fn command_sees_only_its_given_variables() {
    let output = run("env | sort | cut -d= -f1 | grep -v -e '^PWD$' -e '^_$' -e SHLVL -e OLDPWD")
        .await
        .unwrap();
    assert_eq!(output, json!("BACKSTOP_CALL\nPATH\n"));
}

#[tokio::test]
async fn a_command_that_does_not_exist_says_so() {
    let spec = ToolSpec::new("x", "x", json!({"type": "object"}));
    let tool =
        CommandTool::new(spec, Program::new("no-such-program-here", [], ".", BTreeMap::new()));
    let error = tool.call(&json!({}).into(), &context()).await.unwrap_err();
    assert_eq!(error.facts().effect, Effect::None);
    let error = error.kind().to_string();
    assert!(error.starts_with("starting `no-such-program-here` failed: "), "{error}");
}

/// Spec: T7. The system says of either that there is no such file or directory.
#[tokio::test]
async fn missing_folder_is_no_missing_program() {
    let spec = ToolSpec::new("x", "x", json!({"type": "object"}));
    let folder = tempfile::tempdir().unwrap().path().join("gone");
    let program = Program::new("true", [], &folder, BTreeMap::new());
    let error = CommandTool::new(spec, program).call(&json!({}).into(), &context()).await;
    let why = format!("starting `true` failed: there is no folder `{}`", folder.display());
    assert!(error.unwrap_err().kind().to_string().starts_with(&why));
}

/// Spec: T7
#[tokio::test]
async fn giving_up_a_call_kills_the_whole_group() {
    let folder = tempfile::tempdir().unwrap();
    let tool = shell("sleep 300 & echo $! > child; wait", folder.path());
    let call = tokio::spawn(async move { tool.call(&json!({}).into(), &context()).await });
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
        // A killed process may remain as a zombie until it is reaped.
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

#[tokio::test]
async fn ended_command_does_not_wait_for_its_children() {
    assert_eq!(run("sleep 300 & echo done").await.unwrap(), json!("done\n"));
}

/// Spec: E10, S3. In Base64, a secret could not be found any more.
#[tokio::test]
async fn secrets_go_before_bytes_are_encoded() {
    let script = "printf '\\377 held-secret-key PGPASSWORD=hunter22\\376' >&2; exit 1";
    let mut context = context();
    context.redactor = backstop_redact::Redactor::new().with_secret("held-secret-key");
    let folder = tempfile::tempdir().unwrap();
    let error = shell(script, folder.path()).call(&json!({}).into(), &context).await.unwrap_err();
    let ToolError::ExecutionFailed(text) = error.kind() else { panic!("{error:?}") };
    let raw: Value = serde_json::from_str(text).unwrap();
    let encoded = raw["bytes_base64"].as_str().unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap();
    assert_eq!(bytes, b"\xff [redacted] PGPASSWORD=[redacted]");
    assert_eq!(raw["message"], "\u{fffd} [redacted] PGPASSWORD=[redacted]");
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
async fn blank_stderr_does_not_hide_stdout() {
    let error = run("echo real message; echo >&2; exit 1").await.unwrap_err();
    assert!(matches!(error.kind(), ToolError::ExecutionFailed(text) if text == "real message\n"));
}
