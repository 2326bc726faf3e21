//! Copies of runs that are over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use backstop_event_log::{EventLog, Log, RunFilter, RunState, Runs};
use backstop_react::{Budget, ForkRequest, ResumeError, replay};
use layer0::event::EventKind;
use layer0::failure::Failure;
use layer0::stop::Stop;
use layer0::usage::BudgetIncrease;
use serde_json::json;

use crate::bench::*;
use crate::intercepted::InterceptedLog;

/// Spec: D7, D12. A copy that is over goes on from its end with an input, after a completed run too;
/// without one nothing is copied.
#[tokio::test]
async fn finished_fork_goes_on_with_an_input() {
    let bench = Bench::new();
    let sum = calls([call("c", "add", json!({"x": 1, "y": 2}))]);
    let answers = vec![sum, says("3"), says("4"), says("5"), says("6")];
    let agent =
        bench.agent(answers).tool(add).shared_log(Arc::clone(&bench.log) as Arc<dyn EventLog>);
    let agent = agent.build().unwrap();
    let whole = agent.run("go").await.unwrap();
    let last = bench.events(&whole.run_id).await.len() as u64;
    for silent in [ForkRequest::new(whole.run_id.clone(), last), {
        ForkRequest::new(whole.run_id.clone(), last).input(" ")
    }] {
        let refused = agent.fork(silent).await.unwrap_err();
        assert!(matches!(refused, ResumeError::CopyOver { .. }), "{refused}");
        assert_eq!(refused.code(), "input.invalid");
    }
    for blank in ["", " \t\n"] {
        let fork = ForkRequest::new(whole.run_id.clone(), 1).input(blank);
        let refused = agent.fork(fork).await.unwrap_err();
        assert!(matches!(refused, ResumeError::Blank("input")), "{refused}");
    }
    assert_eq!(bench.log.runs(RunFilter::default()).await.unwrap().len(), 1);
    // If the answer is in the fork, its end is decided already.
    for (at, text) in [(last, "4"), (last - 1, "5")] {
        let fork = ForkRequest::new(whole.run_id.clone(), at).input("and now?").by("ops");
        let copy = agent.fork(fork).await.unwrap();
        assert_eq!((&copy.stop, copy.text()), (&Stop::Completed, text));
        let events = bench.events(&copy.run_id).await;
        let opening = events.iter().find_map(|event| match &event.kind {
            EventKind::RunReopened(reopened) => Some(reopened),
            _ => None,
        });
        let opening = opening.unwrap();
        assert_eq!((&*opening.by, &opening.reason), ("ops", &None), "it had completed");
        assert_eq!(opening.message.as_deref(), Some("and now?"));
        assert_eq!(copy.usage.tool_calls, 1, "what was completed does not run again");
        assert!(replay(&*bench.log, &copy.run_id).await.unwrap().is_some());
        let known = bench.log.summary(&whole.run_id).await.unwrap().unwrap();
        assert_eq!((known.last_seq, known.state), (last, RunState::Finished), "untouched");
    }
    let before_the_answer = ForkRequest::new(whole.run_id.clone(), last - 3).input("and now?");
    let copy = agent.fork(before_the_answer).await.unwrap();
    assert_eq!((copy.stop.clone(), copy.text()), (Stop::Completed, "6"));
}

/// Spec: D7, B2. What a run had used counts for its copies: they need more of a budget that is used up.
#[tokio::test]
async fn fork_of_an_exhausted_run_needs_more_budget() {
    let bench = Bench::new();
    let sum = calls([call("c", "add", json!({"x": 1, "y": 2}))]);
    let agent = bench.agent(vec![sum, says("3")]).tool(add);
    let agent = agent.budget(Budget::new().model_calls(1)).build().unwrap();
    let stopped = agent.run("go").await.unwrap();
    let last = bench.events(&stopped.run_id).await.len() as u64;
    let fork = ForkRequest::new(stopped.run_id.clone(), last).input("go on");
    let refused = agent.fork(fork.clone()).await.unwrap_err();
    assert_eq!(refused.code(), "run.not_reopenable");
    let copy = agent.fork(fork.budget(BudgetIncrease::new().model_calls(1))).await.unwrap();
    assert_eq!((copy.text(), copy.usage.model_attempts), ("3", 2));
}

/// Spec: D1, D7. A copy has the rows that were verified, not those of another read.
#[tokio::test]
async fn fork_copies_only_verified_records() {
    let mut refused = 0;
    for changed in 1..=6 {
        let bench = Bench::new();
        let whole = bench.run(bench.agent(vec![says("3")])).await.unwrap();
        let original = bench.events(&whole.run_id).await;
        let reads = AtomicU32::new(0);
        let log = InterceptedLog::changing(&bench.log, move |records| {
            if reads.fetch_add(1, Ordering::SeqCst) + 1 == changed {
                records.iter_mut().for_each(|record| record.schema += 1);
            }
        });
        let agent = bench.agent(vec![says("4")]).shared_log(Arc::new(log) as Arc<dyn EventLog>);
        let agent = agent.build().unwrap();
        let fork = ForkRequest::new(whole.run_id.clone(), 2).input("and now?");
        match agent.fork(fork).await {
            Err(error) => {
                assert_eq!(error.code(), "log.tampered", "read {changed}");
                assert_eq!(bench.log.runs(RunFilter::default()).await.unwrap().len(), 1);
                refused += 1;
            }
            Ok(copy) => {
                let events = bench.events(&copy.run_id).await;
                for (event, before) in events.iter().zip(&original[..2]) {
                    assert_eq!((&event.kind, event.hash), (&before.kind, before.hash));
                }
            }
        }
    }
    assert_eq!(refused, 2, "one read is followed, one is copied");
}
