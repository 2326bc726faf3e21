//! Waits of `run` at its end for deliveries of its own run.

use crate::behaving::{recorded, table};
use crate::bench::Bench;

const GRANTS: &str = "[agent.policy]\ngrant = [\"process:spawn\"]\n";
const LEFT: &str = "not all behaviours were told";

/// Spec: X8. A delivery of an earlier run that hangs holds up no later one.
#[test]
fn run_waits_for_its_own_deliveries_alone() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent("[[model]]\nerror = { kind = \"auth_failed\" }\n", "");
    bench.run(&["run", "agent.toml"]).fails(1, "provider.auth_failed");
    let command = "from = \"start\"\n\
        command = [\"sh\", \"-c\", \"cat > now.$$; grep -q auth_failed now.$$ && sleep 60; mv now.$$ told\"]";
    let behaviors = [
        table("tell", "run.failed", command),
        table("fails", "run.failed", "command = [\"false\"]"),
    ];
    bench.agent(
        "[[model]]\nerror = { kind = \"quota_exhausted\" }\n",
        &format!("{GRANTS}{}", behaviors.concat()),
    );
    let ran = bench.run(&["run", "agent.toml"]).fails(1, "provider.quota_exhausted");
    assert!(!ran.err.contains(LEFT), "{}", ran.err);
    let told = std::fs::read_to_string(bench.path().join("told")).unwrap();
    assert!(told.contains("quota_exhausted"), "{told}");
    // Only an ended delivery is recorded as ended.
    let kinds = |name: &str| -> Vec<String> {
        recorded(&bench, name).into_iter().map(|(kind, _)| kind).collect()
    };
    assert_eq!(kinds("sub_tell").iter().filter(|it| *it == "behavior.completed").count(), 1);
    assert_eq!(kinds("sub_fails"), ["behavior.delivered", "behavior.failed"]);
}

/// Spec: X8. Its own that hang are waited for, not for ever.
#[test]
fn own_delivery_that_hangs_is_left_behind() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let hangs = table("tell", "run.finished", "command = [\"sleep\", \"60\"]");
    bench.agent("[[model]]\ntext = \"ok\"\n", &format!("{GRANTS}{hangs}"));
    let ran = bench.run(&["run", "agent.toml"]).ok();
    assert!(ran.err.contains(LEFT), "{}", ran.err);
}
