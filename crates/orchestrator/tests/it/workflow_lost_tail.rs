//! Workflows whose records have lost events that were acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use backstop_event_log::{
    Batch, Claim, EventLog, Log, LogError, LostRun, LostTails, MemoryLog, Ports, Record, RunSummary,
};
use backstop_orchestrator::{LocalOrchestrator, Workflow};
use layer0::Orchestrator;
use layer0::event::{EventKind, Hash, LostTail};
use layer0::failure::Failure;
use layer0::id::RunId;
use layer0::operator::{Answer, Task};

use crate::process::{died, own, record, run_of};
use crate::workflows::{dispatch, echo, steps, types};
use crate::{builder, on, start};

/// A log that knows so many more events of a run than its record has, until their loss is accepted.
struct Older {
    log: Arc<MemoryLog>,
    run: RunId,
    lost: u64,
}

impl Older {
    /// Returns the newest event of a run that is lost.
    async fn find_lost(&self, run: &RunId) -> Result<Option<LostTail>, LogError> {
        let summary = self.log.summary(run).await?.filter(|it| it.run == self.run);
        let lost = summary.filter(|it| it.losses() == 0);
        Ok(lost.map(|it| LostTail::new(it.last_seq + self.lost, Hash([9; 32]))))
    }
}

impl EventLog for Older {
    fn ports(&self) -> Ports<'_> {
        self.log.ports().log(self).lost_tails(self)
    }
}

#[async_trait]
impl Log for Older {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        match self.find_lost(run).await? {
            Some(tail) => Err(LogError::lost_tail(run.clone(), tail.seq)),
            None => self.log.claim(run).await,
        }
    }
    fn claim_new(&self, run: &RunId) -> Claim {
        self.log.claim_new(run)
    }
    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        self.log.append(batch).await
    }
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.log.summary(run).await
    }
    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        self.log.records(run, from_seq).await
    }
}

#[async_trait]
impl LostTails for Older {
    async fn claim_with_loss(&self, run: &RunId) -> Result<(Claim, Option<LostTail>), LogError> {
        let lost = self.find_lost(run).await?;
        Ok((self.log.claim(run).await?, lost))
    }
    async fn lost_tails(&self) -> Result<Vec<LostRun>, LogError> {
        Ok(Vec::new())
    }
}

/// Spec: J2, O6. Steps may have acted that the record does not have: as many as events were lost.
#[tokio::test]
async fn accepted_loss_repeats_no_lost_step() {
    let (clock, log, acts) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let process = |records: Arc<dyn EventLog>, log: &Arc<MemoryLog>| -> LocalOrchestrator {
        let acts = Arc::clone(&acts);
        let pay = own("pay", move |_, _| {
            acts.fetch_add(1, Ordering::SeqCst);
            async { Ok(Answer::from_output("paid".into())) }
        });
        let code = own("own", |task, context| async move {
            context.step("draft").dispatch("draft", task.clone()).await?;
            let paid = context.step("pay").dispatch("pay", task.clone()).await;
            let looked = context.step("look").dispatch("pay", task.clone().idempotent()).await;
            let told = context.step("tell").dispatch("draft", task).await;
            let ends = [paid, looked, told].map(|end| match end {
                Ok(answer) => answer.output,
                Err(error) => error.code().into(),
            });
            Ok(Answer::from_output(ends.to_vec().into()))
        });
        builder(&clock)
            .operator(echo("draft", &clock, log))
            .operator(pay)
            .operator(Workflow::new(code, records).clock(Arc::new(clock.clone())))
            .build()
            .unwrap()
    };
    let whole = process(Arc::clone(&log) as Arc<dyn EventLog>, &log);
    dispatch(&clock, &whole, "own", "go").await.unwrap();
    assert_eq!(acts.load(Ordering::SeqCst), 2);
    let rest = died(&log, "own", |it| it.kind.event_type() == "operator.returned").await;
    let run = run_of(&rest, "own").await;
    let older = Older { log: Arc::clone(&rest), run: run.clone(), lost: 2 };
    let later = process(Arc::new(older), &rest);

    let (refused, of) = (later.clone(), run.clone());
    let refused = on(&clock, async move { refused.resume("own", of).await }).await.unwrap_err();
    assert_eq!((refused.code(), refused.is_retryable()), ("log.lost_tail", false));
    assert_eq!(acts.load(Ordering::SeqCst), 2);
    let accepted =
        on(&clock, async move { later.resume_accepting_lost_tail("own", run).await }).await;
    let ends = accepted.unwrap().output;
    assert_eq!(ends, serde_json::json!(["tool.interrupted", "paid", "go draft"]));
    assert_eq!(acts.load(Ordering::SeqCst), 3, "only what may be repeated is");
    let events = record(&rest, "own").await;
    assert!(
        events
            .iter()
            .any(|it| matches!(&it.kind, EventKind::RunResumed(it) if it.lost_tail.is_some()))
    );
    assert_eq!(steps(&events).len(), 4, "{:?}", types(&events));
}

