//! A process that performs a tree of runs.

use std::sync::Arc;

use backstop::clock::{Clock, VirtualClock};
use backstop::event_log::{Decision, InboxRequest};
use backstop::layer0::Timestamp;
use backstop::layer0::error::OrchError;
use backstop::layer0::failure::Failure;
use backstop::layer0::operator::{Answer, Context, Task};
use backstop::layer0::stop::Stop;
use backstop::layer0::usage::Allowance;
use backstop::{EventLog, LocalOrchestrator, Orchestrator};
use backstop_testkit::SteadyLog;
use serde_json::Value;

pub(super) const ROOT: &str = "run_root";
/// Number of waits for people after which a run counts as one that waits for ever.
const MAX_WAITS: usize = 50;

/// The clock and the log of a process.
pub(super) struct Process {
    pub(super) clock: VirtualClock,
    pub(super) log: Arc<dyn EventLog>,
}

impl Process {
    pub(super) fn new(log: Arc<dyn EventLog>) -> Self {
        let clock = VirtualClock::starting_at(Timestamp::default());
        let log = Arc::new(SteadyLog::new(log, &clock));
        Self { clock, log }
    }

    /// Performs the operator `root` from the beginning or where the log says, and approves what waits for a person.
    pub(super) async fn perform(
        self,
        orchestrator: LocalOrchestrator,
        model_calls: Option<u32>,
    ) -> Result<Value, String> {
        let (done, result) = tokio::sync::oneshot::channel();
        let (clock, log) = (self.clock.clone(), self.log);
        tokio::spawn(self.clock.track(Box::pin(async move {
            let mut answer = match log.summary(&ROOT.into()).await.unwrap() {
                Some(_) => orchestrator.resume("root", ROOT.into()).await,
                None => begin(&orchestrator, model_calls).await,
            };
            for _ in 0..MAX_WAITS {
                if !answer.as_ref().is_ok_and(|answer| answer.stop == Stop::WaitingApproval) {
                    break;
                }
                approve_all(&*log, &clock).await;
                answer = orchestrator.resume("root", ROOT.into()).await;
            }
            let _ = done.send(answer);
        })));
        let answer: Result<Answer, OrchError> = result.await.unwrap();
        answer.map(|it| it.output).map_err(|error| error.code().to_owned())
    }
}

async fn begin(
    orchestrator: &LocalOrchestrator,
    model_calls: Option<u32>,
) -> Result<Answer, OrchError> {
    let mut context = Context::root();
    context.run = Some(ROOT.into());
    let mut allowance = Allowance::without_bounds();
    allowance.model_calls = model_calls;
    context.allowance = model_calls.map(|_| allowance);
    orchestrator.dispatch("root", Task::text("go"), context).await
}

async fn approve_all(log: &dyn EventLog, clock: &VirtualClock) {
    for open in log.open_approvals().await.unwrap() {
        let decide = InboxRequest::Decide { approval: open.id, decision: Decision::approve("ops") };
        // It may be decided already, by a process that died before it read that.
        let _is_new = log.send(decide, "ops", clock.now()).await.unwrap();
    }
}
