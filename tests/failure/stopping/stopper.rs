//! The tool, hooks and operators that stop their run in the middle.

use backstop_event_log::Inbox;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use backstop::clock::{Clock, VirtualClock};
use backstop::event_log::{InboxRequest, Settlement};
use backstop::layer0::error::{BoxError, OperatorError};
use backstop::layer0::id::RunId;
use backstop::layer0::operator::{Answer, Context, Signal, Task};
use backstop::tool::{Probe, State};
use backstop::{
    Gate, GateVerdict, HookContext, HookPoint, Moment, Observer, Operator, ToolContext, ToolError,
    tool,
};
use backstop_testkit::SteadyLog;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{RECEIPT, RUN, WALL, Way};

/// Stops the run in one way, while one part is running.
#[derive(Clone)]
pub(super) struct Stopper {
    way: Way,
    pub(super) token: CancellationToken,
    log: Arc<SteadyLog>,
    pub(super) clock: VirtualClock,
    aborts: Arc<Notify>,
    /// Notified when the clerk has begun.
    begun: Arc<Notify>,
    has_stopped: Arc<AtomicBool>,
    /// Whether it stops nothing.
    is_spent: bool,
    paid: Arc<AtomicUsize>,
}

impl Stopper {
    pub(super) fn new(way: Way, log: Arc<SteadyLog>, clock: VirtualClock) -> Self {
        let (token, aborts, begun, has_stopped, paid) = Default::default();
        let is_spent = false;
        Self { way, token, log, clock, aborts, begun, has_stopped, is_spent, paid }
    }

    /// Returns the stopper for another process, which stops nothing.
    pub(super) fn spent(&self) -> Self {
        Self { is_spent: true, ..self.clone() }
    }

    /// Returns how often the tool has paid.
    pub(super) fn paid(&self) -> usize {
        self.paid.load(Ordering::SeqCst)
    }

    /// Stops the run, the first time.
    async fn stop(&self) {
        if self.is_spent || self.has_stopped.swap(true, Ordering::SeqCst) {
            return;
        }
        let run = RunId::from(RUN);
        let request = match self.way {
            Way::Cancel | Way::CallerCancels => return self.token.cancel(),
            Way::CallerDeadline | Way::Time => return,
            Way::Lost => return self.log.lose(),
            Way::Sibling => return self.aborts.notify_one(),
            Way::Inbox => InboxRequest::Cancel { run },
            Way::Settled => {
                let settlement = Settlement::call_happened("ops");
                InboxRequest::Settle { run, call: "c1".into(), settlement }
            }
            Way::Signal => {
                let (name, data) = ("cancel".into(), Value::Null.into());
                InboxRequest::Signal { run, name, data, cause: None }
            }
        };
        assert!(self.log.send(request, "ops", self.clock.now()).await.unwrap());
    }

    /// Stops the run, and continues for longer than it may take.
    async fn stop_and_hang(&self) {
        if !self.is_spent {
            self.stop().await;
            self.clock.sleep(2 * WALL).await;
        }
    }

    /// Stops the run, and continues for a while: until its time is up, if that is what stops it.
    pub(super) async fn stop_and_store(&self) {
        if !self.is_spent {
            self.stop().await;
            self.clock.sleep(self.way.storing()).await;
        }
    }
}

/// An observer or a gate that hangs after `pay`.
pub(super) struct Hangs(pub(super) Stopper);

#[async_trait]
impl Observer for Hangs {
    fn name(&self) -> &str {
        "hangs"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::AfterTool]
    }
    async fn observe(&self, moment: Moment<'_>, _: &HookContext) -> Result<(), BoxError> {
        if matches!(moment, Moment::AfterTool { tool: "pay", .. }) {
            self.0.stop_and_hang().await;
        }
        Ok(())
    }
}

#[async_trait]
impl Gate for Hangs {
    fn name(&self) -> &str {
        "hangs"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::AfterTool]
    }
    async fn judge(
        &self,
        moment: Moment<'_>,
        context: &HookContext,
    ) -> Result<GateVerdict, BoxError> {
        self.observe(moment, context).await.map(|()| GateVerdict::Continue)
    }
}

/// A gate that ends the run after `add`, on demand.
pub(super) struct Aborts(pub(super) Stopper);

#[async_trait]
impl Gate for Aborts {
    fn name(&self) -> &str {
        "aborts"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::AfterTool]
    }
    async fn judge(&self, moment: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        let is_asked = self.0.way == Way::Sibling && !self.0.is_spent;
        if is_asked && matches!(moment, Moment::AfterTool { tool: "add", .. }) {
            self.0.aborts.notified().await;
            return Ok(GateVerdict::Abort("enough".into()));
        }
        Ok(GateVerdict::Continue)
    }
}

/// An operator that nothing waits for: it works until it is cancelled, and takes its time to end.
pub(super) struct Clerk(pub(super) Stopper);

#[async_trait]
impl Operator for Clerk {
    fn name(&self) -> &str {
        "clerk"
    }
    async fn run(&self, _: Task, context: &Context) -> Result<Answer, OperatorError> {
        self.0.begun.notify_one();
        poll_fn(|task| context.signals.poll_has(Signal::CANCEL, task)).await;
        self.0.stop_and_store().await;
        Ok(Answer::from_output(json!("filed")))
    }
}

async fn hangs_too(
    part: String,
    stopper: State<Stopper>,
    _: &ToolContext,
) -> Result<Probe, ToolError> {
    if part == "Probe" {
        stopper.stop_and_hang().await;
    }
    Ok(Probe::Unknown)
}

/// Pays at once, in the way that a part needs.
#[tool(probe = hangs_too, once = "args.part")]
pub(super) async fn pay(
    part: String,
    stopper: State<Stopper>,
    context: &ToolContext,
) -> Result<String, ToolError> {
    stopper.paid.fetch_add(1, Ordering::SeqCst);
    match &*part {
        "Call" => stopper.stop().await,
        "Close" => {
            // The operator begins, and nobody waits for its end.
            tokio::select! {
                _ = context.dispatch("clerk", Task::text("file it")) => {}
                () = stopper.begun.notified() => {}
            }
        }
        "Error" => {
            let text = format!("{RECEIPT} is not printed\n{}", "line\n".repeat(500));
            return Err(ToolError::ExecutionFailed(text));
        }
        "Probe" => return Err(ToolError::ExecutionFailed(format!("{RECEIPT} is not printed"))),
        "Store" => return Ok(format!("{RECEIPT} {}", "line ".repeat(5_000))),
        _ => {}
    }
    Ok(RECEIPT.into())
}

/// Adds two integers.
#[tool(idempotent)]
pub(super) async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
    Ok(x + y)
}
