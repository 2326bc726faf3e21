//! Workflows that adopt their current definition.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use backstop_clock::Clock;
use backstop_event_log::{Decision, EventLog, Inbox, MemoryLog, current_agent, read_events};
use backstop_orchestrator::Sequence;
use layer0::Orchestrator;
use layer0::failure::Failure;
use layer0::operator::{Context, Task};
use layer0::stop::Stop;

use crate::workflows::{dispatch, echo, events_of, payer, steps, workflow};
use crate::{builder, on, start};

/// Spec: J2w, O6. A workflow that calls others than it did is another one; asked to, it goes on, and its record says
/// as what. One whose steps do not fit leaves the run to the one before.
#[tokio::test]
async fn changed_workflow_goes_on_if_asked() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let process = |steps: [&'static str; 2]| {
        builder(&clock)
            .operator(echo("echo", &clock, &log))
            .operator(echo("other", &clock, &log))
            .operator(payer(&clock, &log, &paid))
            .operator(workflow(Sequence::new("both", steps), &clock, &log))
            .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
            .build()
            .unwrap()
    };
    let waiting = dispatch(&clock, &process(["payer", "echo"]), "both", "go").await.unwrap();
    let run = waiting.run.unwrap();
    let go_on = async |steps, adopts: bool| {
        let mut context = Context::root();
        (context.run, context.goes_on, context.is_recorded) = (Some(run.clone()), true, true);
        context.adopts = adopts;
        let process = process(steps);
        on(&clock, async move { process.dispatch("both", Task::text(""), context).await }).await
    };
    let misfit = go_on(["other", "payer"], true).await.unwrap_err();
    assert_eq!(misfit.code(), "replay.diverged");
    let still = go_on(["payer", "echo"], false).await.unwrap();
    assert_eq!(still.stop, Stop::WaitingApproval, "the run is the old one's");

    let open = log.open_approvals().await.unwrap();
    log.decide(&open[0].id, Decision::approve("ops"), clock.now()).await.unwrap();
    let refused = go_on(["payer", "other"], false).await.unwrap_err();
    assert_eq!(refused.code(), "replay.diverged");
    assert_eq!(go_on(["payer", "other"], true).await.unwrap().stop, Stop::Completed);
    let events = events_of(&log, "both").await;
    let operators: Vec<_> = steps(&events).into_iter().map(|(_, operator)| operator).collect();
    assert_eq!(operators.last(), Some(&"other"), "{operators:?}");
    let adopted = current_agent(&events).unwrap();
    assert!(adopted.definition.get().contains("other"), "{:?}", adopted.definition);
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

/// Spec: J2w, O6. The run of an agent does not go on as a workflow of its name.
#[tokio::test]
async fn workflow_takes_over_no_agent() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let begun = builder(&clock).operator(payer(&clock, &log, &paid)).build().unwrap();
    let run = dispatch(&clock, &begun, "payer", "go").await.unwrap().run.unwrap();
    let before = read_events(&*log, &run).await.unwrap().1.len();
    let process = builder(&clock)
        .operator(echo("echo", &clock, &log))
        .operator(workflow(Sequence::new("payer", ["echo"]), &clock, &log))
        .build()
        .unwrap();
    let mut context = Context::root();
    (context.run, context.goes_on, context.is_recorded) = (Some(run.clone()), true, true);
    context.adopts = true;
    let refused =
        on(&clock, async move { process.dispatch("payer", Task::text(""), context).await }).await;
    assert_eq!(refused.unwrap_err().code(), "replay.diverged");
    assert_eq!(read_events(&*log, &run).await.unwrap().1.len(), before, "nothing was written");
}
