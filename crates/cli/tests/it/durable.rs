//! Runs that outlive their processes, through the command.

use serde_json::Value;

use crate::bench::Bench;
use crate::running::{ASKS, REFUNDS};

/// Spec: C2, A1, D5, D6, D7
#[test]
fn waiting_run_is_served_by_other_processes() {
    serves_a_waiting_run("sqlite:x.db", "sqlite:y.db");
}

/// Decides and resumes a run, each in a process of its own, and copies it to another store.
pub(crate) fn serves_a_waiting_run(store: &str, other_store: &str) {
    let bench = Bench::new().with("BACKSTOP_STORE", store);
    bench.agent(REFUNDS, &ASKS.replace("sqlite:x.db", store));
    let waiting = bench.run(&["run", "agent.toml", "--json"]).fails(4, "").json().remove(0);
    let run = waiting["run"].as_str().unwrap();
    let open = bench.run(&["approvals", "--json"]).ok().json().remove(0);
    assert_eq!((&open["run"], &open["tool"]), (&waiting["run"], &"refund".into()));
    assert_eq!(open["arguments"]["order"], 7);
    let mut keys: Vec<&String> = open.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(keys, ["arguments", "id", "requested_at", "run", "tool"]);
    let id = open["id"].as_str().unwrap();

    bench.run(&["resume", run]).fails(4, id);
    bench.run(&["approve", "apr_none", "--by", "ada"]).fails(2, "no open approval `apr_none`");
    let approved = bench.run(&["approve", id, "--by", "ada"]).ok();
    assert!(approved.err.contains("goes on by itself; where none has:"), "{}", approved.err);
    bench.run(&["deny", id, "--by", "bob", "--reason", "no"]).fails(2, "no open approval");
    let done = bench.run(&["resume", run, "--json"]).ok().json().remove(0);
    assert_eq!((&done["outcome"], &done["output"]), (&"completed".into(), &"done".into()));
    assert_eq!(done["usage"]["tool_calls"], 1);
    let again = bench.run(&["resume", run, "--json"]).ok().json().remove(0);
    assert_eq!(again, done, "what is over is only told again");
    bench.run(&["replay", run]).ok();
    let replayed = bench.run(&["replay", run, "--json"]).ok().json().remove(0);
    assert_eq!(replayed["divergence"], Value::Null);

    let at = "4";
    let copy = bench.run(&["fork", run, "--at", at, "--json"]).fails(4, "").json().remove(0);
    assert_ne!(copy["session"], done["session"]);
    let parted = bench.run(&["diff", run, copy["run"].as_str().unwrap(), "--json"]).ok();
    assert_eq!(parted.json()[0]["parts_at"], 5);
    bench.run(&["fork", run, "--at", "99"]).fails(2, "no event 99, its last one is 14");

    // An agent with another prompt is another agent.
    let agent = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    bench.write("rude.toml", &agent.replace("[agent]", "[agent]\ninstructions = \"Be rude.\""));
    bench.run(&["replay", run, "--agent", "rude.toml"]).fails(6, "at seq 1: agent");
    bench.run(&["replay", run, "--agent", "agent.toml"]).ok();
    let other = ["fork", run, "--at", "2", "--to", other_store, "--json"];
    let copy = bench.run(&other).fails(4, "").json().remove(0);
    let there = bench.run(&["runs", "--store", other_store, "--json"]).ok().json();
    assert_eq!(there[0]["run"], copy["run"]);
}

/// Spec: D5. A session goes on in another process, and waits for no process that died.
#[test]
fn a_session_goes_on_in_another_process() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent("[[model]]\ntext = \"Hello Ada.\"\n", "");
    let ask = |input: &str| {
        bench.run(&["run", "agent.toml", "--session", "s-1", "--input", input, "--json"]).ok()
    };
    ask("I am Ada.");
    let second = ask("Who am I?").json().remove(0);
    let asked = second["events"].as_array().unwrap().iter();
    let messages: Vec<u64> = asked
        .filter(|event| event["type"] == "model.requested")
        .map(|event| event["data"]["messages"].as_u64().unwrap())
        .collect();
    assert_eq!(messages, [3], "the input, with the input and the answer before it");
    bench.run(&["replay", second["run"].as_str().unwrap()]).ok();
}

