//! Lists and counts of `runs`, `errors` and `results`.

use serde_json::json;

use crate::bench::Bench;
use crate::sqlite;

const FAILS: &str = "[[model]]\nerror = { kind = \"rate_limited\" }\n[[model]]\n\
    tool_calls = [{ id = \"c1\", name = \"fails\" }]\n[[model]]\n\
    error = { kind = \"quota_exhausted\" }\n";
const TOOL: &str = "[agent.retry]\nbase_ms = 0\n[[tools]]\nkind = \"command\"\nname = \"fails\"\n\
    description = \"d\"\ncapabilities = []\ncommand = [\"false\"]\n";

/// A bench with a successful run and a failed one, of two agents.
fn bench() -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent("[[model]]\ntext = \"ok\"\n", "");
    std::fs::rename(bench.path().join("agent.toml"), bench.path().join("fine.toml")).unwrap();
    bench.run(&["run", "fine.toml", "--label", "tenant=acme", "--label", "tier=one"]).ok();
    bench.agent(FAILS, TOOL);
    bench.run(&["run", "agent.toml"]).fails(1, "provider.quota_exhausted");
    bench
}

/// Spec: C2
#[test]
fn runs_are_listed_by_what_became_of_them() {
    let bench = bench();
    for (args, agents) in [
        (&[][..], &["agent", "fine"][..]),
        (&["--failed"], &["agent"]),
        (&["--state", "failed"], &["agent"]),
        (&["--state", "finished", "--state", "failed"], &["agent", "fine"]),
        (&["--state", "waiting_approval"], &[]),
        (&["--agent", "fine"], &["fine"]),
        (&["--label", "tenant=acme"], &["fine"]),
        (&["--label", "tenant=acme", "--label", "tier=one", "--state", "finished"], &["fine"]),
        (&["--label", "tenant=acme", "--label", "tier=two"], &[]),
        (&["--label", "tenant=acme", "--failed"], &[]),
        (&["--code", "provider.quota_exhausted"], &["agent"]),
        (&["--code", "provider.*"], &["agent"]),
        (&["--code", "provider.timeout"], &[]),
        (&["--since", "1h"], &["agent", "fine"]),
        (&["--until", "1h"], &[]),
        (&["--since", "2020-01-01", "--until", "2999-01-01T00:00:00Z"], &["agent", "fine"]),
        (&["--since", "2999-01-01"], &[]),
        (&["--limit", "1"], &["agent"]),
    ] {
        let listed = bench.run(&[&["runs", "--json"], args].concat()).ok().json();
        let listed: Vec<&str> = listed.iter().map(|run| run["agent"].as_str().unwrap()).collect();
        assert_eq!(listed, agents, "{args:?}");
    }
    assert!(bench.run(&["runs", "--until", "1h"]).ok().err.starts_with("no runs that fit in "));
    bench
        .run(&["runs", "--since", "yesterday"])
        .fails(2, "`yesterday` is no moment; write RFC 3339");
    bench.run(&["runs", "--state", "lost"]).fails(2, "waiting_approval");
}

/// Spec: C2, S14
#[test]
fn errors_are_counted_beside_failed_attempts() {
    let bench = bench();
    let counted = |args: &[&str]| {
        bench.run(&[&["errors", "stats", "--json", "--by"], args].concat()).ok().json()
    };
    let row = |name: &str, key: &str, errors: u64, attempts: u64| {
        json!({ name: key, "errors": errors, "occurrences": errors, "chars_kept": 0,
                "failed_attempts": attempts })
    };
    let by_code = [
        row("code", "provider.quota_exhausted", 0, 1),
        row("code", "provider.rate_limited", 0, 1),
        row("code", "tool.execution_failed", 1, 0),
    ];
    assert_eq!(counted(&["code"]), by_code);
    let by_tool = [row("tool", "model script", 0, 2), row("tool", "fails", 1, 0)];
    assert_eq!(counted(&["tool"]), by_tool);
    let by_day = counted(&["day"]);
    let day = by_day[0]["day"].as_str().unwrap();
    assert_eq!((by_day.len(), day.len()), (1, "2026-01-01".len()));
    assert_eq!(by_day, [row("day", day, 1, 2)]);
    assert!(counted(&["day", "--until", "1h"]).is_empty());
    assert_eq!(counted(&["code", "--since", "1h", "--limit", "2"]).len(), 2);
    let table = bench.run(&["errors", "stats", "--since", "1h"]).ok().out;
    assert!(table.starts_with("CODE "), "{table}");
    assert!(table.contains("provider.rate_limited"), "{table}");
}

/// A bench with two agents: `agent` failed after an error of its tool and two failed attempts, `other` got the error of
/// another tool and succeeded.
fn two_agents() -> Bench {
    let bench = bench();
    let script =
        "[[model]]\ntool_calls = [{ id = \"c1\", name = \"breaks\" }]\n[[model]]\ntext = \"ok\"\n";
    bench.agent(script, &TOOL.replace("\"fails\"", "\"breaks\""));
    std::fs::rename(bench.path().join("agent.toml"), bench.path().join("other.toml")).unwrap();
    bench.run(&["run", "other.toml", "--session", "s-9"]).ok();
    bench
}

