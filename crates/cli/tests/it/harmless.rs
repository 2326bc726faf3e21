//! Text of others in the output cannot control a terminal, change the direction of writing, or forge a line.

use crate::bench::Bench;

/// ESC, CSI and OSC as one and as two characters, DEL, a bidirectional override, a character without width.
const STEERS: &str =
    "\u{1b}[2J\u{9b}1m\u{1b}]0;x\u{7}\u{9d}0;y\u{9c}\u{7f}\u{202e}\u{2066}\u{200b}\u{61c}";

/// Returns the text as in a TOML string.
fn in_toml(text: &str) -> String {
    text.chars().map(|c| format!("\\u{:04X}", u32::from(c))).collect()
}

#[track_caller]
fn check(text: &str) {
    let steers = |c: char| c != '\n' && (c.is_control() || STEERS.contains(c) && !c.is_ascii());
    assert!(!text.contains(steers), "{text:?}");
    assert!(!text.contains("\nforged"), "{text}");
}

/// Spec: D10, C1
#[test]
fn nothing_printed_steers_a_terminal() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db").with("BACKSTOP_LOG", "debug");
    let foreign = in_toml(&format!("{STEERS}\nforged"));
    bench.agent(
        &format!(
            "[[model]]\ntool_calls = [{{ id = \"c{foreign}\", name = \"{foreign}\" }}, \
             {{ id = \"d{foreign}\", name = \"fails\", arguments = {{ \"{foreign}\" = \"{foreign}\" }} }}]\n\
             [[model]]\ntool_calls = [{{ id = \"e{foreign}\", name = \"asks\", arguments = {{ x = \"{foreign}\" }} }}]\n\
             [[model]]\ntext = \"ok\"\n"
        ),
        &format!(
            "[agent]\nname = \"a{foreign}\"\ninput = \"q\"\n[agent.policy]\ngrant = [\"process:spawn\"]\n\
             [[tools]]\nkind = \"command\"\nname = \"fails\"\ndescription = \"d\"\n\
             command = [\"sh\", \"-c\", \"printf 'a\\\\033[2J\\\\302\\\\233b\\\\nforged' >&2; exit 3\"]\n\
             [[tools]]\nkind = \"command\"\nname = \"asks\"\ndescription = \"d\"\napproval = true\n\
             command = [\"true\"]\n"
        ),
    );
    let agent = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    bench.write("agent.toml", &agent.replacen("[agent]\ninput = \"question\"\n", "", 1));
    let mut printed = Vec::new();
    let mut see = |args: &[&str]| {
        let ran = bench.run(args);
        check(&ran.err);
        check(&ran.out);
        printed.push(format!("{}{}", ran.out, ran.err));
        ran
    };
    see(&["run", "agent.toml"]).fails(4, "waiting for approval");
    let run = see(&["run", "agent.toml", "--json"]).json().remove(0);
    let run = run["run"].as_str().unwrap();
    see(&["approvals"]).ok();
    let open = see(&["approvals", "--json"]).ok().json();
    let eve = format!("eve{STEERS}\nforged");
    see(&["approve", open[0]["id"].as_str().unwrap(), "--by", &eve, "--reason", &eve]).ok();
    see(&["resume", run]);
    see(&["trace", run]).ok();
    see(&["trace", run, "--json"]).ok();
    see(&["runs"]).ok();
    see(&["runs", "--json"]).ok();
    see(&["replay", run]).ok();
    for error in see(&["errors", "list", "--json"]).ok().json() {
        let id = error["id"].as_str().unwrap();
        let ran = bench.run(&["errors", "show", id]).ok();
        check(&ran.err);
        see(&["errors", "show", id, "--json"]).ok();
    }
    see(&["errors", "list"]).ok();
    see(&["errors", "stats"]).ok();
    // Arguments of the command line, and texts of files.
    for args in [
        &["trace", &eve][..],
        &["dance", &eve],
        &[&eve],
        &["run", &eve],
        &["run", "agent.toml", &format!("--{eve}")],
        &["runs", "--limit", &eve],
        &["runs", "--store", &format!("sqlite:{eve}")],
        &["runs", "--store", &eve],
        &["codes", &eve],
        &["errors", "show", &eve],
        &["fork", &eve, "--at", "1"],
    ] {
        assert!(see(args).code > 0, "{args:?}");
    }
    bench.write("keys.toml", &format!("[agent]\n\"{foreign}\" = 1\n"));
    see(&["run", "keys.toml"]).fails(2, "keys.toml:2: unknown field");
    bench.write(
        "scenario.toml",
        &format!("name = \"{foreign}\"\ninput = \"x\"\n[[model]]\ntext = \"{foreign}\"\n[expect]\noutput = \"no\"\n"),
    );
    see(&["rehearse", "scenario.toml"]).fails(1, "");
    see(&["rehearse", "scenario.toml", "--json"]).fails(1, "");
}

/// Spec: D10. A terminal gets everything escaped, a pipe an answer as it is.
#[cfg(unix)]
#[test]
fn an_answer_is_escaped_for_terminals_only() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(&format!("[[model]]\ntext = \"answer {}\"\n", in_toml(STEERS)), "");
    assert_eq!(bench.run(&["run", "agent.toml"]).ok().out, format!("answer {STEERS}\n"));
    let (code, screen) = bench.at_terminal("", &["run", "agent.toml"]).end();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains(r"answer \u001b[2J\u009b1m\u001b]0;x\u0007\u009d0;y"), "{screen}");
    assert!(!screen.contains(['\u{9b}', '\u{9d}', '\u{202e}', '\u{7f}']), "{screen}");
    assert!(!screen.contains("\u{1b}]0;x"), "{screen}");
}

/// Spec: C1
#[test]
fn partial_text_of_a_failure_is_no_answer() {
    let bench = Bench::new();
    bench.agent(
        "[[model]]\ntext = \"half an answer\"\ntool_calls = [{ id = \"c\", name = \"none\" }]\n\
         [[model]]\nerror = { kind = \"quota_exhausted\" }\n",
        "",
    );
    let ran = bench.run(&["run", "agent.toml"]).fails(1, "provider.quota_exhausted");
    assert_eq!(ran.out, "");
}