/// Spec: D5. What is over is told without anything that it needed.
#[test]
fn finished_run_needs_no_agent() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent("[[model]]\ntext = \"done\"\n", "");
    let done = bench.run(&["run", "agent.toml", "--json"]).ok().json().remove(0);
    bench.agent("[[model]]\nerror = { kind = \"invalid_request\" }\n", "");
    let failed = bench.run(&["run", "agent.toml", "--json"]).fails(1, "").json().remove(0);
    for file in ["agent.toml", "script.toml"] {
        std::fs::remove_file(bench.path().join(file)).unwrap();
    }
    for (run, code) in [(&done, 0), (&failed, 1)] {
        let again = bench.run(&["resume", run["run"].as_str().unwrap(), "--json"]).fails(code, "");
        let again = again.json().remove(0);
        for key in ["run", "outcome", "reason", "output", "usage", "events", "elapsed_ms"] {
            assert_eq!(again[key], run[key], "{key}");
        }
    }
    let last = bench.run(&["runs", "--json"]).ok().json().remove(0);
    assert_eq!(last["usage"], failed["usage"], "a run has one usage, wherever it is told");
}

/// Spec: D5. It is no silent success.
#[test]
fn resume_of_a_finished_run_did_nothing() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    for (answer, code, how) in [
        ("text = \"ok\"", 0, "completed at 20"),
        ("error = { kind = \"auth_failed\" }", 1, "failed (provider.auth_failed) at 20"),
        ("text = \"ok\"\nstop_reason = \"max_tokens\"", 3, "incomplete (model.max_tokens) at 20"),
    ] {
        bench.agent(&format!("[[model]]\n{answer}\n"), "");
        let run = bench.run(&["run", "agent.toml", "--json"]).fails(code, "").json().remove(0);
        let run = run["run"].as_str().unwrap();
        let said = format!("nothing was done: run {run} had ended before, {how}");
        let before = bench.run(&["trace", run, "--json"]).ok().out;
        bench.run(&["resume", run]).fails(code, &said);
        let json = bench.run(&["resume", run, "--json"]).fails(code, &said);
        assert_eq!(json.json()[0]["run"], run);
        assert_eq!(bench.run(&["trace", run, "--json"]).ok().out, before);
    }
}

/// Spec: D2. A file that says something else is what the run goes on with, as its record says; without a name of its own
/// it has the recorded one.
#[test]
fn resume_goes_on_with_the_named_file() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(REFUNDS, ASKS);
    let waiting = bench.run(&["run", "agent.toml", "--json"]).fails(4, "");
    let run = waiting.json()[0]["run"].as_str().unwrap().to_owned();
    let id = bench.run(&["approvals", "--json"]).ok().json()[0]["id"].as_str().unwrap().to_owned();
    bench.run(&["approve", &id, "--by", "ada"]).ok();
    let file = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    let file = file.replacen("[agent]\n", "[agent]\ninstructions = \"Be brief.\"\n", 1);
    assert!(file.contains("Be brief."), "{file}");
    bench.write("named.toml", &file.replacen("[agent]\n", "[agent]\nname = \"another\"\n", 1));
    bench.run(&["resume", &run, "--agent", "named.toml"]).fails(6, "not this agent's");
    bench.write("other.toml", &file);
    bench.run(&["resume", &run, "--agent", "other.toml"]).ok();
    let events = bench.run(&["export", &run]).ok().json();
    let resumed = events.iter().find(|event| event["type"] == "run.resumed").unwrap();
    let agent = &resumed["data"]["agent"];
    assert_eq!(agent["name"], "agent", "{agent}");
    assert_eq!(agent["definition"]["instructions"], "Be brief.", "{agent}");
    bench.run(&["replay", &run]).ok();
    // A copy of earlier events has the definition of that time.
    bench.run(&["fork", &run, "--at", "3"]).fails(4, "");
    let copy = bench.run(&["runs", "--json"]).ok().json().remove(0);
    let copy = bench.run(&["export", copy["run"].as_str().unwrap()]).ok();
    assert!(!copy.out.contains("Be brief."), "{}", copy.out);
}

/// Spec: D2, S9. Whatever holds a key, the record does not.
#[test]
fn no_key_reaches_the_record() {
    const KEY: &str = "a-key-of-nineteen-chars";
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db").with("MY_KEY", KEY);
    bench.write("script.toml", REFUNDS);
    let agent = format!(
        "[agent]\ninput = \"use {KEY}\"\ninstructions = \"The key is {KEY}.\"\n\
         [model]\nprovider = \"script\"\nscript = \"script.toml\"\napi_key_env = \"MY_KEY\"\n{}",
        ASKS.replace("command = [", &format!("command = [\"env\", \"TOKEN={KEY}\", "))
    );
    assert_ne!(agent.matches(KEY).count(), 2, "the command holds it too");
    bench.write("agent.toml", &agent);
    let waiting = bench.run(&["run", "agent.toml", "--json"]).fails(4, "");
    let run = waiting.json()[0]["run"].as_str().unwrap().to_owned();
    let id = bench.run(&["approvals", "--json"]).ok().json()[0]["id"].as_str().unwrap().to_owned();
    bench.run(&["approve", &id, "--by", "ada"]).ok();
    bench.run(&["resume", &run]).fails(2, "name the file with --agent FILE");
    let done = bench.run(&["resume", &run, "--agent", "agent.toml", "--json"]).ok();
    let trace = bench.run(&["trace", &run, "--json"]).ok();
    bench.run(&["trace", &run, "--html", "page.html"]).ok();
    bench.run(&["replay", &run]).ok();
    for text in [waiting.out, done.out, trace.out] {
        assert!(!text.contains(KEY), "{text}");
    }
    for file in bench.files() {
        if !file.ends_with("agent.toml") {
            let bytes = std::fs::read(&file).unwrap();
            let found = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
            assert!(!found, "{}", file.display());
        }
    }
}

