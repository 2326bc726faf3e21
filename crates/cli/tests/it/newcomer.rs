//! Failures of a first day, and their messages.

use crate::bench::{Bench, repository};

const SAYS: &str = "[[model]]\ntext = \"ok\"\n";

fn bench() -> Bench {
    let bench = Bench::new();
    bench.agent(SAYS, "");
    bench
}

/// Spec: C4, E7
#[test]
fn store_without_a_scheme_names_the_supported_ones() {
    let ran = bench().run(&["run", "agent.toml", "--store", "x.db"]);
    ran.fails(2, "expected `sqlite:PATH`, `sqlite::memory:` or `postgres://…`");
}

/// Spec: E7
#[test]
fn foreign_file_as_store_has_a_hint() {
    let bench = bench();
    let ran = bench.run(&["run", "agent.toml", "--store", "sqlite:agent.toml"]);
    let ran = ran.fails(5, "error: cannot open database `agent.toml`: ");
    assert!(ran.err.contains("\n  hint: it has to be a file that Backstop made"), "{}", ran.err);
}

#[test]
fn a_limit_of_nothing_is_refused() {
    let bench = bench();
    bench.run(&["run", "agent.toml"]).ok();
    for list in [&["runs"][..], &["errors", "list"], &["errors", "stats"]] {
        let ran = bench.run(&[list, &["--limit", "0"]].concat());
        ran.fails(2, "invalid value '0' for '--limit <N>'");
        bench.run(&[list, &["--limit", "1"]].concat()).ok();
    }
}

#[test]
fn unreadable_log_filter_is_named() {
    let bench = bench().with("BACKSTOP_LOG", "debug=nonsense");
    let ran = bench.run(&["runs"]).ok();
    assert!(ran.err.starts_with("warning: BACKSTOP_LOG is not used: "), "{}", ran.err);
    let bench = self::bench().with("BACKSTOP_LOG", "");
    assert!(!bench.run(&["runs"]).ok().err.contains("warning"));
}

/// A copy begins when its run began; what it says of itself is the time that it ran.
///
/// Spec: D7
#[test]
fn a_copy_says_how_long_it_ran_itself() {
    let bench = bench().with("BACKSTOP_STORE", "sqlite:x.db");
    let run = bench.run(&["run", "agent.toml", "--json"]).ok().json().remove(0);
    let copy = bench.run(&["fork", run["run"].as_str().unwrap(), "--at", "2"]).ok();
    let listed = bench.run(&["runs", "--limit", "1"]).ok();
    let took = listed.out.lines().nth(1).unwrap().split_whitespace().nth(4).unwrap().to_owned();
    assert!(copy.err.contains(&format!(" completed in {took}: ")), "{took}: {}", copy.err);
}

/// Spec: C6
#[test]
fn the_scenario_of_the_page_passes() {
    let page = std::fs::read_to_string(repository().join("docs/scenarios.md")).unwrap();
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let bench = Bench::new();
    bench.write("page.toml", rest.split_once("```").unwrap().0);
    let ran = bench.run(&["rehearse", "page.toml"]).ok();
    assert_eq!(ran.err, "1 of 1 scenario passes\n", "{}", ran.out);
}

/// Spec: C5. What only building the agent shows has a line too, and says what to do.
#[test]
fn mistakes_of_the_whole_name_line_and_remedy() {
    for (more, line, what, hint) in [
        ("tool_choice = \"required\"\n", 3, "the agent has no tool", "add a `[[tools]]` table"),
        (
            "[agent.budget]\nmax_cost_usd = 1\n",
            6,
            "`max_cost_usd` needs a price",
            "add `[agent.price]` with",
        ),
        (
            "[store]\nurl = \"postgres://localhost:many/x\"\n",
            6,
            "invalid URL of a PostgreSQL database",
            "write postgres://",
        ),
    ] {
        let bench = Bench::new();
        bench.agent(SAYS, more);
        let ran = bench.run(&["check", "agent.toml"]).fails(2, "1 mistake");
        assert!(ran.out.starts_with(&format!("agent.toml:{line}: ")), "{}", ran.out);
        assert!(
            ran.out.contains(what) && ran.out.contains(&format!("hint: {hint}")),
            "{}",
            ran.out
        );
        bench.run(&["run", "agent.toml"]).fails(2, hint);
    }
}

/// Spec: E7. A file that is not there is named with the key that names it.
#[test]
fn missing_file_says_which_key_names_it() {
    let bench = bench();
    let file = "[agent]\ninput = \"x\"\ninstructions_file = \"no.md\"\n[model]\nprovider = \"script\"\nscript = \"no.toml\"\n";
    bench.write("agent.toml", file);
    let ran = bench.run(&["check", "agent.toml"]).fails(2, "2 mistakes");
    assert!(ran.out.contains("no.md: cannot be read"), "{}", ran.out);
    assert!(ran.out.contains("hint: `instructions_file` names it"), "{}", ran.out);
    assert!(ran.out.contains("hint: `script` in [model] names it"), "{}", ran.out);
}

/// Spec: C6, E7
#[test]
fn a_missing_scenario_has_a_hint() {
    let bench = Bench::new();
    let ran = bench.run(&["rehearse", "no.toml"]).fails(2, "no.toml: cannot be read");
    assert!(ran.err.contains("hint: name a scenario file that is there"), "{}", ran.err);
    std::fs::create_dir(bench.path().join("all")).unwrap();
    bench.run(&["rehearse", "all"]).fails(2, "hint: name the files in it: all/*.toml");
}

#[test]
fn a_file_without_a_command_has_a_tip() {
    let bench = bench();
    bench.write("scenario.toml", "name = \"x\"\ninput = \"y\"\n[[model]]\ntext = \"a\"\n");
    for (file, tip) in [
        ("agent.toml", "an agent file is run with `backstop run agent.toml`"),
        ("./agent.toml", "an agent file is run with `backstop run ./agent.toml`"),
        ("absent.toml", "an agent file is run with `backstop run absent.toml`"),
        ("scenario.toml", "a scenario is run with `backstop rehearse scenario.toml`"),
    ] {
        let ran = bench.run(&[file]).fails(2, &format!("\n\n  tip: {tip}\n"));
        assert!(ran.err.starts_with(&format!("error: unrecognized subcommand '{file}'\n")));
        let json = bench.run(&[file, "--json"]).fails(2, "");
        let error: serde_json::Value = serde_json::from_str(&json.err).unwrap();
        assert!(error["hint"].as_str().unwrap().contains(tip), "{error}");
    }
    let steers = bench.run(&["a\u{1b}[2J.toml"]).fails(2, "tip: an agent file");
    assert!(!steers.err.contains('\u{1b}'), "{}", steers.err);
    assert!(!bench.run(&["rnu"]).fails(2, "run").err.contains("agent file is run"));
}

#[test]
fn files_of_the_other_kind_are_told_apart() {
    let bench = bench();
    let scenario = "name = \"x\"\ninput = \"y\"\n[[model]]\ntext = \"a\"\n";
    bench.write("scenario.toml", scenario);
    bench.run(&["rehearse", "scenario.toml"]).ok();
    let rehearse = "hint: it is a scenario: `backstop rehearse scenario.toml`";
    bench.run(&["run", "scenario.toml"]).fails(2, rehearse);
    bench.run(&["chat", "scenario.toml"]).fails(2, rehearse);
    bench.run(&["check", "scenario.toml"]).fails(2, &rehearse["hint: ".len()..]);
    let run = "hint: it is an agent file: `backstop run agent.toml`";
    bench.run(&["rehearse", "agent.toml"]).fails(2, run);
}
