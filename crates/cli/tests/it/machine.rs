//! Output for programs, and its amount: JSON, events, logs, colours.

use serde_json::Value;

use crate::bench::{Bench, repository};
use crate::running::{ASKS, REFUNDS};

const SAYS: &str = "[[model]]\ntext = \"ok\"\n";

fn last_line(text: &str) -> Value {
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// Spec: C1
#[test]
fn the_input_may_stand_behind_the_file() {
    let bench = Bench::new();
    bench.agent(SAYS, "");
    let asked = |args: &[&str]| {
        let report = bench.run(&[&["run", "agent.toml", "--json"], args].concat()).ok();
        report.json()[0]["events"][0]["data"]["input"].clone()
    };
    assert_eq!(asked(&["What now?"]), "What now?");
    assert_eq!(asked(&["@home"]), "@home", "it is text, whatever it begins with");
    let both = ["run", "agent.toml", "a", "--input", "b"];
    bench.run(&both).fails(2, "cannot be used with");
    bench.run(&["run", "agent.toml", " "]).fails(2, "must not be empty");
}

/// Spec: C1
#[test]
fn events_are_printed_and_then_the_result() {
    let bench = Bench::new();
    bench.agent(REFUNDS, &ASKS.replace("approval = true\n", ""));
    let lines = bench.run(&["run", "agent.toml", "--events"]).ok().json();
    let (report, events) = lines.split_last().unwrap();
    assert_eq!(report["outcome"], "completed");
    assert_eq!(report["events"].as_array().unwrap(), events);
    assert_eq!(events[0]["type"], "run.started");
    let traced = bench.run(&["trace", "last", "--json", "--store", "sqlite:x.db"]).ok().json();
    assert_eq!(traced, events);
    bench.run(&["run", "agent.toml", "--events", "--json"]).fails(2, "cannot be used with");
}

#[test]
fn an_event_is_printed_when_it_is_durable() {
    use std::io::{BufRead, BufReader};
    let bench = Bench::new();
    let waits = ASKS.replace("approval = true\n", "").replace(
        "[\"echo\", \"refunded\"]",
        "[\"sh\", \"-c\", \"until [ -e seen ]; do sleep 0.01; done\"]",
    );
    bench.agent(REFUNDS, &waits);
    let mut command = bench.command(&["run", "agent.toml", "--events"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let requested = lines.find(|line| line.as_ref().unwrap().contains("tool.requested"));
    assert!(requested.is_some());
    // The tool ends only now, and with it the run.
    bench.write("seen", "");
    assert_eq!(last_line(&lines.last().unwrap().unwrap())["outcome"], "completed");
    assert!(child.wait().unwrap().success());
}

/// Spec: C1
#[test]
fn errors_are_json_where_results_are() {
    let bench = Bench::new();
    for (args, exit, code, message) in [
        (&["trace", "run_0", "--json"][..], 2, "input.invalid", "no run `run_0`"),
        (&["run", "none.toml", "--json"], 2, "input.invalid", "none.toml: cannot be read"),
        (&["run", "none.toml", "--events"], 2, "input.invalid", "none.toml: cannot be read"),
        (&["runs", "--json", "--limit", "0"], 2, "input.invalid", "invalid value '0'"),
        (&["dance", "--json"], 2, "input.invalid", "unrecognized subcommand 'dance'"),
        (
            &["runs", "--json", "--store", "sqlite:none.db"],
            5,
            "store.failed",
            "no database at `none.db`",
        ),
    ] {
        let ran = bench.run(args).fails(exit, message);
        let error = last_line(&ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        assert_eq!((&error["code"], &error["exit"]), (&code.into(), &exit.into()), "{error}");
        assert!(error["message"].as_str().unwrap().starts_with(message), "{error}");
        assert!(error["retry"].is_string() && error["effect"] == "none", "{error}");
        assert!(error.get("hint").is_some(), "{error}");
    }
    let plain = bench.run(&["trace", "run_0"]).fails(2, "error: no run");
    assert!(plain.err.contains("  hint: "), "{}", plain.err);
}

/// Spec: C1
#[test]
fn quiet_leaves_results_and_errors() {
    let bench = Bench::new();
    bench.agent(REFUNDS, &ASKS.replace("approval = true\n", ""));
    let ran = bench.run(&["run", "agent.toml", "--quiet"]).ok();
    assert_eq!((&*ran.out, &*ran.err), ("done\n", ""));
    let ran = bench.run(&["-q", "run", "none.toml"]).fails(2, "error: none.toml");
    assert!(ran.err.contains("No such file"), "{}", ran.err);
    bench.run(&["-q", "-v", "runs"]).fails(2, "cannot be used with");
}

/// Spec: C1
#[test]
fn colours_are_for_those_who_want_them() {
    let bench = Bench::new();
    bench.agent(REFUNDS, &ASKS.replace("approval = true\n", ""));
    let coloured = |bench: &Bench, args: &[&str]| {
        let ran = bench.run(&[&["run", "agent.toml"], args].concat()).ok();
        ran.err.contains("\u{1b}[32m✓ ")
    };
    assert!(!coloured(&bench, &[]), "a pipe");
    assert!(coloured(&bench, &["--color", "always"]));
    let bench = bench.with("CLICOLOR_FORCE", "1");
    assert!(coloured(&bench, &[]));
    assert!(!coloured(&bench, &["--color", "never"]));
    let bench = bench.with("NO_COLOR", "1");
    assert!(!coloured(&bench, &[]));
    bench.write("a.toml", "name = \"a\"\ninput = \"x\"\n[[model]]\ntext = \"yes\"\n");
    let ran = bench.run(&["rehearse", "a.toml", "--color", "always"]).ok();
    assert!(ran.out.starts_with("\u{1b}[32mpass\u{1b}[0m  a: completed, "), "{:?}", ran.out);
}

#[test]
fn logs_are_asked_for_by_flag_or_variable() {
    let bench = Bench::new();
    bench.agent(SAYS, "");
    let logged = |bench: &Bench, args: &[&str]| {
        let ran = bench.run(&[&["run", "agent.toml", "-q"][..], args].concat()).ok();
        assert!(!ran.err.contains('\u{1b}'), "{}", ran.err);
        ran.err
    };
    assert_eq!(logged(&bench, &[]), "");
    let loud = ["run", "agent.toml", "-v"];
    assert!(bench.run(&loud).ok().err.contains(" backstop_"), "our own crates");
    let bench = bench.with("RUST_LOG", "backstop_react=debug");
    let text = logged(&bench, &[]);
    assert!(text.contains("backstop_react"), "{text}");
    let json = logged(&bench, &["--log-format", "json"]);
    assert!(!json.is_empty());
    for line in json.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["target"].as_str().unwrap().starts_with("backstop_react"), "{line}");
    }
    let bench = bench.with("BACKSTOP_LOG", "off");
    assert_eq!(logged(&bench, &[]), "", "the own variable counts first");
}

#[test]
fn a_failed_run_says_how_to_go_on() {
    let bench = Bench::new();
    bench.agent(
        "[[model]]\ntext = \"half\"\ntool_calls = [{ id = \"c1\", name = \"fails\" }]\n\
         [[model]]\ntext = \"partial\"\nerror = { kind = \"quota_exhausted\" }\n",
        "[store]\nurl = \"sqlite:x.db\"\n[[tools]]\nkind = \"command\"\nname = \"fails\"\n\
         description = \"d\"\ncapabilities = []\ncommand = [\"false\"]\n",
    );
    let ran = bench.run(&["run", "agent.toml", "--session", "my s"]).fails(1, "quota");
    assert_eq!(ran.out, "", "what a failed run had of an answer is none");
    let runs = bench.run(&["runs", "--json", "--store", "sqlite:x.db"]).ok().json();
    let errors = bench.run(&["errors", "list", "--json", "--store", "sqlite:x.db"]).ok().json();
    let named = [
        format!("backstop resume {} --reopen --store", runs[0]["run"].as_str().unwrap()),
        format!("backstop trace {} --store", runs[0]["run"].as_str().unwrap()),
        format!("backstop errors show {} --store", errors[0]["id"].as_str().unwrap()),
    ];
    for command in named {
        assert!(ran.err.contains(&format!("\n  {command}")), "{command}: {}", ran.err);
    }
    let well = bench.run(&["run", "agent.toml", "--json"]).fails(1, "");
    assert_eq!(well.json().len(), 1);
}

/// Returns the commands in a text of help.
fn commands(help: &str) -> Vec<String> {
    let listed = help.split("\nOptions:").next().unwrap().lines();
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split("  ").next());
    let is_name = |name: &&str| name.starts_with(char::is_alphabetic) && !name.contains(' ');
    names.filter(is_name).filter(|name| *name != "help").map(ToOwned::to_owned).collect()
}

/// Spec: C1. The page names the commands without `--json`.
#[test]
fn every_command_but_those_named_takes_json() {
    let bench = Bench::new();
    let mut without = Vec::new();
    for command in commands(&bench.run(&["--help"]).ok().out) {
        let help = bench.run(&[&command, "--help"]).ok().out;
        if !help.contains("Commands:") {
            without.extend((!help.contains("--json")).then_some(command));
            continue;
        }
        for below in commands(help.split("Commands:").nth(1).unwrap()) {
            let help = bench.run(&[&command, &below, "--help"]).ok().out;
            assert!(help.contains("--json"), "{command} {below}");
        }
    }
    without.sort();
    assert_eq!(without, ["chat", "completions", "man", "mcp"]);
    let page = std::fs::read_to_string(repository().join("docs/command-line.md")).unwrap();
    let named: Vec<String> = without.iter().map(|name| format!("`{name}`")).collect();
    assert!(page.contains(&format!("`--json` (all but {})", named.join(", "))));
}
