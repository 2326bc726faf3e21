//! Commands for the first steps: `init`, `check`, `doctor`, `completions`, `man`.

use backstop_provider::ScriptedAnswer;
use backstop_testkit::{ClosedPort, ScriptedEndpoint};
use serde_json::Value;

use crate::bench::Bench;
use crate::postgres::{database, execute_in};
use crate::sqlite::{execute, root_page};

/// Spec: W8
#[test]
fn init_writes_an_agent_that_runs_at_once() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let ran = bench.run(&["init"]).ok();
    assert_eq!(ran.out, "agent.toml\nscript.toml\n");
    bench.run(&["check", "agent.toml"]).ok();
    let ran = bench.run(&["run", "agent.toml"]).ok();
    assert!(ran.out.starts_with("This folder holds an agent: agent.toml says"), "{}", ran.out);
    assert_eq!(ran.err.matches("✓ fs_").count(), 2, "{}", ran.err);
    let agent = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    assert!(agent.contains("\n# [store]\n# url ="), "{agent}");
    // Each commented line is valid in the format.
    let all = agent.replace("# [[model.fallback]]", "[[model.fallback]]");
    let all = all.replace("# provider = \"openai\"", "provider = \"openai\"");
    let all = all.replace("# model = \"gpt-5-mini\"", "model = \"gpt-5-mini\"");
    let all = all.replace("# [store]\n# url", "[store]\nurl").replace("# max_cost", "max_cost");
    bench.write("all.toml", &all);
    let ran = bench.run(&["check", "all.toml"]).fails(2, "1 mistake");
    assert!(ran.out.contains("price"), "{}", ran.out);
}

#[test]
fn init_overwrites_nothing() {
    let bench = Bench::new();
    bench.write("script.toml", "mine");
    bench.run(&["init"]).fails(2, "script.toml: is there already");
    assert_eq!(bench.files().len(), 1);
    bench.write("agent.toml", "mine");
    bench.run(&["init"]).fails(2, "agent.toml and script.toml: are there already");
    let keyed = Bench::new().with("OPENAI_API_KEY", "sk-0123456789");
    keyed.write("script.toml", "mine");
    assert_eq!(keyed.run(&["init", "mine.toml"]).ok().out, "mine.toml\n", "a key is there");
    let agent = std::fs::read_to_string(keyed.path().join("mine.toml")).unwrap();
    assert!(agent.contains("\nprovider = \"openai\""), "{agent}");
    assert!(!agent.contains("0123456789"), "{agent}");
    keyed.run(&["check", "mine.toml"]).ok();
    keyed.run(&["init", "none/x.toml"]).fails(2, "none/x.toml: cannot be written");
}

/// Spec: W8, C5
#[test]
fn check_finds_every_mistake_and_needs_no_key() {
    let bench = Bench::new();
    bench.write(
        "agent.toml",
        "[agent]\nnmae = \"x\"\n[model]\nprovider = \"anthropic\"\n[store]\nurl = \"mysql://x\"\n\
         [[tools]]\nkind = \"command\"\nname = \"a\"\ndescription = \"d\"\n[[tools]]\nkind = \"builtin\"\n\
         name = \"fs_raed\"\n[[tools]]\nkind = \"command\"\nname = \"b\"\ntimeout = 3\n[[tools]]\n\
         kind = \"command\"\nname = \"c\"\ncommand = [\"true\"]\ndescription = \"d\"\ncwd = \"none\"\n",
    );
    let ran = bench.run(&["check", "agent.toml"]).fails(2, "15 mistakes");
    let lines: Vec<&str> = ran.out.lines().filter(|line| !line.starts_with("  hint")).collect();
    for expected in [
        "agent.toml:2: unknown field `nmae`",
        "agent.toml:3: [model] names no model",
        "agent.toml:5: invalid store URL `mysql://x`",
        "agent.toml:7: tool `a` has no command",
        "agent.toml:7: tool `a` has no `schema`",
        "agent.toml:11: there is no built-in tool `fs_raed`",
        "agent.toml:14: tool `b` has no command",
        "agent.toml:14: tool `b` has no description",
        "agent.toml:17: unknown field `timeout`",
        "agent.toml:18: tool `c` runs in `",
    ] {
        let found = lines.iter().filter(|line| line.starts_with(expected)).count();
        assert_eq!(found, 1, "{expected}: {}", ran.out);
    }
    assert_eq!(lines.len(), 15, "{}", ran.out);
    assert!(ran.out.contains("  hint: did you mean `name`?\n"), "{}", ran.out);
    let json = bench.run(&["check", "agent.toml", "--json"]).fails(2, "").json();
    assert_eq!((json.len(), &json[0]["line"]), (15, &2.into()));
    assert_eq!(json[0]["hint"], "did you mean `name`?");
    bench.write("good.toml", "[model]\nprovider = \"anthropic\"\nmodel = \"m\"\n");
    assert_eq!(bench.run(&["check", "good.toml"]).ok().err, "good.toml: no mistake\n");
    bench.run(&["check", "none.toml"]).fails(2, "none.toml: cannot be read");
    assert!(!bench.files().iter().any(|file| file.extension().is_some_and(|it| it == "db")));
}

