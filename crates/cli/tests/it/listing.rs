//! What `runs`, `errors` and `results` list and count. Spec: C2, S14

use serde_json::json;

use crate::bench::Bench;

const FAILS: &str = "[[model]]\nerror = { kind = \"rate_limited\" }\n[[model]]\n\
    tool_calls = [{ id = \"c1\", name = \"fails\" }]\n[[model]]\n\
    error = { kind = \"quota_exhausted\" }\n";
const TOOL: &str = "[agent.retry]\nbase_ms = 0\n[[tools]]\nkind = \"command\"\nname = \"fails\"\n\
    description = \"d\"\ncapabilities = []\ncommand = [\"false\"]\n";

/// A run that ended well and one that failed, of two agents.
fn bench() -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent("[[model]]\ntext = \"ok\"\n", "");
    std::fs::rename(bench.path().join("agent.toml"), bench.path().join("fine.toml")).unwrap();
    bench.run(&["run", "fine.toml", "--label", "tenant=acme", "--label", "tier=one"]).ok();
    bench.agent(FAILS, TOOL);
    bench.run(&["run", "agent.toml"]).fails(1, "provider.quota_exhausted");
    bench
}

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

#[test]
fn errors_are_listed_by_time_and_code() {
    let bench = bench();
    let count = |args: &[&str]| {
        bench.run(&[&["errors", "list", "--json"], args].concat()).ok().json().len()
    };
    assert_eq!(count(&["--code", "tool.execution_failed", "--since", "1h"]), 1);
    assert_eq!(count(&["--code", "tool.timeout"]), 0);
    assert_eq!(count(&["--until", "1h"]), 0);
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
