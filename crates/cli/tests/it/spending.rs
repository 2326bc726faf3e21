//! `[[limit]]` of an agent file: spend limits that runs share.

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::bench::Bench;
use crate::postgres;

/// Cost of each answer, in billionths of a US dollar.
const ANSWER: u64 = 1_000_000;

/// An agent whose answers each cost a thousandth of a dollar and take `delay_ms`.
fn bench(limit: &str, delay_ms: u64) -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    answering(&bench, limit, delay_ms);
    bench
}

fn answering(bench: &Bench, limit: &str, delay_ms: u64) {
    let answer = format!(
        "[[model]]\ntext = \"42\"\nusage = {{ input_tokens = 1000, output_tokens = 0 }}\n\
         delay_ms = {delay_ms}\n"
    );
    let price = "[agent.price]\ninput_per_mtok = 1.0\noutput_per_mtok = 1.0\n";
    bench.agent(&answer, &format!("{price}[[limit]]\n{limit}\n"));
}

fn per_day(scope: &str, max_cost_usd: f64) -> String {
    format!("scope = \"{scope}\"\nper = \"day\"\nmax_cost_usd = {max_cost_usd}")
}

/// Returns the stored value of the only account.
fn balance(bench: &Bench, scope: &str) -> Value {
    let stored = bench.run(&["state", "list", "--scope", scope, "--json"]).ok().json();
    assert!((1..=2).contains(&stored.len()), "{stored:?}");
    stored[0]["value"].clone()
}

/// Returns the outcome of the run, and its reason.
fn ended(run: &Value) -> (&str, Option<&str>) {
    (run["outcome"].as_str().unwrap(), run["reason"].as_str())
}

/// Spec: B4. The second run of the day is refused, by name; its record replays.
#[test]
fn second_run_of_the_day_is_refused() {
    let bench = bench(&per_day("agent", 0.001), 0);
    bench.run(&["run", "agent.toml"]).ok();
    let refused = bench.run(&["run", "agent.toml", "--json"]);
    let ran = refused.json();
    assert_eq!(ended(&ran[0]), ("budget_exhausted", Some("budget.cost_usd")));
    let events = bench.run(&["trace", "last", "--json"]).ok().json();
    let told: Vec<_> = events.iter().filter(|it| it["type"] == "budget.exhausted").collect();
    assert_eq!(told.len(), 1);
    let said = "spend limit of agent `agent` per day: 0.001 of 0.001 used";
    assert_eq!(told[0]["data"]["message"], said);
    let shown = bench.run(&["trace", "last"]).ok().out;
    let line = "budget.cost_usd: spend limit of agent `agent` per day, 0.001 of 0.001";
    assert!(shown.contains(line), "{shown}");
    // A larger budget of the run itself would not help.
    let said = bench.run(&["run", "agent.toml"]).err;
    assert!(said.contains("--reopen\n") && !said.contains("--budget"), "{said}");
    assert!(said.contains("when the spend limit has room again:"), "{said}");
    assert!(said.contains(line), "{said}");
    bench.run(&["replay", "last"]).ok();
    bench.run(&["verify", "last"]).ok();
}

/// Spec: B4, C5
#[test]
fn limit_without_a_price_is_a_mistake() {
    let bench = Bench::new();
    let limit = per_day("agent", 1.0);
    bench.agent("[[model]]\ntext = \"42\"\n", &format!("[[limit]]\n{limit}\n"));
    let found = bench.run(&["check", "agent.toml"]);
    assert!(found.code == 2 && found.out.contains("needs a price"), "{}", found.out);
    answering(&bench, &limit, 0);
    bench.run(&["check", "agent.toml"]).ok();
}