fn finding(findings: &[Value], check: &str) -> Value {
    findings.iter().find(|finding| finding["check"] == check).unwrap().clone()
}

/// Spec: W8
#[test]
fn doctor_says_what_needs_mending() {
    let bench = Bench::new();
    let ran = bench.run(&["doctor"]).ok();
    assert!(ran.out.contains("is made by the first run"), "{}", ran.out);
    assert!(ran.out.contains("MiB free"), "{}", ran.out);
    assert!(bench.files().is_empty(), "it creates nothing");

    let closed = ClosedPort::bind();
    let unbound = closed.address();
    let agent = |url: &str| {
        format!(
            "[model]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"{url}\"\napi_key_env = \"MY_KEY\"\n"
        )
    };
    bench.write("agent.toml", &agent(&format!("http://{unbound}/v1")));
    let keyless = bench.run(&["doctor", "agent.toml", "--json"]).fails(1, "").json();
    let keys = finding(&keyless, "keys");
    assert_eq!(keys["state"], "mend");
    assert!(keys["message"].as_str().unwrap().contains("MY_KEY"), "{keys}");
    assert!(keys["hint"].is_string(), "{keys}");

    let bench = bench.with("MY_KEY", "canary-key-0123456789");
    let silent = bench.run(&["doctor", "agent.toml", "--json"]).fails(1, "").json();
    let endpoint = finding(&silent, "endpoint");
    assert_eq!(endpoint["state"], "mend");
    assert!(endpoint["message"].as_str().unwrap().contains("cannot be reached"), "{endpoint}");
    assert!(endpoint["hint"].as_str().unwrap().starts_with("is it running"), "{endpoint}");
    assert!(!format!("{silent:?}").contains("canary-key"));

    bench.write("diary.db", "dear diary, this is not a database at all");
    let foreign = bench.run(&["doctor", "--store", "sqlite:diary.db"]).fails(1, "needs mending");
    assert!(foreign.out.starts_with('-') && foreign.out.contains("mend  store"), "{}", foreign.out);
    bench.write("bad.toml", "[agent]\nnmae = 1\n");
    let bad = bench.run(&["doctor", "bad.toml"]).fails(1, "");
    let mend = |what: &str| format!("mend  agent     bad.toml:{what}\n");
    let missing = mend("1: missing field `model`") + "      hint: add a `[model]` table";
    let unknown = mend("2: unknown field `nmae`") + "      hint: did you mean `name`?";
    assert!(bad.out.contains(&missing) && bad.out.contains(&unknown), "{}", bad.out);
}

/// Spec: W8. Of the machine that wrote the run, or of this one.
#[test]
fn doctor_finds_a_clock_that_was_ahead() {
    let mut stores = vec!["sqlite:x.db".to_owned()];
    stores.extend(database());
    for store in stores {
        let bench = Bench::new().with("BACKSTOP_STORE", &store);
        bench.agent("[[model]]\ntext = \"hello\"\n", "");
        bench.run(&["run", "agent.toml"]).ok();
        let clock = "the newest run of the store began in the future";
        assert!(!bench.run(&["doctor"]).ok().out.contains(clock));
        let year = bench.run(&["runs", "--json"]).ok().json()[0]["started_at"].as_str().unwrap()
            [..4]
            .to_owned();
        let later = format!(
            "SET summary = replace(summary, '\"started_at\":\"{year}', '\"started_at\":\"2999')"
        );
        match store.strip_prefix("sqlite:") {
            Some(file) => execute(&bench.path().join(file), &format!("UPDATE runs {later}")),
            None => execute_in(&store, &format!("UPDATE backstop.runs {later}")),
        }
        let said = bench.run(&["doctor"]).fails(1, "");
        assert!(said.out.contains(clock) && said.out.contains("set the clock"), "{}", said.out);
    }
}

/// Spec: W8, S8. Damage of a file is found before a command needs the damaged page.
#[test]
fn doctor_finds_a_damaged_store() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    bench.run(&["run", "agent.toml"]).ok();
    bench.run(&["doctor"]).ok();
    let path = bench.path().join("x.db");
    let page = root_page(&path, "results");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 8_192], (page - 1) * 8_192).unwrap();
    let doctor = bench.run(&["doctor"]).fails(1, "");
    let (_, said) = doctor.out.split_once("mend  store     x.db is damaged: ").unwrap();
    assert!(said.contains("hint: keep the file, and restore a backup"), "{said}");
    bench.run(&["runs"]).ok();
}

