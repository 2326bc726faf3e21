//! Runs of a process that acts under a lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{ActionGuard, Decision, EventLog, Inbox, InboxRequest, Lease};
use backstop_react::{
    ApprovalRequest, Approver, HookContext, HookPoint, Moment, Observer, RunRequest,
};
use layer0::JsonText;
use layer0::error::BoxError;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::*;
use crate::intercepted::InterceptedLog;

/// A lease that lasts, and counts the running work.
#[derive(Clone, Default)]
struct Lasting(Arc<AtomicU32>);

/// Counts until it is dropped.
struct WorkCount(Arc<AtomicU32>);

impl Drop for WorkCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Lease for Lasting {
    fn may_start(&self) -> bool {
        true
    }
    async fn until_may_start(&self) {}
    async fn wait_for_end(&self) {
        std::future::pending::<()>().await;
    }
    fn at_work(&self) -> Option<ActionGuard> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Some(ActionGuard::new(WorkCount(Arc::clone(&self.0))))
    }
}

/// Denies after an hour.
struct DeniesLate(VirtualClock);

#[async_trait]
impl Approver for DeniesLate {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        self.0.sleep(Duration::from_secs(3_600)).await;
        Some(Decision::deny("ops", "no"))
    }
}

/// An observer that counts signals, and records nothing.
struct LooksAtSignals(Arc<AtomicU32>);

#[async_trait]
impl Observer for LooksAtSignals {
    fn name(&self) -> &str {
        "looks"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::Signal]
    }
    async fn observe(&self, _: Moment<'_>, _: &HookContext) -> Result<(), BoxError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Spec: J2. A process that leaves waits for no work that has ended, also if that left nothing to record.
#[tokio::test]
async fn work_without_a_record_is_over() {
    let (bench, lease, seen) = (Bench::new(), Lasting::default(), Arc::<AtomicU32>::default());
    let log = Arc::new(InterceptedLog::leased(&bench.log, Arc::new(lease.clone())));
    let answers = vec![calls([call("c1", "add", json!({"x": 1, "y": 2}))]), says("done")];
    let agent = bench
        .agent(answers)
        .tool(add)
        .require_approval("add")
        .approver(DeniesLate(bench.clock.clone()))
        .observer(LooksAtSignals(Arc::clone(&seen)))
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    let clock = bench.clock.clone();
    let (working, looked) = (Arc::clone(&lease.0), Arc::clone(&seen));
    let outcome = on(&bench, async move {
        let sends = async {
            clock.sleep(Duration::from_secs(1)).await;
            let (name, data) = ("note".into(), JsonText::from(&json!(null)));
            let signal = InboxRequest::Signal { run: "run_1".into(), name, data, cause: None };
            assert!(log.send(signal, "ops", clock.now()).await.unwrap());
            clock.sleep(Duration::from_secs(1)).await;
            assert_eq!(looked.load(Ordering::SeqCst), 1);
            assert_eq!(working.load(Ordering::SeqCst), 0, "nothing is at work");
        };
        let request = RunRequest::new("go").run("run_1".into());
        tokio::join!(agent.run(request), sends).0.unwrap()
    });
    assert_eq!(outcome.await.stop, Stop::Completed);
    assert_eq!(lease.0.load(Ordering::SeqCst), 0);
}