/// Spec: J2, O6. The acceptance holds for the runs that the workflow dispatched.
#[tokio::test]
async fn accepted_loss_holds_for_runs_below() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let process = |records: Arc<dyn EventLog>| {
        let inner = own("inner", |task, context| async move {
            context.step("one").dispatch("echo", task).await
        });
        let outer = own("outer", |task, context| async move {
            context.step("in").dispatch("inner", task).await
        });
        let recorded =
            |code| Workflow::new(code, Arc::clone(&records)).clock(Arc::new(clock.clone()));
        builder(&clock)
            .operator(own("echo", |task, _| async move { Ok(Answer::from_output(task.input)) }))
            .operator(recorded(inner))
            .operator(recorded(outer))
            .build()
            .unwrap()
    };
    let whole = process(Arc::clone(&log) as Arc<dyn EventLog>);
    dispatch(&clock, &whole, "outer", "go").await.unwrap();
    let rest = died(&log, "inner", |it| it.kind.event_type() == "run.started").await;
    let rest = died(&rest, "outer", |it| it.kind.event_type() == "operator.dispatched").await;
    let (run, inner) = (run_of(&rest, "outer").await, run_of(&rest, "inner").await);
    let older = Older { log: Arc::clone(&rest), run: inner, lost: 1 };
    let later = process(Arc::new(older));
    let again =
        on(&clock, async move { later.resume_accepting_lost_tail("outer", run).await }).await;
    assert_eq!(again.unwrap_err().code(), "tool.interrupted");
    let types = types(&record(&rest, "inner").await);
    assert!(types.contains(&"run.resumed"), "{types:?}");
}

/// Spec: O6. It is no claim that was lost: a task can be dispatched as usual.
#[tokio::test]
async fn accepting_no_loss_changes_nothing() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let code =
        own("own", |task, context| async move { context.step("one").dispatch("echo", task).await });
    let process = builder(&clock)
        .operator(own("echo", |task, _| async move { Ok(Answer::from_output(task.input)) }))
        .operator(
            Workflow::new(code, Arc::clone(&log) as Arc<dyn EventLog>)
                .clock(Arc::new(clock.clone())),
        )
        .build()
        .unwrap();
    let run = {
        let process = process.clone();
        let task = Task::text("go");
        let context = layer0::operator::Context::root();
        on(&clock, async move { process.dispatch("own", task, context).await }).await
    };
    let run = run.unwrap().run.unwrap();
    let rest = died(&log, "own", |it| it.kind.event_type() == "run.started").await;
    drop(rest);
    let again =
        on(&clock, async move { process.resume_accepting_lost_tail("own", run).await }).await;
    assert_eq!(again.unwrap().output, "go");
    assert!(!types(&record(&log, "own").await).contains(&"run.resumed"));
}