/// Spec: C2, S14
#[test]
fn errors_are_listed_by_what_they_share() {
    let bench = two_agents();
    let run = bench.run(&["runs", "--agent", "other", "--json"]).ok().json().remove(0);
    let run = run["run"].as_str().unwrap();
    for (args, tools) in [
        (&[][..], &["breaks", "fails"][..]),
        (&["--agent", "agent"], &["fails"]),
        (&["--agent", "other"], &["breaks"]),
        (&["--agent", "fine"], &[]),
        (&["--agent", "nobody"], &[]),
        (&["--state", "failed"], &["fails"]),
        (&["--state", "finished", "--state", "failed"], &["breaks", "fails"]),
        (&["--run", run], &["breaks"]),
        (&["--run", run, "--agent", "other"], &["breaks"]),
        (&["--run", run, "--agent", "agent"], &[]),
        (&["--session", "s-9"], &["breaks"]),
        (&["--session", "s-9", "--agent", "agent"], &[]),
        (&["--tool", "fails"], &["fails"]),
        (&["--code", "tool.execution_failed", "--since", "1h"], &["breaks", "fails"]),
        (&["--code", "tool.*", "--agent", "other"], &["breaks"]),
        (&["--code", "tool.timeout"], &[]),
        (&["--code", "provider.*"], &[]),
        (&["--until", "1h"], &[]),
    ] {
        let listed = bench.run(&[&["errors", "list", "--json"], args].concat()).ok().json();
        let listed: Vec<&str> =
            listed.iter().map(|error| error["tool"].as_str().unwrap()).collect();
        assert_eq!(listed, tools, "{args:?}");
    }
    let none = bench.run(&["errors", "list", "--agent", "nobody"]).ok().err;
    assert_eq!(none, "no errors that fit\n");
}

#[test]
fn counts_are_of_what_is_asked_for() {
    let bench = two_agents();
    for (args, rows) in [
        (&["--by", "tool"][..], &[("model script", 0, 2), ("breaks", 1, 0), ("fails", 1, 0)][..]),
        (&["--by", "tool", "--agent", "agent"], &[("model script", 0, 2), ("fails", 1, 0)]),
        (&["--by", "tool", "--agent", "other"], &[("breaks", 1, 0)]),
        (&["--by", "tool", "--state", "finished"], &[("breaks", 1, 0)]),
        (&["--by", "tool", "--session", "s-9"], &[("breaks", 1, 0)]),
        (&["--by", "tool", "--code", "provider.*"], &[("model script", 0, 2)]),
        (&["--by", "tool", "--code", "provider.rate_limited"], &[("model script", 0, 1)]),
        (&["--by", "tool", "--code", "tool.*", "--agent", "agent"], &[("fails", 1, 0)]),
        (&["--by", "tool", "--tool", "fails"], &[("fails", 1, 0)]),
        (&["--by", "tool", "--agent", "nobody"], &[]),
        // By code, which is the default here.
        (&["--agent", "other"], &[("tool.execution_failed", 1, 0)]),
        (&["--code", "provider.quota_exhausted"], &[("provider.quota_exhausted", 0, 1)]),
    ] {
        let counted = bench.run(&[&["errors", "stats", "--json"], args].concat()).ok().json();
        let row = |row: &serde_json::Value| {
            let key = row.get("tool").or_else(|| row.get("code")).unwrap().as_str().unwrap();
            let number = |name: &str| row[name].as_u64().unwrap();
            (key.to_owned(), number("errors"), number("failed_attempts"))
        };
        let counted: Vec<_> = counted.iter().map(row).collect();
        let rows: Vec<_> = rows
            .iter()
            .map(|(key, errors, failed)| ((*key).to_owned(), *errors, *failed))
            .collect();
        assert_eq!(counted, rows, "{args:?}");
    }
}

#[test]
fn a_code_that_there_is_not_is_refused() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    for args in [&["runs"][..], &["errors", "list"], &["errors", "stats"]] {
        let with = |code| bench.run(&[args, &["--code", code]].concat());
        with("provider.rate_limitd").fails(2, "did you mean `provider.rate_limited`?");
        with("provder").fails(2, "there is no such code");
        with("tool.x*").fails(2, "no code begins so");
        with("tool.*").ok();
    }
    // Another kind of operator may fail with a code of its own.
    bench.run(&["runs", "--code", "acme.broken"]).ok();
    bench.run(&["errors", "list", "--code", "acme.broken"]).fails(2, "there is no such code");
}

