//! Each exit code, with the output for people.

use crate::bench::Bench;
use crate::sqlite;

const SAYS: &str = "[[model]]\ntext = \"ok\"\n";

/// Spec: C3
#[test]
fn a_failed_run_exits_1() {
    let bench = Bench::new();
    bench.agent("[[model]]\nerror = { kind = \"quota_exhausted\" }\n", "");
    let ran =
        bench.run(&["run", "agent.toml"]).fails(1, "provider.quota_exhausted: quota exhausted");
    assert!(ran.err.contains("hint: Raise the limit or top up"), "{}", ran.err);
    bench.run(&["runs"]).ok();
}

/// Spec: C3
#[test]
fn a_configuration_mistake_exits_2_and_says_where() {
    let bench = Bench::new();
    bench.agent(SAYS, "[store]\nurll = \"sqlite:x.db\"\n");
    let ran = bench.run(&["run", "agent.toml"]).fails(2, "agent.toml:7: unknown field `urll`");
    assert!(ran.err.contains("hint: did you mean `url`?"), "{}", ran.err);
    bench.run(&["run", "nowhere.toml"]).fails(2, "nowhere.toml: cannot be read: No such file");
    bench.run(&["run"]).fails(2, "AGENT.toml");
    bench.run(&["dance"]).fails(2, "unrecognized subcommand");

    bench.agent(SAYS, "[store]\nurl = \"mysql://x\"\n");
    bench.run(&["run", "agent.toml"]).fails(2, "expected `sqlite:PATH`");
    bench.run(&["runs", "--store", "postgres://x@127.0.0.1:1"]).fails(5, "cannot reach");
    bench.agent(SAYS, "[agent.limits]\n");
    bench.run(&["run", "agent.toml"]).ok();
    bench.write("agent.toml", "[model]\nprovider = \"script\"\nscript = \"script.toml\"\n");
    bench.run(&["run", "agent.toml"]).fails(2, "there is nothing to ask");
    bench.write(
        "agent.toml",
        "[agent]\ninput = \"x\"\n[model]\nprovider = \"openai\"\nmodel = \"m\"\n",
    );
    bench.run(&["run", "agent.toml"]).fails(2, "OPENAI_API_KEY");
    bench.write(
        "agent.toml",
        "[agent]\ninput = \"x\"\n[model]\nprovider = \"gemini\"\nmodel = \"m\"\n",
    );
    bench.run(&["run", "agent.toml"]).fails(2, "GEMINI_API_KEY");
    bench.run(&["errors", "show", "err_0"]).fails(2, "no error `err_0`");
    bench.run(&["codes", "nonsense"]).fails(2, "no code begins with `nonsense`");
}

#[test]
fn limit_that_cannot_hold_is_refused() {
    let bench = Bench::new();
    bench.agent(SAYS, "");
    let text = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    bench.write("agent.toml", &format!("{text}[agent.limits]\nmax_iterations = 0\n"));
    bench.run(&["run", "agent.toml"]).fails(2, "`max_iterations` must be at least 1");
}

/// Spec: C3
#[test]
fn cut_answer_exits_3_and_is_printed() {
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"half an\"\nstop_reason = \"max_tokens\"\n", "");
    let ran = bench.run(&["run", "agent.toml"]).fails(3, "incomplete (model.max_tokens)");
    assert_eq!(ran.out, "half an\n");
}

/// Spec: C3
#[test]
fn storage_that_cannot_be_used_exits_5() {
    let bench = Bench::new();
    bench.agent(SAYS, "");
    bench.write("diary.db", "dear diary, this is not a database at all");
    for command in [["trace", "run_0"], ["resume", "run_0"], ["replay", "run_0"], ["diff", "run_0"]]
    {
        let more: &[&str] = match command[0] {
            "diff" => &["run_1"],
            _ => &[],
        };
        bench.run(&[&command[..], more].concat()).fails(2, "no run `run_0`");
    }
    bench.run(&["fork", "run_0", "--at", "1"]).fails(2, "no run `run_0`");
    for command in [&["run", "agent.toml"][..], &["runs"], &["trace", "run_0"], &["errors", "list"]]
    {
        let args = [command, &["--store", "sqlite:diary.db"]].concat();
        bench.run(&args).fails(5, "cannot open database `diary.db`: ");
    }
    assert!(
        std::fs::read_to_string(bench.path().join("diary.db")).unwrap().starts_with("dear diary")
    );
    bench.run(&["runs", "--store", "sqlite:none.db"]).fails(5, "no database at `none.db`");
    bench
        .run(&["run", "agent.toml", "--store", "sqlite:/proc/none/x.db"])
        .fails(5, "cannot open database");
}

/// Spec: S8, C3. The file is moved or removed while a run writes it: what it does then has no record.
#[cfg(unix)]
#[test]
fn lost_database_file_exits_5() {
    for lose in ["mv x.db y.db", "rm x.db x.db-wal x.db-shm", "cp x.db y.db; mv y.db x.db"] {
        let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
        bench.agent(
            "[[model]]\ntool_calls = [{ id = \"a\", name = \"lose\" }]\n[[model]]\n\
             tool_calls = [{ id = \"b\", name = \"act\" }]\n[[model]]\ntext = \"ok\"\n",
            &format!(
                "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\nname = \"lose\"\n\
                 description = \"d\"\ncommand = [\"sh\", \"-c\", \"{lose}\"]\n[[tools]]\nkind = \"command\"\n\
                 name = \"act\"\ndescription = \"d\"\ncommand = [\"touch\", \"acted\"]\n"
            ),
        );
        let ran = bench.run(&["run", "agent.toml"]);
        let ran = ran.fails(5, "is not the file any more that was opened");
        assert!(!bench.path().join("acted").exists(), "{lose}: nothing later is done");
        assert!(ran.err.contains("put it back together with its -wal and -shm"), "{}", ran.err);
    }
}

