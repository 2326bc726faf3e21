//! The record of a run: sealed, keyed, partly erased, and verified by other programs.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::bench::{Bench, Ran, repository};
use crate::sqlite;

/// The text to erase.
const PRIVATE: &str = "call me on 555-0199";
const KEY: &str = "7d1f0c5be9a04c3f8a55e2d6b9130c44";

fn bench() -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent("[[model]]\ntext = \"Grüße \\u007F👩\u{200d}🚀\"\n", "");
    bench
}

/// Runs the agent, and returns the run.
fn begin(bench: &Bench, args: &[&str]) -> String {
    let args = [&["run", "agent.toml", "--json"], args].concat();
    let ran = bench.run(&args).ok().json().remove(0);
    ran["run"].as_str().unwrap().to_owned()
}

/// Verifies the output of `trace` for a run with the program in the documentation.
fn verified_elsewhere(bench: &Bench, run: &str, key: Option<&str>, args: &[&str]) -> Ran {
    let trace = bench.run(&["trace", run, "--json"]).ok();
    by_program(&trace.out, key, args)
}

fn by_program(record: &str, key: Option<&str>, args: &[&str]) -> Ran {
    let mut python = std::process::Command::new("python3");
    python.arg(repository().join("examples/verify.py")).args(args).env_remove("BACKSTOP_LOG_KEY");
    python.envs(key.map(|key| ("BACKSTOP_LOG_KEY", key)));
    python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut python = python.spawn().unwrap();
    python.stdin.take().unwrap().write_all(record.as_bytes()).unwrap();
    Ran::of(python.wait_with_output().unwrap())
}