/// Spec: D10
#[test]
fn trace_lines_cannot_be_forged() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(REFUNDS, ASKS);
    let waiting = bench.run(&["run", "agent.toml", "--json"]).fails(4, "").json().remove(0);
    let run = waiting["run"].as_str().unwrap();
    let id = bench.run(&["approvals", "--json"]).ok().json()[0]["id"].as_str().unwrap().to_owned();
    let eve = "eve\n  99      0.000s  run.finished          completed\u{1b}[31m\u{202e}";
    let noted = bench.run(&["approve", &id, "--by", eve]).ok();
    let resumed = bench.run(&["resume", run]).ok();
    let trace = bench.run(&["trace", run]).ok();
    let events = bench.run(&["trace", run, "--json"]).ok().json().len();
    assert_eq!(trace.out.lines().count(), events);
    for text in [noted.err, resumed.err, trace.out] {
        assert!(text.contains("eve 99 0.000s"), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
        assert!(!text.contains("\n  99 "), "{text}");
    }
}

/// Spec: D5, D8
#[test]
fn a_busy_session_says_what_it_waits_for() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(REFUNDS, ASKS);
    let ask = ["run", "agent.toml", "--session", "s-1"];
    bench.run(&ask).fails(4, "waiting for approval");
    let busy = bench.run(&ask).fails(2, "session `s-1` has another run");
    assert!(busy.err.contains("backstop approvals"), "{}", busy.err);
    assert!(!busy.err.contains("trace"), "there is nothing to look at: {}", busy.err);
    let busy = bench.run(&[&ask[..], &["--json"]].concat()).fails(2, "").json().remove(0);
    assert_eq!(busy["reason"], "run.open");
    assert_eq!(bench.run(&["runs", "--json"]).ok().json().len(), 1);
}

/// Spec: D11, C3. Nothing is written to a store that cannot be used.
#[test]
fn unusable_store_stays_unchanged() {
    let bench = Bench::new();
    bench.agent(REFUNDS, ASKS);
    let run = ["run", "agent.toml", "--store", "sqlite:good.db", "--json"];
    let run = bench.run(&run).fails(4, "").json().remove(0);
    let run = run["run"].as_str().unwrap();
    let good = std::fs::read(bench.path().join("good.db")).unwrap();
    let mut newer = good.clone();
    // The header has the user version at offset 60, <https://www.sqlite.org/fileformat.html>.
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    let garbage = b"dear diary".to_vec();
    let half = good[..good.len() / 2].to_vec();
    for (name, bytes) in [("newer.db", &newer), ("garbage.db", &garbage), ("half.db", &half)] {
        let file = bench.path().join(name);
        for command in [
            &["run", "agent.toml"][..],
            &["resume", run],
            &["replay", run],
            &["fork", run, "--at", "2"],
            &["diff", run, run],
            &["trace", run],
            &["trace", run, "--html", "page.html"],
            &["approvals"],
            &["approve", "apr_0", "--by", "ada"],
            &["deny", "apr_0", "--by", "ada", "--reason", "no"],
            &["runs"],
            &["errors", "list"],
        ] {
            std::fs::write(&file, bytes).unwrap();
            let ran = bench.run(&[command, &["--store", &format!("sqlite:{name}")]].concat());
            let what = format!("{name}: {command:?}: {} {}", ran.code, ran.err);
            assert!(matches!(ran.code, 5 | 6), "{what}");
            assert!(ran.err.starts_with("error: "), "{what}");
            assert_eq!(&std::fs::read(&file).unwrap(), bytes, "{what}");
            let owner = format!("{name}-owner-");
            let left =
                std::fs::read_dir(bench.path()).unwrap().map(|left| left.unwrap().file_name());
            let mut left = left.map(|left| left.to_string_lossy().into_owned());
            assert!(!left.any(|left| left.starts_with(&owner)), "{what}");
        }
    }
    assert!(!bench.path().join("page.html").exists());
}
