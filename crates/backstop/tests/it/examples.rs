//! The examples, run as people run them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Returns the command of an example. Cargo builds examples before it runs tests.
fn command(example: &str) -> Command {
    let mut path: PathBuf = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    Command::new(path.join("examples").join(example))
}

/// Runs an example; returns its standard output.
#[track_caller]
fn printed(example: &str, arguments: &[&str], input: &str) -> String {
    let mut program = command(example);
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
    check("oncall", "next run: It was web-3.");
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
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            assert!(lines < 40, "{}: {lines} lines", path.display());
            count += 1;
        }
    }
    assert_eq!(count, 14);
}

fn page(path: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The program of the README is an example, and that of the first steps is another, which is run above.
#[test]
fn pages_print_the_first_examples() {
    for (shown, example, answer) in [
        ("README.md", "anthropic", "```rust,no_run\nuse {}```\n\nIt prints"),
        ("docs/getting-started.md", "hello", "```rust\nuse {}```"),
    ] {
        let (shown, program) =
            (page(shown), page(&format!("crates/backstop/examples/{example}.rs")));
        let (_, program) = program.split_once("\n\nuse ").unwrap();
        assert!(shown.contains(&answer.replace("{}", program)), "examples/{example}.rs");
    }
}

/// Without a key, the program exits before any request and names the missing variable.
#[test]
fn real_model_needs_a_key() {
    let mut program = command("anthropic");
    let output = program.env_remove("ANTHROPIC_API_KEY").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("ANTHROPIC_API_KEY"), "{said}");
}

#[test]
fn readme_names_every_feature() {
    let (readme, manifest) = (page("README.md"), page("crates/backstop/Cargo.toml"));
    let table = |text: &str, from: &str, to: &str| {
        text.split_once(from).unwrap().1.split_once(to).unwrap().0.to_owned()
    };
    let listed = table(&readme, "| feature | what it adds |\n|---|---|\n", "\n\n");
    let first_cells = listed.lines().filter_map(|row| row.split('|').nth(1));
    let named: Vec<&str> =
        first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let features = table(&manifest, "\n[features]\n", "\n\n");
    let known = features.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    // The table marks the default feature instead of listing `default`, and `http` is a part of each provider.
    let mut known: Vec<&str> = known.filter(|name| !matches!(*name, "default" | "http")).collect();
    let mut named = named;
    known.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, known);
}

/// Spec: O6
#[test]
fn workflow_example_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flow.db");
    let file = file.to_str().unwrap();
    assert_eq!(printed("workflow", &[file], ""), "WaitingApproval\n");
    assert_eq!(printed("workflow", &[file], ""), "\"R-7 is paid.\"\n");
}