/// Spec: S8, E7
#[test]
fn damaged_and_absent_stores_are_told_apart() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    for args in [&["runs"][..], &["runs", "--stuck"], &["approvals"], &["costs"]] {
        let ran = bench.run(args).ok();
        assert!(ran.err.contains("sqlite:x.db, which is no file yet"), "{args:?}: {}", ran.err);
    }
    bench.run(&["run", "agent.toml"]).ok();
    let file = std::fs::OpenOptions::new().write(true).open(bench.path().join("x.db")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 4_096], 100).unwrap();
    for args in [&["runs"][..], &["run", "agent.toml"], &["backup", "copy.db"]] {
        let ran = bench.run(args).fails(5, "database `x.db` is damaged");
        assert!(ran.err.contains("hint: restore a backup"), "{args:?}: {}", ran.err);
    }
}

/// Spec: W8. A hint says how to mend it, and names no command that says the same again.
#[test]
fn hints_of_broken_files_lead_on() {
    let bench = Bench::new();
    let tool = "[[tools]]\nkind = \"command\"\nname = \"t\"\ndescription = \"d\"\ncommand = [\"true\"]\n\
        cwd = \"gone\"\nschema = { type = \"object\" }\n";
    bench.agent("[[model]]\ntext = \"hi\"\n", tool);
    let said = "tool `t` runs in `./gone`, which is no folder";
    let tools = bench.run(&["tools", "agent.toml"]).fails(2, said);
    let checked = bench.run(&["check", "agent.toml"]).fails(2, "");
    assert!(checked.out.contains(said), "{}", checked.out);
    let doctor = bench.run(&["doctor", "agent.toml"]).fails(1, "");
    let (_, mend) = doctor.out.split_once("mend  tools     agent.toml:").unwrap();
    assert!(mend.lines().next().unwrap().ends_with(said), "{mend}");
    assert!(!mend.contains("backstop check"), "{mend}");
    assert!(!tools.err.contains("backstop tools"), "{}", tools.err);
    assert!(tools.err.contains("agent.toml:"), "{}", tools.err);
}

fn endpoint() -> ScriptedEndpoint {
    let says = ScriptedAnswer::saying("ready");
    ScriptedEndpoint::openai(vec![says])
}

#[test]
fn doctor_asks_nothing_paid_without_a_terminal() {
    let server = endpoint();
    let bench = Bench::new();
    let url = server.base_url();
    bench.write(
        "agent.toml",
        &format!("[model]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"{url}\"\n"),
    );
    let ran = bench.run(&["doctor", "agent.toml"]).ok();
    assert!(ran.out.contains("can be reached; openai m was not asked for a word"), "{}", ran.out);
    assert_eq!(server.count(), 0);
    #[cfg(unix)]
    for (answer, count, said) in [("n\n", 0, "was not asked"), ("y\n", 1, "openai m answers")] {
        let terminal = bench.at_terminal("y\n", &["doctor", "agent.toml"]);
        terminal.wait_for("[y]es, [n]o: ", 1);
        terminal.type_in(answer);
        let (code, screen) = terminal.end();
        assert_eq!((code, server.count()), (0, count), "{screen}");
        assert!(screen.contains(said), "{screen}");
    }
}

#[test]
fn completions_are_scripts_of_their_shells() {
    let bench = Bench::new();
    for (shell, has) in
        [("bash", "complete -F"), ("zsh", "#compdef backstop"), ("fish", "complete -c backstop")]
    {
        let script = bench.run(&["completions", shell]).ok().out;
        assert!(script.contains(has) && script.contains("rehearse"), "{shell}");
        if shell == "bash" {
            bench.write("script.sh", &script);
            let checked = std::process::Command::new("bash")
                .args(["-n", "script.sh"])
                .current_dir(bench.path())
                .status();
            assert!(checked.unwrap().success());
        }
    }
    bench.run(&["completions", "abacus"]).fails(2, "invalid value 'abacus'");
}

#[test]
fn the_manual_page_has_every_command() {
    let bench = Bench::new();
    let page = bench.run(&["man"]).ok().out;
    assert!(page.contains(".TH backstop 1"), "{}", &page[..200]);
    for command in
        ["BACKSTOP RUN", "BACKSTOP ERRORS STATS", "BACKSTOP DOCTOR", "BACKSTOP RUNS PRUNE"]
    {
        assert!(page.contains(&format!("\n.SH {command}\n")), "{command}");
    }
    assert!(page.contains("\\-\\-events"), "options are described");
}
