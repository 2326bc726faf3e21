//! Approvals that expire or are for certain people, changed calls, and labels.

use crate::bench::{Bench, Ran};
use crate::running::{ASKS, REFUNDS};
use crate::sqlite::execute;

/// A bench with a run that waits for the approval of a refund, which its tool repeats, with the ids.
fn waiting(limits: &str) -> (Bench, String, String) {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let asks = ASKS.replace("[\"echo\", \"refunded\"]", "[\"cat\"]");
    let schema =
        "schema = { type = \"object\", properties = { order = { type = \"integer\" } } }\n";
    bench.agent(REFUNDS, &format!("{asks}{schema}{limits}"));
    let waits = bench.run(&["run", "agent.toml", "--label", "tenant=acme"]);
    waits.fails(4, "waiting for approval: apr_");
    let open = bench.run(&["approvals", "--json"]).ok().json().remove(0);
    let text = |key: &str| open[key].as_str().unwrap().to_owned();
    (bench, text("run"), text("id"))
}

/// Spec: A4, D15. Real time passes, as it does for the command.
#[test]
fn an_expired_approval_is_listed_and_refused() {
    let (bench, run, id) = waiting("expires_after_ms = 4000\n");
    assert!(bench.run(&["approvals"]).ok().out.contains(", until 20"));
    let stuck = |more: &[&str]| bench.run(&[&["runs", "--stuck"], more].concat()).ok();
    let listed = loop {
        match stuck(&["--json"]).json().pop() {
            Some(listed) => break listed,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(
        (&listed["run"], &listed["stuck"]),
        (&run.as_str().into(), &"approval_expired".into())
    );
    assert_eq!(listed["state"], "waiting_approval");
    assert!(stuck(&[]).out.contains("approval_expired"));
    assert!(stuck(&["--label", "tenant=other"]).out.is_empty());
    assert!(bench.run(&["approvals"]).ok().out.contains(", expired 20"));
    let late = ["approve", &id, "--by", "ada"];
    bench.run(&late).fails(2, &format!("approval `{id}` has expired"));
    bench.run(&["resume", &run]).ok();
    bench.run(&late).fails(2, &format!("approval `{id}` has expired"));
    assert!(stuck(&[]).out.is_empty(), "it is over");
    assert!(bench.run(&["trace", &run]).ok().out.contains("approval.expired"));
}

/// Spec: A4
#[test]
fn one_who_may_not_decide_is_refused() {
    let (bench, run, id) = waiting("approvers = [\"ops\", \"lead\"]\n");
    assert!(bench.run(&["approvals"]).ok().out.contains(", by ops, lead"));
    let only = "only: ops, lead";
    bench.run(&["approve", &id, "--by", "intern"]).fails(2, only);
    bench.run(&["deny", &id, "--by", "intern", "--reason", "no"]).fails(2, only);
    bench.run(&["approve", &id, "--by", "lead"]).ok();
    bench.run(&["resume", &run]).ok();
}

/// Spec: A4
#[test]
fn a_call_runs_with_changed_arguments() {
    let (bench, run, id) = waiting("");
    let approve = |arguments: &str| -> Ran {
        bench.run(&["approve", &id, "--by", "ops", "--arguments", arguments])
    };
    approve("{").fails(2, "it is no JSON");
    approve("[7]").fails(2, "arguments are a JSON object");
    approve("{\"order\": \"seven\"}").fails(2, "order must be an integer");
    approve("{\"order\": 8}").ok();
    let report = bench.run(&["resume", &run, "--json"]).ok().json().remove(0);
    let events = report["events"].as_array().unwrap();
    let of = |kind: &str| &events.iter().find(|event| event["type"] == kind).unwrap()["data"];
    assert_eq!(of("approval.requested")["arguments"]["order"], 7, "what was shown");
    assert_eq!(of("approval.granted")["arguments"]["order"], 8);
    assert_eq!(of("tool.responded")["output"]["order"], 8, "what ran");
}

/// Spec: D15, C3
#[test]
fn runs_are_listed_by_label() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent("[[model]]\ntext = \"Hello.\"\n", "");
    let ask = |labels: &[&str]| bench.run(&[&["run", "agent.toml"], labels].concat());
    ask(&["--label", "tenant=acme", "--label", "env=prod"]).ok();
    ask(&["--label", "tenant=acme"]).ok();
    ask(&[]).ok();
    let listed =
        |labels: &[&str]| bench.run(&[&["runs", "--json"], labels].concat()).ok().json().len();
    assert_eq!(listed(&[]), 3);
    assert_eq!(listed(&["--label", "tenant=acme"]), 2);
    assert_eq!(listed(&["--label", "tenant=acme", "--label", "env=prod"]), 1);
    assert_eq!(listed(&["--label", "tenant=ACME"]), 0);
    bench.run(&["verify", "--all"]).ok();
    let long = format!("k={}", "x".repeat(257));
    for (label, why) in [("tenant", "KEY=VALUE"), ("=x", "a key has"), (&*long, "a value has")] {
        ask(&["--label", label]).fails(2, why);
    }
    // The state of a store that no command of this version has written to.
    execute(
        &bench.path().join("x.db"),
        "DROP TRIGGER runs_taken; DROP TABLE labels; PRAGMA user_version = 9",
    );
    let older = bench.run(&["runs", "--label", "tenant=acme"]);
    let older = older.fails(5, "labels need migration 10 of the store, which is at 9");
    assert!(older.err.contains("hint: `backstop vacuum` brings the store"), "{}", older.err);
}
