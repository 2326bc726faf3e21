//! `once` of a tool: its effect happens once, whichever run calls it.

use serde_json::{Value, json};

use crate::bench::Bench;

/// An agent that pays an invoice; its tool takes a moment and records each payment.
fn payer(invoice: &str, pays: &str) -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    agent(&bench, invoice, pays);
    bench
}

fn agent(bench: &Bench, invoice: &str, pays: &str) {
    let calls = format!(
        "tool_calls = [{{ id = \"c1\", name = \"pay\", arguments = {{ invoice_id = \"{invoice}\" }} }}]"
    );
    let script = format!("[[model]]\n{calls}\n[[model]]\ntext = \"ok\"\n");
    let tool = format!(
        "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\nname = \"pay\"\n\
         description = \"d\"\nonce = \"/invoice_id\"\ncommand = [\"sh\", \"-c\", \"{pays}\"]\n"
    );
    bench.agent(&script, &tool);
}

fn answers(bench: &Bench, run: &str) -> Vec<Value> {
    let events = bench.run(&["trace", run, "--json"]).ok().json();
    let answers = events.into_iter().filter(|event| event["type"] == "tool.responded");
    answers.map(|event| event["data"].clone()).collect()
}

fn output(bench: &Bench, run: &str) -> Value {
    answers(bench, run)[0]["output"].clone()
}

fn run(bench: &Bench) -> String {
    let ran = bench.run(&["run", "agent.toml", "--json"]).ok().json();
    ran[0]["run"].as_str().unwrap().to_owned()
}

fn payments(bench: &Bench) -> usize {
    std::fs::read_to_string(bench.path().join("paid")).unwrap_or_default().lines().count()
}

/// Spec: T16. Of 16 processes at once one pays; the others get its answer, which says so.
#[test]
fn sixteen_processes_pay_once() {
    let bench = payer("INV-1", "sleep 0.3; echo paid >> paid; echo '{\\\"receipt\\\": 7}'");
    let start = || bench.command(&["run", "agent.toml"]).spawn().unwrap();
    let children: Vec<_> = (0..16).map(|_| start()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(payments(&bench), 1);
    let runs = bench.run(&["runs", "--json"]).ok().json();
    assert_eq!(runs.len(), 16);
    let all = runs.iter().map(|run| answers(&bench, run["run"].as_str().unwrap()).remove(0));
    let (first, later): (Vec<Value>, Vec<Value>) =
        all.partition(|answer| answer["done_before"].is_null());
    assert_eq!((first.len(), later.len()), (1, 15));
    assert!(later.iter().all(|answer| answer["output"] == json!({ "receipt": 7 })));
    assert!(later[0]["done_before"]["run"].as_str().unwrap().starts_with("run_"), "{}", later[0]);
    agent(&bench, "INV-2", "echo paid >> paid");
    run(&bench);
    assert_eq!(payments(&bench), 2, "another invoice is paid");
}

/// Spec: T16. A call that failed may have acted: it is not made again, and the model reads whose it was.
#[test]
fn failed_call_is_not_made_again() {
    let bench = payer("INV-1", "echo paid >> paid; exit 1");
    let first = run(&bench);
    let said = output(&bench, &run(&bench))["error"].as_str().unwrap().to_owned();
    assert!(said.contains("failed before, and may have acted"), "{said}");
    assert!(said.contains(&first), "{said}");
    assert_eq!(payments(&bench), 1);
    let state = bench.run(&["state", "list", "once/pay/", "--json"]).ok().json();
    assert_eq!(state[0]["value"]["state"], "failed");
    // A person who has checked allows it again.
    bench.run(&["state", "rm", state[0]["key"].as_str().unwrap()]).ok();
    run(&bench);
    assert_eq!(payments(&bench), 2);
}

/// Spec: T14, T16. A call whose process is dead keeps nobody waiting, and what a person says of it settles its key.
#[cfg(unix)]
#[test]
fn call_of_a_dead_process_is_settled() {
    use crate::terminal::kill;

    for (word, later) in [(None, "its process is gone"), (Some("--did-not"), "")] {
        let pays = "test -e fixed || exec sleep 60; echo paid >> paid; echo ok";
        let bench = payer("INV-1", pays);
        let mut running = bench.command(&["run", "agent.toml"]).spawn().unwrap();
        while !bench.run(&["state", "list", "once/"]).out.contains("once/pay/") {}
        kill("-KILL", running.id());
        running.wait().unwrap();
        let lost = bench.run(&["runs", "--json"]).ok().json().remove(0);
        bench.write("fixed", "");
        if let Some(word) = word {
            let run = lost["run"].as_str().unwrap();
            bench.run(&["resolve", run, "c1", word, "--by", "ops"]).ok();
        }
        let answer = answers(&bench, &run(&bench)).remove(0);
        assert_eq!(answer["ok"], word.is_some(), "{answer}");
        assert!(answer["output"].to_string().contains(later), "{answer}");
        assert_eq!(payments(&bench), usize::from(word.is_some()));
    }
}

/// Spec: T16, C5
#[test]
fn mistakes_are_named() {
    let bench = payer("INV-1", "true");
    let text = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    bench.write("agent.toml", &text.replace("/invoice_id", "invoice_id"));
    let found = bench.run(&["check", "agent.toml"]);
    assert!(found.code == 2 && found.out.contains("is no JSON pointer"), "{}", found.out);
    bench.write("agent.toml", &text.replace("/invoice_id", "/other"));
    let said = output(&bench, &run(&bench))["error"].as_str().unwrap().to_owned();
    assert!(said.contains("`/other` says what is done once: it is required"), "{said}");
}
