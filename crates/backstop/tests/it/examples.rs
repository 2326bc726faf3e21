//! The examples, run as people run them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Runs an example; returns what it wrote to standard output. Cargo builds examples before it runs
/// tests.
#[track_caller]
fn printed(example: &str, arguments: &[&str], input: &str) -> String {
    let mut path: PathBuf = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    let mut program = Command::new(path.join("examples").join(example));
    program.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = program
        .spawn()
        .unwrap_or_else(|error| panic!("{error}: `cargo build -p backstop --examples` builds it"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{example}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn examples_print_what_they_say() {
    #[track_caller]
    fn check(example: &str, last_line: &str) {
        let printed = printed(example, &[], "");
        assert_eq!(printed.lines().last(), Some(last_line), "{example}: {printed}");
    }
    check("approval", "R-7 is paid.");
    check("hello", "It is 42.");
    check("hooks", "Tomorrow, then.");
    check("oncall", "lead: reopened 0 times");
    check("own_memory", r#"it read: System { content: "Memory:\n- asked: I am Ada." }"#);
    check("own_tool", "There are 7 left.");
    check("retry", "42 grams");
    check("stream", "It is 42.");
    check("sub_agent", "They have 30 days. (3 model calls)");
    check("testing", "11 events, and every decision follows from them");
    check("typed", "Ada owes 12 euros");
}

#[test]
fn chat_example_reads_what_was_said() {
    let printed = printed("chat", &[], "I am Ada.\nWho am I?\n");
    assert_eq!(printed, "I have read 1 messages.\nI have read 3 messages.\n");
}

/// Spec: D4
#[test]
fn resume_example_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resume.db");
    let file = file.to_str().unwrap();
    assert!(printed("resume", &[file], "").starts_with("this process dies"));
    assert_eq!(printed("resume", &[file], ""), "It is safe.\n");
}

/// Each is short enough to be read at once; what is longer has a folder and pages of its own.
#[test]
fn examples_stay_below_40_lines() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            assert!(lines < 40, "{}: {lines} lines", path.display());
            count += 1;
        }
    }
    assert_eq!(count, 12);
}
