//! Deaths of the process again and again, and the steps that were open (SPEC D5).

use layer0::ToolSpec;
use layer0::event::*;
use serde_json::json;

use crate::script::{Script, agent, ids};

/// Spec: D5. Only the deaths of a run are left out that does nothing but wait for child runs.
#[test]
fn step_next_to_a_child_run_counts_deaths() {
    let mut script = Script::asking(agent(), &["below", "plain"]);
    script.begin("c0", "below");
    script.dispatch("c0", "run_a");
    for _ in 0..2 {
        assert!(!script.machine.is_crash_loop());
        script.recover();
    }
    assert!(script.machine.is_crash_loop(), "a call waits to be admitted");
    script.recover();
    assert_eq!(script.reason(), "run.crash_loop");
}

/// Spec: D5. A recovery that runs the call again does not leave it to its child run.
#[test]
fn call_that_runs_again_counts_deaths() {
    let mut script = Script::at_work(agent(), &["below"]);
    script.dispatch("c0", "run_a");
    for _ in 0..2 {
        script.take(RunRecovered::new(ids(&["c0"]), Vec::new(), 0));
        assert_eq!(script.finish, None);
    }
    script.take(RunRecovered::new(ids(&["c0"]), Vec::new(), 0));
    assert_eq!(script.reason(), "run.crash_loop");
}

/// Spec: D5, T14. A probe is for calls that must not be repeated.
#[test]
fn repeatable_call_is_never_probed() {
    let both = ToolSpec::new("both", "", json!({ "type": "object" })).idempotent().probe();
    for (max, lost) in [(1, [vec![], ids(&["c0"])]), (2, [ids(&["c0"]), vec![]])] {
        let mut definition = agent();
        definition.tools = [both.clone()].into();
        definition.budget.max_tool_calls = Some(max);
        let script = Script::at_work(definition, &["both"]);
        let RunRecovered { rerun, interrupted, probing, .. } = script.machine.find_lost_steps();
        assert_eq!(([rerun, interrupted], probing), (lost, ids(&[])), "{max}");
    }
}

/// Spec: D5, E5. A repeated call stores an error of its own.
#[test]
fn repeated_call_forgets_its_stored_error() {
    let mut script = Script::at_work(agent(), &["safe"]);
    script.take(ErrorStored::new("err_1", "c0", "safe", 1, 0));
    script.recover();
    script.end("c0", "safe");
    assert_eq!(script.finish, None);
}
