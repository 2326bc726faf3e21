//! `once` of a tool: what it names is done once, whichever run asks for it.

use serde_json::{Value, json};

use crate::bench::Bench;

/// An agent that pays an invoice; its tool takes a moment and notes each payment.
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

fn output(bench: &Bench, run: &str) -> Value {
    let events = bench.run(&["trace", run, "--json"]).ok().json();
    let answer = events.iter().find(|event| event["type"] == "tool.responded").unwrap();
    answer["data"]["output"].clone()
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
    let outputs = runs.iter().map(|run| output(&bench, run["run"].as_str().unwrap()));
    let (first, later): (Vec<Value>, Vec<Value>) =
        outputs.partition(|output| *output == json!({ "receipt": 7 }));
    assert_eq!((first.len(), later.len()), (1, 15));
    assert!(later.iter().all(|output| output["output"] == json!({ "receipt": 7 })));
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
    let error = bench.run(&["errors", "show", "last"]).ok().out;
    assert!(error.contains(&first), "{error}");
    assert_eq!(payments(&bench), 1);
    let state = bench.run(&["state", "list", "once/pay/", "--json"]).ok().json();
    assert_eq!(state[0]["value"]["state"], "failed");
    // A person who has looked lets it be made again.
    bench.run(&["state", "rm", state[0]["key"].as_str().unwrap()]).ok();
    run(&bench);
    assert_eq!(payments(&bench), 2);
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