/// Spec: B4. Sixteen processes at once spend no more than the limit and one answer each.
#[test]
fn sixteen_processes_share_a_limit() {
    let bench = bench(&per_day("global", 0.004), 300);
    let start = || {
        let mut command = bench.command(&["run", "agent.toml"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<Child> = (0..16).map(|_| start()).collect();
    for mut child in children {
        let code = child.wait().unwrap().code();
        assert!(matches!(code, Some(0 | 3)), "{code:?}");
    }
    let runs = bench.run(&["runs", "--json"]).ok().json();
    let answered = runs.iter().filter(|run| run["usage"]["model_attempts"] == 1).count();
    assert_eq!(runs.len(), 16);
    // The reservation for an answer is a little more than its cost, so there is room for these only.
    assert_eq!(answered, 4);
    let used = balance(&bench, "limit:global:all");
    assert_eq!(used, 4 * ANSWER, "none is lost, none counted twice");
}

/// Spec: B4, D5. A process that dies while its model is asked has its reservation counted, once.
#[test]
fn killed_attempt_counts_once() {
    let bench = bench(&per_day("agent", 1.0), 60_000);
    let mut child = bench.command(&["run", "agent.toml"]).spawn().unwrap();
    let stored = || {
        let stored = bench.run(&["state", "list", "--scope", "limit:agent:agent", "--json"]);
        Some(stored.json().first()?["value"].clone())
    };
    // A check takes some milliseconds.
    let reserved = (0..3_000).find_map(|_| stored()).expect("something is reserved");
    child.kill().unwrap();
    child.wait().unwrap();
    let held = reserved.as_u64().unwrap();
    let runs = bench.run(&["runs", "--json"]).ok().json();
    let run = runs[0]["run"].as_str().unwrap();
    answering(&bench, &per_day("agent", 1.0), 0);
    bench.run(&["resume", run, "--agent", "agent.toml"]).ok();
    assert_eq!(balance(&bench, "limit:agent:agent"), held + ANSWER);
    bench.run(&["replay", run]).ok();
}

/// Spec: B4, D5, J2. What killed processes had reserved bounds those that run at once, and is not lost.
#[test]
fn killed_processes_count_under_the_limit() {
    check_killed_processes("sqlite:x.db");
}

/// Spec: B4, D5, J2
#[test]
fn killed_processes_count_under_the_limit_in_postgres() {
    let Some(url) = postgres::database() else { return };
    check_killed_processes(&url);
}

/// Kills four processes whose models are asked, beside sixteen others, under a limit of eight answers.
fn check_killed_processes(store: &str) {
    let bench = Bench::new().with("BACKSTOP_STORE", store);
    answering(&bench, &per_day("global", 0.008), 60_000);
    let read = |name: &str| std::fs::read_to_string(bench.path().join(name)).unwrap();
    bench.write("slow-script.toml", &read("script.toml"));
    bench.write("slow.toml", &read("agent.toml").replace("script.toml", "slow-script.toml"));
    answering(&bench, &per_day("global", 0.008), 50);
    let start = |agent: &str| {
        let mut command = bench.command(&["run", agent]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut slow: Vec<Child> = (0..4).map(|_| start("slow.toml")).collect();
    let used = || {
        let stored = bench.run(&["state", "list", "--scope", "limit:global:all", "--json"]);
        stored.json().first()?["value"].as_u64()
    };
    // A look takes some milliseconds.
    let held = (0..3_000).find_map(|_| used().filter(|used| *used >= 4 * ANSWER));
    let held = held.expect("all four have reserved");
    assert!(held < 5 * ANSWER, "{held}");
    let fast: Vec<Child> = (0..16).map(|_| start("agent.toml")).collect();
    for child in &mut slow {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for mut child in fast {
        let code = child.wait().unwrap().code();
        assert!(matches!(code, Some(0 | 3)), "{code:?}");
    }
    let runs = bench.run(&["runs", "--json"]).ok().json();
    let answered = runs.iter().filter(|run| run["outcome"] == "completed").count();
    assert_eq!(answered, 4, "{runs:?}");
    assert_eq!(used(), Some(held + 4 * ANSWER), "none is lost, none counted twice");
}
