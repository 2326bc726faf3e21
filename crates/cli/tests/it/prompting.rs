//! Prompts for a person at the terminal, and the effect of the answers.

use crate::bench::Bench;
use crate::running::{ASKS, REFUNDS};
use crate::terminal::{kill, stopping};

const PROMPT: &str = "run it? [y]es, [n]o, [l]ater: ";
/// A call that looks harmless except for its end.
const HIDDEN: &str = "ls -la                                                                                ; rm -rf /";

/// A bench whose tool writes a line each time it runs, and whose model calls it `calls` times.
fn bench(calls: usize) -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let call = |n| format!("{{ id = \"c{n}\", name = \"refund\", arguments = {{ order = {n} }} }}");
    let calls: Vec<String> = (0..calls).map(call).collect();
    let script =
        format!("[[model]]\ntool_calls = [{}]\n[[model]]\ntext = \"done\"\n", calls.join(", "));
    let asks = ASKS.replace("[\"echo\", \"refunded\"]", "[\"sh\", \"-c\", \"echo x >> ran\"]");
    bench.agent(&script, &asks);
    bench
}

fn executions(bench: &Bench) -> usize {
    std::fs::read_to_string(bench.path().join("ran")).map_or(0, |text| text.lines().count())
}

fn open_approval(bench: &Bench) -> String {
    let open = bench.run(&["approvals", "--json"]).ok().json().remove(0);
    open["id"].as_str().unwrap().to_owned()
}

/// Spec: A1, A2. Real prompts at a real terminal.
#[test]
fn a_person_at_the_terminal_is_asked() {
    for (answer, expected, code, ran) in [
        ("y\n", "approved", 0, 1),
        ("n\nnot today\n", "not today", 0, 0),
        // An empty reason still means no.
        ("n\n\n", "Denied by", 0, 0),
        ("n\n\u{4}", "Denied by", 0, 0),
        ("l\n", "waiting for approval", 4, 0),
        ("\u{4}", "waiting for approval", 4, 0),
    ] {
        let bench = bench(1);
        let terminal = bench.at_terminal("", &["run", "agent.toml"]);
        terminal.wait_for(PROMPT, 1);
        terminal.type_in(answer);
        let (ended, screen) = terminal.end();
        assert_eq!((ended, executions(&bench)), (code, ran), "{screen}");
        assert!(screen.contains("needs approval: refund {\"order\":0}"), "{screen}");
        assert!(screen.contains(expected), "{screen}");
    }
}

/// Spec: A1
#[test]
fn input_typed_before_a_prompt_decides_nothing() {
    for typed in ["y\ny\ny\n", "y\n\u{4}y\n", "y", "yes\r\n"] {
        let bench = bench(2);
        let terminal = bench.at_terminal(typed, &["run", "agent.toml"]);
        for prompt in 1..=2 {
            terminal.wait_for(PROMPT, prompt);
            terminal.type_in("l\n");
        }
        let (code, screen) = terminal.end();
        assert_eq!((code, executions(&bench)), (4, 0), "{typed:?}: {screen}");
    }
}

/// Spec: A1
#[test]
fn an_answer_decides_one_approval_only() {
    let bench = bench(3);
    let terminal = bench.at_terminal("", &["run", "agent.toml"]);
    terminal.wait_for(PROMPT, 1);
    terminal.type_in("y\ny\ny\ny\n");
    terminal.wait_for(PROMPT, 2);
    terminal.type_in("what\ny\ny\n");
    terminal.wait_for(PROMPT, 3);
    terminal.type_in("n\nno\ny\ny\n");
    terminal.wait_for(PROMPT, 4);
    terminal.type_in("n\nno\n");
    let (code, screen) = terminal.end();
    assert_eq!((code, executions(&bench)), (0, 1), "{screen}");
}

/// Spec: A1. A pipe is no person: nothing that comes through it approves.
#[test]
fn a_pipe_decides_nothing() {
    let bench = bench(1);
    bench.write("answers", "y\ny\n");
    let answers = std::fs::File::open(bench.path().join("answers")).unwrap();
    let output = bench.command(&["run", "agent.toml"]).stdin(answers).output().unwrap();
    assert_eq!((output.status.code(), executions(&bench)), (Some(4), 0));
    // Also with a terminal only for the output.
    let (pty, inside) = pty_process::blocking::open().unwrap();
    let answers = std::fs::File::open(bench.path().join("answers")).unwrap();
    let command = pty_process::blocking::Command::from(bench.command(&["run", "agent.toml"]));
    let mut child = command.stdin(answers).spawn(inside).unwrap();
    assert_eq!((child.wait().unwrap().code(), executions(&bench)), (Some(4), 0));
    drop(pty);
}

/// Spec: B3
#[test]
fn signals_at_a_prompt_cancel_the_run() {
    for signal in ["Ctrl-C"].into_iter().chain(stopping()) {
        let bench = bench(1);
        let terminal = bench.at_terminal("", &["run", "agent.toml"]);
        terminal.wait_for(PROMPT, 1);
        match signal {
            "Ctrl-C" => terminal.type_in("ye\u{3}"),
            signal => kill(signal, terminal.id()),
        }
        let (code, screen) = terminal.end();
        assert_eq!((code, executions(&bench)), (3, 0), "{signal}: {screen}");
        assert!(screen.contains("withdrawn"), "{signal}: {screen}");
        assert!(screen.contains("cancelled (run.cancelled)"), "{signal}: {screen}");
        let run = bench.run(&["runs", "--json"]).ok().json().remove(0);
        assert_eq!(run["outcome"], "cancelled", "{signal}");
    }
}

/// Spec: A1
#[test]
fn an_approval_decided_elsewhere_is_withdrawn() {
    let bench = bench(1);
    let terminal = bench.at_terminal("", &["run", "agent.toml"]);
    terminal.wait_for(PROMPT, 1);
    bench.run(&["approve", &open_approval(&bench), "--by", "bob"]).ok();
    let (code, screen) = terminal.end();
    assert_eq!((code, executions(&bench)), (0, 1), "{screen}");
    assert!(screen.contains("withdrawn"), "{screen}");
}

/// Spec: A1
#[test]
fn approve_shows_the_call_and_asks() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let script = REFUNDS.replace("order = 7", &format!("command = \"{HIDDEN}\\u009B\\u202E\""));
    bench.agent(&script, ASKS);
    let waiting = bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval: apr_");
    let listed = bench.run(&["approvals"]).ok();
    let escaped = format!("\"command\": \"{HIDDEN}\\u009b\\u202e\"");
    assert!(waiting.err.contains(&escaped), "{}", waiting.err);
    assert!(listed.out.contains(&escaped), "{}", listed.out);
    let id = open_approval(&bench);
    for (answer, code) in [("n\n", 4), ("\u{4}", 4), ("y\n", 0)] {
        let terminal = bench.at_terminal("y\ny\n", &["approve", &id, "--by", "ada"]);
        terminal.wait_for("approve it? [y]es, [n]o: ", 1);
        terminal.type_in(answer);
        let (ended, screen) = terminal.end();
        assert_eq!(ended, code, "{screen}");
        assert!(screen.contains("; rm -rf /\\u009b\\u202e"), "{screen}");
    }
    bench.run(&["approve", &id, "--by", "ada"]).fails(2, "no open approval");
}