/// Spec: D13. A program in another language verifies a record, however its text is made.
#[test]
fn another_program_verifies_a_record() {
    let bench = bench();
    let run = begin(&bench, &["--input", "Straße?", "--label", "tenant=acme"]);
    let told = bench.run(&["verify", &run, "--json"]).ok().json().remove(0);
    let head = told["head"].as_str().unwrap();
    let sound = verified_elsewhere(&bench, &run, None, &["--head", head]).ok();
    assert!(sound.out.contains("unkeyed") && sound.out.contains(head), "{}", sound.out);
    let trace = bench.run(&["trace", &run, "--json"]).ok().out;
    assert!(trace.contains(r#""labels":{"tenant":"acme"}"#), "{trace}");
    let changed = trace.replacen("Grüße", "Gruesse", 1);
    assert!(by_program(&changed, None, &[]).out.contains("not sound at seq 4"));
    let cut: String = trace.split_inclusive('\n').take(4).collect();
    assert!(by_program(&cut, None, &["--head", head]).out.contains("not sound at seq 5"));
    let named = format!("{{\"run\":\"{run}\",\"seq\"");
    let moved = trace.replace(&named, "{\"run\":\"run_2\",\"seq\"");
    assert!(by_program(&moved, None, &[]).out.contains("it names another run"));
}

/// Spec: D13. An export names its head: what is cut off, moved, changed or taken from another record is found.
#[test]
fn exported_record_is_verified_by_others() {
    let bench = bench();
    let (run, other) = (begin(&bench, &["--input", "x"]), begin(&bench, &["--input", "y"]));
    let export = |run: &str| bench.run(&["export", run]).ok().out;
    let (text, elsewhere) = (export(&run), export(&other));
    let lines: Vec<&str> = text.lines().collect();
    let header: Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!((&header["format"], &header["run"]), (&"backstop-record/1".into(), &(*run).into()));
    assert_eq!(header["events"], lines.len() - 1);
    let sound = by_program(&text, None, &[]).ok().out;
    assert!(sound.contains(header["head"].as_str().unwrap()), "{sound}");
    let check = |lines: &[&str], said: &str| {
        let found = by_program(&lines.join("\n"), None, &[]).fails(1, "").out;
        assert!(found.contains(said), "{found}");
    };
    check(&lines[..lines.len() - 1], "the end is cut off");
    let mut swapped = lines.clone();
    swapped.swap(2, 3);
    check(&swapped, "not sound at seq 2: an event is missing");
    let edited = lines[2].replacen("machine", "runtime", 1).replacen("tool", "machine", 1);
    check(&[&lines[..2], &[&*edited], &lines[3..]].concat(), "not sound at seq 2");
    let foreign: Vec<&str> = elsewhere.lines().collect();
    check(&[&lines[..3], &foreign[3..]].concat(), "not sound at seq 3");
    check(&lines[..1], "there are no events");
    let file = bench.path().join("record.jsonl");
    bench.run(&["export", &run, "--file", "record.jsonl"]).ok();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let told = bench.run(&["export", &run, "--file", "again.jsonl", "--json"]).ok().json();
    assert_eq!((&told[0]["file"], &told[0]["head"]), (&"again.jsonl".into(), &header["head"]));
    bench.run(&["export", &run, "--file", "x.db"]).fails(2, "belongs to the store itself");
    bench.run(&["export", "run_x"]).fails(2, "no run `run_x`");
    sqlite::execute(&bench.path().join("x.db"), "UPDATE events SET seq = 9 WHERE seq = 4");
    bench.run(&["export", &run]).fails(6, "hash chain broken at seq 4");
}

/// Spec: D13. The golden vectors of docs/record-format.md.
#[test]
fn the_golden_vectors_verify() {
    let golden = repository().join("docs/record-format");
    for (file, key) in
        [("unkeyed", None), ("keyed", Some("correct horse battery staple")), ("erased", None)]
    {
        let record = std::fs::read_to_string(golden.join(file).with_extension("jsonl")).unwrap();
        by_program(&record, key, &[]).ok();
    }
}

/// Spec: D1. Whatever is changed behind the back of the program is found at its seq.
#[test]
fn a_change_of_any_field_is_found() {
    let changes = [
        "seq = 9",
        "at = at + 1",
        "type = 'memory.wrote'",
        "actor = 'person'",
        "caused_by = 1",
        "schema = 0",
        "data = replace(data, 'Gr', 'gr')",
        "salt = zeroblob(16)",
        "salt = NULL",
        "erased = zeroblob(32)",
        "hash = zeroblob(32)",
    ];
    for change in changes {
        let bench = bench();
        let run = begin(&bench, &["--input", "x"]);
        let file = bench.path().join("x.db");
        sqlite::execute(&file, &format!("UPDATE events SET {change} WHERE seq = 4"));
        let found = bench.run(&["verify", &run]).fails(6, "").out;
        assert!(found.contains("hash chain broken at seq 4"), "{change}: {found}");
        bench.run(&["replay", &run]).fails(6, "hash chain broken at seq 4");
    }
    let bench = bench();
    let run = begin(&bench, &["--input", "x"]);
    sqlite::execute(&bench.path().join("x.db"), "UPDATE runs SET run = 'run_2'");
    sqlite::execute(
        &bench.path().join("x.db"),
        &format!("UPDATE runs SET summary = replace(summary, '{run}', 'run_2')"),
    );
    let found = bench.run(&["verify", "run_2"]).fails(6, "").out;
    assert!(found.contains("broken at seq 1: it names another run"), "{found}");
}

fn holds(file: &Path, text: &str) -> bool {
    let Ok(bytes) = std::fs::read(file) else { return false };
    bytes.windows(text.len()).any(|bytes| bytes == text.as_bytes())
}

/// Spec: D1, C2. What one event says is erased, in the files too, and the rest still verifies.
#[test]
fn an_erased_event_leaves_a_record_that_verifies() {
    let bench = bench();
    let run = begin(&bench, &["--input", PRIVATE, "--session", "s-1"]);
    let copy = bench.run(&["fork", &run, "--at", "1", "--json"]).ok().json().remove(0);
    let copy = copy["run"].as_str().unwrap();
    let told = bench.run(&["redact", &run, "1"]).ok();
    assert_eq!(told.out, format!("{run}: event 1 is erased\n"));
    assert!(told.err.contains(&format!("{copy} holds a copy")), "{}", told.err);
    let again = bench.run(&["redact", copy, "1", "--json"]).ok().json().remove(0);
    assert_eq!(again["copies"], serde_json::json!([]));
    for file in bench.files() {
        assert!(!holds(&file, "555-0199"), "{}", file.display());
    }
    for run in [&run, copy] {
        let sound = bench.run(&["verify", run, "--json"]).ok().json().remove(0);
        assert_eq!((&sound["ok"], &sound["erased"]), (&true.into(), &serde_json::json!([1])));
        verified_elsewhere(&bench, run, None, &[]).ok();
        let trace = bench.run(&["trace", run]).ok().out;
        assert!(trace.lines().next().unwrap().ends_with("erased"), "{trace}");
        bench.run(&["trace", run, "--html", "-"]).ok();
        bench.run(&["replay", run]).fails(5, "event 1 was erased");
        bench.run(&["fork", run, "--at", "2"]).fails(5, "event 1 was erased");
    }
    let first = bench.run(&["trace", &run, "--json"]).ok().json().remove(0);
    assert_eq!((&first["salt"], first["data"].as_object().unwrap().len()), (&Value::Null, 1));
    // The session continues without it.
    begin(&bench, &["--input", "and now?", "--session", "s-1"]);
    bench.run(&["redact", &run, "99"]).fails(2, "the run has no such event");
    bench.run(&["redact", "run_x", "1"]).fails(2, "no run `run_x`");
}

/// Spec: D1, A1. A run that waits answers with the event that was erased.
#[test]
fn a_run_with_an_erased_event_stays_waiting() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(crate::running::REFUNDS, crate::running::ASKS);
    let waiting = bench.run(&["run", "agent.toml", "--json"]).fails(4, "").json().remove(0);
    let run = waiting["run"].as_str().unwrap();
    bench.run(&["redact", run, "4"]).ok();
    bench.run(&["resume", run]).fails(5, "event 4 was erased");
    bench.run(&["verify", run]).ok();
    bench.run(&["approvals"]).ok();
}

/// Spec: D13. A record that is sealed with a key cannot be written anew without it.
#[test]
fn a_keyed_record_needs_its_key() {
    let bench = bench().with("BACKSTOP_LOG_KEY", KEY);
    let run = begin(&bench, &["--input", "x"]);
    let sound = bench.run(&["verify", &run, "--json"]).ok().json().remove(0);
    let id = sound["key_id"].as_str().unwrap();
    assert!(bench.run(&["verify", &run]).ok().out.contains(&format!("sealed with key {id}")));
    verified_elsewhere(&bench, &run, Some(KEY), &[]).ok();
    let blind = verified_elsewhere(&bench, &run, None, &[]);
    assert!(blind.out.contains(&format!("it needs key {id}")), "{}", blind.out);
    for file in bench.files() {
        assert!(!holds(&file, KEY), "{}", file.display());
    }
    for other in [None, Some("another key")] {
        let mut command = bench.command(&["verify", &run]);
        match other {
            Some(key) => command.env("BACKSTOP_LOG_KEY", key),
            None => command.env_remove("BACKSTOP_LOG_KEY"),
        };
        let refused = Ran::of(command.output().unwrap());
        let refused = refused.fails(2, &format!("sealed with key `{id}`, which was not given"));
        assert!(!refused.err.contains(KEY) && refused.err.contains("BACKSTOP_LOG_KEY"));
    }
    // Resealed without the key, with valid hashes.
    sqlite::execute(
        &bench.path().join("x.db"),
        &format!(
            "UPDATE events SET data = replace(data, '\"key_id\":\"{id}\"', '\"key_id\":null')"
        ),
    );
    let found = bench.run(&["verify", &run]).fails(6, "").out;
    assert!(found.contains("hash chain broken at seq 1"), "{found}");
    bench.run(&["redact", &run, "2"]).ok();
    let empty = bench.command(&["verify"]).env("BACKSTOP_LOG_KEY", "").output().unwrap();
    Ran::of(empty).fails(2, "BACKSTOP_LOG_KEY is empty");
}

/// Spec: D11. Records of the first layout verify, trace and serve as history, by their own rule.
#[test]
fn an_unsalted_record_is_read_by_its_rule() {
    let bench = bench();
    let store = include_str!("../fixtures/first_layout.sql");
    sqlite::execute(&bench.path().join("x.db"), store);
    let runs = bench.run(&["runs", "--json"]).ok().json();
    assert_eq!(runs.len(), 2);
    let all = bench.run(&["verify", "--all"]).ok().out;
    assert!(all.contains("2 runs verified, 0 cannot be trusted"), "{all}");
    for run in &runs {
        let run = run["run"].as_str().unwrap();
        assert!(bench.run(&["trace", run]).ok().out.contains("provider.rate_limited (HTTP 429)"));
        verified_elsewhere(&bench, run, None, &[]).ok();
        bench.run(&["redact", run, "1"]).fails(2, "it has no salt");
    }
    let run = begin(&bench, &["--input", "and now?", "--session", "s-1"]);
    let trace = bench.run(&["trace", &run]).ok().out;
    assert!(trace.contains("call 1, 9 messages"), "both runs are its history: {trace}");
    let changed = "UPDATE events SET data = replace(data, 'It says', 'It said') WHERE seq = 10";
    sqlite::execute(&bench.path().join("x.db"), changed);
    let found = bench.run(&["verify", "--all"]).fails(6, "").out;
    assert_eq!(found.matches("hash chain broken at seq 10").count(), 2, "{found}");
}