/// Spec: D15
#[test]
fn runs_show_their_labels() {
    let bench = bench();
    let listed = bench.run(&["runs", "--json"]).ok().json();
    let labels = json!({ "tenant": "acme", "tier": "one" });
    assert_eq!((&listed[0]["labels"], &listed[1]["labels"]), (&json!({}), &labels));
    let table = bench.run(&["runs"]).ok().out;
    assert!(table.lines().next().unwrap().ends_with("  LABELS"), "{table}");
    assert!(table.contains("tenant=acme tier=one"), "{table}");
    let table = bench.run(&["runs", "--agent", "agent"]).ok().out;
    assert!(!table.contains("LABELS"), "a column without content is left out: {table}");
}

/// Spec: L2
#[test]
fn results_are_listed() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    assert_eq!(bench.run(&["results", "list"]).ok().err, "no results\n");
    bench.agent(
        "[[model]]\ntool_calls = [{ id = \"c\", name = \"big\" }]\n[[model]]\ntext = \"ok\"\n",
        "[[tools]]\nkind = \"command\"\nname = \"big\"\ndescription = \"d\"\ncapabilities = []\n\
         command = [\"sh\", \"-c\", \"yes line | head -n 5000\"]\n",
    );
    bench.run(&["run", "agent.toml", "--session", "s-1"]).ok();
    let listed = bench.run(&["results", "list", "--json"]).ok().json().remove(0);
    assert_eq!((&listed["tool"], &listed["bytes"]), (&json!("big"), &json!(25_000)));
    assert_eq!((&listed["session"], &listed["call_id"]), (&json!("s-1"), &json!("c")));
    for (args, rows) in [
        (["--session", "s-1"], 1),
        (["--session", "s-2"], 0),
        (["--tool", "big"], 1),
        (["--tool", "bi"], 0),
        (["--since", "1h"], 1),
        (["--until", "1h"], 0),
    ] {
        let listed = bench.run(&[&["results", "list", "--json"], &args[..]].concat()).ok().json();
        assert_eq!(listed.len(), rows, "{args:?}");
    }
    assert!(bench.run(&["results", "list"]).ok().out.contains(listed["id"].as_str().unwrap()));
}

/// Spec: C2
#[test]
fn runs_are_found_by_what_was_said() {
    let bench = bench();
    for (text, agents) in [
        ("QUESTION", &["agent", "fine"][..]),
        ("fails", &["agent"]),
        ("Ok", &["fine"]),
        ("nobody said this", &[]),
    ] {
        let listed = bench.run(&["runs", "--search", text, "--json"]).ok().json();
        let listed: Vec<&str> = listed.iter().map(|run| run["agent"].as_str().unwrap()).collect();
        assert_eq!(listed, agents, "{text}");
        let table = bench.run(&["runs", "--search", text]).ok().out;
        assert_eq!(table.lines().skip(1).count(), agents.len(), "{text}: {table}");
    }
    let fits = bench.run(&["runs", "--search", "question", "--failed", "--json"]).ok().json();
    assert_eq!(fits.len(), 1);
    bench.run(&["runs", "--search", " "]).fails(2, "must not be empty");
    bench.run(&["runs", "--search", "a", "--stuck"]).fails(2, "cannot be used with");
}

/// Spec: C2
#[test]
fn unreadable_run_does_not_end_a_search() {
    let bench = bench();
    let fine = bench.run(&["runs", "--agent", "fine", "--json"]).ok().json();
    let fine = fine[0]["run"].as_str().unwrap();
    let of_fine = format!("(SELECT id FROM runs WHERE run = '{fine}')");
    let change = format!("UPDATE events SET hash = x'00' WHERE seq = 2 AND run_id = {of_fine}");
    sqlite::execute(&bench.path().join("x.db"), &change);
    let searched = bench.run(&["runs", "--search", "question", "--json"]).ok();
    let found = searched.json();
    assert_eq!((found.len(), &found[0]["agent"]), (1, &json!("agent")));
    let why = format!("run {fine} cannot be searched: hash chain broken at seq 2");
    assert!(searched.err.contains(&why), "{}", searched.err);
}

/// Spec: C2
#[test]
fn sessions_are_listed_with_their_runs() {
    let bench = bench();
    bench.agent("[[model]]\ntext = \"ok\"\n", "");
    for _ in 0..2 {
        bench.run(&["run", "agent.toml", "--session", "s-1"]).ok();
    }
    let listed = bench.run(&["sessions", "list", "--json"]).ok().json();
    let last = bench.run(&["runs", "--limit", "1", "--json"]).ok().json().remove(0);
    let first = &listed[0];
    assert_eq!((listed.len(), &first["session"], &first["runs"]), (3, &json!("s-1"), &json!(2)));
    assert_eq!((&first["last_run"], &first["state"]), (&last["run"], &json!("finished")));
    assert_eq!(first["last_started_at"], last["started_at"]);
    let one = bench.run(&["sessions", "list", "--agent", "fine", "--json"]).ok().json();
    assert_eq!((one.len(), &one[0]["agent"]), (1, &json!("fine")));
    assert_eq!(bench.run(&["sessions", "list", "--limit", "2"]).ok().out.lines().count(), 3);
    let none = bench.run(&["sessions", "list", "--until", "1h"]).ok();
    assert_eq!(none.err, "no sessions in sqlite:x.db\n");
}
