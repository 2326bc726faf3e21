//! Copies of runs that nothing can be said to.

use std::sync::Arc;

use backstop_event_log::{EventLog, RunFilter};
use backstop_react::{ForkRequest, ResumeError};
use layer0::failure::Failure;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::*;

/// Spec: D7. Where the copy is over, no model would read the input; nothing is copied.
#[tokio::test]
async fn finished_fork_refuses_input() {
    let bench = Bench::new();
    let answers = vec![calls([call("c", "add", json!({"x": 1, "y": 2}))]), says("3"), says("4")];
    let agent =
        bench.agent(answers).tool(add).shared_log(Arc::clone(&bench.log) as Arc<dyn EventLog>);
    let agent = agent.build().unwrap();
    let whole = agent.run("go").await.unwrap();
    let last = bench.events(&whole.run_id).await.len() as u64;
    // The answer is in the copy: what follows is decided already.
    for at in [last - 1, last] {
        let fork = ForkRequest::new(whole.run_id.clone(), at).input("and now?");
        let refused = agent.fork(fork).await.unwrap_err();
        assert!(matches!(refused, ResumeError::CopyOver { .. }), "{at}: {refused}");
        assert_eq!(refused.code(), "input.invalid");
    }
    assert_eq!(bench.log.runs(RunFilter::default()).await.unwrap().len(), 1);
    let before_the_answer = ForkRequest::new(whole.run_id.clone(), last - 3).input("and now?");
    let copy = agent.fork(before_the_answer).await.unwrap();
    assert_eq!((copy.stop.clone(), copy.text()), (Stop::Completed, "4"));
}
