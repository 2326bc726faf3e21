//! Sums of `backstop costs`.

use serde_json::{Value, json};

use crate::bench::Bench;

const PRICE: &str = "[agent.price]\ninput_per_mtok = 1.0\noutput_per_mtok = 10.0\n";
/// An attempt that fails after its prompt was billed, and an answer: 3,000 and 100 tokens.
const SCRIPT: &str = "[[model]]\nerror = { kind = \"rate_limited\" }\n\
    [[model]]\ntext = \"ok\"\nusage = { input_tokens = 3000, output_tokens = 100 }\n";

/// Two runs of a priced agent for two tenants, a copy of the second up to its failed attempt, and a run of an agent
/// without a price.
fn bench() -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent("[[model]]\ntext = \"ok\"\nusage = { input_tokens = 7, output_tokens = 1 }\n", "");
    std::fs::rename(bench.path().join("agent.toml"), bench.path().join("free.toml")).unwrap();
    bench.run(&["run", "free.toml"]).ok();
    bench.agent(SCRIPT, &format!("[agent.retry]\nbase_ms = 0\n{PRICE}"));
    bench.run(&["run", "agent.toml", "--label", "tenant=acme"]).ok();
    bench.run(&["run", "agent.toml", "--label", "tenant=ada"]).ok();
    let copied = bench.run(&["trace", "last", "--json"]).ok().json();
    let failed = copied.iter().position(|event| event["type"] == "model.attempted").unwrap();
    bench.run(&["fork", "last", "--at", &(failed + 1).to_string()]).ok();
    bench
}

fn costs(bench: &Bench, args: &[&str]) -> Vec<Value> {
    bench.run(&[&["costs", "--json"], args].concat()).ok().json()
}

fn line(group: Value, runs: u64, attempts: u64, tokens: (u64, u64), cost: Value) -> Value {
    json!({ "group": group, "runs": runs, "model_attempts": attempts, "input_tokens": tokens.0,
            "output_tokens": tokens.1, "cost_usd": cost })
}

fn without_price(mut line: Value) -> Value {
    line["unpriced_attempts"] = 1.into();
    line
}

/// Spec: C2
#[test]
fn each_attempt_counts_once_in_its_group() {
    let bench = bench();
    let free = |group: &str| without_price(line(group.into(), 1, 1, (7, 1), Value::Null));
    let total = without_price(line(Value::Null, 4, 6, (9007, 301), json!(0.012)));
    let both = line("agent".into(), 3, 5, (9000, 300), json!(0.012));
    assert_eq!(costs(&bench, &["--by", "agent"]), [both, free("free"), total.clone()]);
    // The copy made one attempt of its own.
    let ada = line("ada".into(), 2, 3, (6000, 200), json!(0.008));
    let acme = line("acme".into(), 1, 2, (3000, 100), json!(0.004));
    let by_tenant = costs(&bench, &["--by", "label:tenant"]);
    assert_eq!(by_tenant, [ada, acme, free(""), total.clone()]);
    let by_day = costs(&bench, &[]);
    assert_eq!(by_day.last(), Some(&total));
    assert_eq!(by_day[0]["group"].as_str().unwrap().len(), "2026-01-01".len());
    let by_model = costs(&bench, &["--by", "model"]);
    assert_eq!((by_model.len(), by_model.last()), (2, Some(&total)));
    assert_eq!(by_model[0]["group"], "script");
    assert_eq!(costs(&bench, &["--until", "1h"]), [line(Value::Null, 0, 0, (0, 0), json!(0.0))]);
    assert_eq!(costs(&bench, &["--since", "1h"]), by_day);
}

/// Spec: C2
#[test]
fn table_of_costs_ends_with_the_total() {
    let bench = bench();
    let ran = bench.run(&["costs", "--by", "agent"]).ok();
    let words: Vec<Vec<&str>> =
        ran.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["AGENT", "RUNS", "ATTEMPTS", "INPUT", "OUTPUT", "SPENT"]);
    assert_eq!(words[1], ["agent", "3", "5", "9000", "300", "$0.0120"]);
    assert_eq!(words[3], ["total", "4", "6", "9007", "301", ">$0.0120"]);
    assert!(ran.err.contains("attempts without a price"), "{}", ran.err);
    let none = bench.run(&["costs", "--until", "1h"]).ok();
    assert_eq!(
        (none.out.as_str(), none.err.as_str()),
        ("", "no model was asked that fit in sqlite:x.db\n")
    );
    bench.run(&["costs", "--by", "week"]).fails(2, "write day, agent, model or label:KEY");
    bench.run(&["costs", "--by", "label: "]).fails(2, "must not be empty");
}

/// Spec: C2
#[test]
fn costs_of_no_store_are_nothing() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    assert_eq!(costs(&bench, &[]), [line(Value::Null, 0, 0, (0, 0), json!(0.0))]);
    assert!(!bench.path().join("x.db").exists());
}
