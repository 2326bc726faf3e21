//! Agents on a log that only stores records.

use std::sync::Arc;

use backstop_event_log::{EventLog, LogError, MemoryLog, Ports, RunFilter, verify_run};
use backstop_react::{Decision, ResumeRequest, RunRequest, replay};
use layer0::Timestamp;
use layer0::failure::Chain;
use layer0::id::{RunId, SessionId};
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::*;

#[derive(Default)]
struct Records(MemoryLog);

impl EventLog for Records {
    fn ports(&self) -> Ports<'_> {
        Ports::new(&self.0)
    }
}

/// Spec: D1, D3
#[tokio::test]
async fn log_of_records_alone_holds_runs() {
    let (bench, log) = (Bench::new(), Arc::new(Records::default()) as Arc<dyn EventLog>);
    let answers = vec![calls([call("c1", "broken", json!({"how": "long"}))]), says("done")];
    let agent = bench.agent(answers).tool(broken).shared_log(Arc::clone(&log)).build().unwrap();
    let run = RunId::from("run_1");
    let ran = agent.clone();
    let request = RunRequest::new("go").run(run.clone());
    let outcome = on(&bench, async move { ran.run(request).await }).await.unwrap();
    assert_eq!(outcome.stop, Stop::Completed);
    verify_run(&*log, &run).await.unwrap();
    replay(&*log, &run).await.unwrap();
    let again = agent.resume(ResumeRequest::new(run)).await.unwrap();
    assert_eq!(again.output, outcome.output);
}

/// Spec: J2
#[tokio::test]
async fn what_a_log_lacks_is_named() {
    let (bench, log) = (Bench::new(), Arc::new(Records::default()) as Arc<dyn EventLog>);
    let agent = bench.agent(vec![says("done")]).shared_log(Arc::clone(&log)).build().unwrap();
    let request = RunRequest::new("go").session("ses_1");
    let failure = on(&bench, async move { agent.run(request).await }).await.unwrap_err();
    let said = Chain(&failure).to_string();
    assert!(said.contains("this log lists no runs"), "{said}");
    let (run, session) = (RunId::from("run_1"), SessionId::from("ses_1"));
    let failed = |error: LogError| Chain(&error).to_string();
    let listed = log.runs(RunFilter::new()).await.map_err(failed);
    assert!(listed.is_err_and(|said| said.contains("lists no runs")));
    assert!(log.last_root(&session).await.is_err());
    assert!(
        log.erase(&run, 1).await.is_err_and(|error| matches!(error, LogError::NotErasable { .. }))
    );
    assert!(log.subscriptions().await.is_err());
    let decided = log.decide(&"apr_1".into(), Decision::approve("ada"), Timestamp::default()).await;
    assert!(decided.is_err_and(|error| failed(error).contains("takes no requests")));
    // What only saves work or wakes is left out without an error.
    assert_eq!((log.inbox(&run).await.unwrap(), log.erasures().await.unwrap()), (Vec::new(), None));
    assert_eq!(log.transcript(&run).await.unwrap(), []);
    log.watch_inbox(&run).wait_for_change().await;
}