/// Spec: C3
#[test]
fn changed_log_exits_6_naming_the_event() {
    let bench = Bench::new();
    bench.agent(SAYS, "");
    bench.run(&["run", "agent.toml", "--store", "sqlite:x.db"]).ok();
    let run =
        bench.run(&["runs", "--store", "sqlite:x.db", "--json"]).ok().json()[0]["run"].clone();
    let changed =
        "UPDATE events SET data = replace(data, 'ok', 'no') WHERE type = 'model.responded'";
    sqlite::execute(&bench.path().join("x.db"), changed);
    bench
        .run(&["trace", run.as_str().unwrap(), "--store", "sqlite:x.db"])
        .fails(6, "hash chain broken at seq 4");
}

#[test]
fn invalid_agent_file_leaves_no_store() {
    let bench = Bench::new();
    bench.write(
        "agent.toml",
        "[agent]\ninput = \"x\"\n[model]\nprovider = \"script\"\nscript = \"none.toml\"\n",
    );
    bench
        .run(&["run", "agent.toml", "--store", "sqlite:new/x.db"])
        .fails(2, "none.toml: cannot be read");
    bench
        .agent(SAYS, "[[tools]]\nkind = \"builtin\"\nname = \"fs_read\"\ncapabilities = [\"x\"]\n");
    bench
        .run(&["run", "agent.toml", "--store", "sqlite:new/x.db"])
        .fails(2, "`capabilities` does not apply to it");
    assert!(!bench.path().join("new").exists());
}

/// A tool that writes escape sequences cannot steer the terminal or forge a line. Spec: D10
#[test]
fn what_the_model_says_cannot_steer_a_trace() {
    let bench = Bench::new();
    bench.agent(
        "[[model]]\ntool_calls = [{ id = \"c\", name = \"a\\u001B]0;x\\u0007\\nforged line\" }]\n[[model]]\ntext = \"ok\"\n",
        "[store]\nurl = \"sqlite:x.db\"\n",
    );
    let ran = bench.run(&["run", "agent.toml"]).ok();
    let store = ["--store", "sqlite:x.db"];
    let run = bench.run(&[&["runs", "--json"], &store[..]].concat()).ok().json()[0]["run"].clone();
    let trace = bench.run(&[&["trace", run.as_str().unwrap()], &store[..]].concat()).ok().out;
    for text in [&trace, &ran.err] {
        assert!(!text.contains('\u{1b}') && !text.contains("\nforged"), "{text:?}");
    }
}

/// Spec: C4, C5
#[test]
fn out_of_range_values_are_refused_first() {
    let bench = Bench::new();
    for (line, more, said) in [
        (6, "temperature = 9\n", "`temperature` must be from 0 to 2, and is 9"),
        (6, "temperature = nan\n", "`temperature` must be from 0 to 2, and is NaN"),
        (7, "[agent.limits]\ntool_timeout_ms = 0\n", "`tool_timeout_ms` must be at least 1"),
        (7, "[agent.policy]\ngrant = [\"fs:raed:x\"]\n", "grant `fs:raed:x` is not valid"),
        (
            9,
            "[[tools]]\nkind = \"command\"\nname = \"t\"\ntimeout_ms = 0\n",
            "`timeout_ms` must be",
        ),
        (
            9,
            "[[tools]]\nkind = \"command\"\nname = \"t\"\nschema = {}\n",
            "`schema` must have `type",
        ),
        (8, "[[tools]]\nkind = \"command\"\nname = \"\"\n", "tool: the name `` is empty"),
    ] {
        bench.agent(SAYS, more);
        let ran = bench.run(&["run", "agent.toml"]).fails(2, said);
        assert!(ran.err.contains(&format!("agent.toml:{line}: ")), "{}", ran.err);
    }
    bench.agent(SAYS, "");
    for args in [
        &["run", "agent.toml", "--session", ""][..],
        &["run", "agent.toml", "--session", " "],
        &["approve", "apr_1", "--by", ""],
        &["approve", "apr_1", "--by", "\t "],
        &["deny", "apr_1", "--by", "", "--reason", "no"],
        &["sessions", "forget", ""],
        &["sessions", "forget", "s", "--by", ""],
        &["runs", "--session", ""],
        &["errors", "list", "--tool", ""],
    ] {
        bench.run(args).fails(2, "must not be empty");
    }
    let long = "s".repeat(257);
    for (command, name, why) in [
        ("run", "a\nb", "it must not have control characters"),
        ("chat", "a\u{1b}b", "it must not have control characters"),
        ("run", &long, "it must have at most 256 bytes"),
    ] {
        bench.run(&[command, "agent.toml", "--session", name]).fails(2, why);
    }
    assert!(!bench.files().iter().any(|file| file.extension().is_some_and(|end| end == "db")));
}
