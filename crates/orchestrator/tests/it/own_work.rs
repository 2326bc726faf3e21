//! Code of operators: its own work during the runs that it dispatched, and steps that it does not request.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::MemoryLog;
use backstop_orchestrator::{Restart, Supervise};
use layer0::event::{Event, EventKind};
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;
use layer0::{Operator, Orchestrator};
use serde_json::json;

use crate::process::{own, record};
use crate::workflows::{Failing, dispatch, payer, workflow};
use crate::{builder, on, start};

/// Spec: O6, O2. A restart that is due is made though a step beside it waits for a person.
#[tokio::test]
async fn restart_beside_a_wait_is_made() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let time = clock.clone();
    let code = own("own", move |task, context| {
        let time = time.clone();
        async move {
            let watched = Supervise::new("w", "shaky", Restart::Transient).clock(Arc::new(time));
            let (one, two) = futures_util::future::join(
                context.step("pay").dispatch("payer", task.clone()),
                watched.run(task, &context),
            )
            .await;
            two?;
            one
        }
    });
    let shaky = Arc::new(Failing("shaky", Mutex::new(1)));
    let orchestrator = builder(&clock)
        .shared_operator(Arc::clone(&shaky) as _)
        .operator(payer(&clock, &log, &paid))
        .operator(workflow(code, &clock, &log))
        .build()
        .unwrap();
    let answer = dispatch(&clock, &orchestrator, "own", "go").await.unwrap();
    assert_eq!(answer.stop, Stop::WaitingApproval);
    assert_eq!(*shaky.1.lock().unwrap(), 0);
    let events = record(&log, "own").await;
    let shaky = |event: &&Event| match &event.kind {
        EventKind::OperatorDispatched(it) => &*it.operator == "shaky",
        _ => false,
    };
    assert_eq!(events.iter().filter(shaky).count(), 2, "its restart was due in a second");
}

/// Spec: O6, O2. Code that says that it works is not left.
#[tokio::test]
async fn busy_code_is_not_left() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let (time, polled) = (clock.clone(), Arc::<AtomicU32>::default());
    let count = Arc::clone(&polled);
    let code = own("own", move |task, context| {
        let (time, count) = (time.clone(), Arc::clone(&count));
        async move {
            let polls = async {
                let _busy = context.busy();
                for _ in 0..3 {
                    time.sleep(Duration::from_secs(60)).await;
                    count.fetch_add(1, Ordering::SeqCst);
                }
            };
            let step = context.step("pay");
            let pays = step.dispatch("payer", task.clone());
            let (paid, ()) = futures_util::future::join(pays, polls).await;
            paid.map(|_| Answer::from_output(json!("done")))
        }
    });
    let orchestrator = builder(&clock).operator(payer(&clock, &log, &paid));
    let orchestrator = orchestrator.operator(workflow(code, &clock, &log)).build().unwrap();
    let answer = dispatch(&clock, &orchestrator, "own", "go").await.unwrap();
    assert_eq!(answer.stop, Stop::WaitingApproval);
    assert_eq!(polled.load(Ordering::SeqCst), 3);
}

/// Spec: O6. Another version of the code may have begun them.
#[tokio::test]
async fn unasked_steps_are_named_in_the_record() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let begun = own("own", |task, context| async move {
        context.step("pay").dispatch("payer", task).await?;
        Ok(Answer::from_output(json!("paid")))
    });
    let other = own("own", |_, _| async { Ok(Answer::from_output(json!("nothing to pay"))) });
    let process = |code| {
        let process = builder(&clock).operator(payer(&clock, &log, &paid));
        process.operator(workflow(code, &clock, &log)).build().unwrap()
    };
    let waits = dispatch(&clock, &process(begun), "own", "go").await.unwrap();
    assert_eq!(waits.stop, Stop::WaitingApproval);
    let mut context = Context::root();
    (context.run, context.goes_on, context.is_recorded) = (waits.run, true, true);
    let resumed = process(other);
    let answer =
        on(&clock, async move { resumed.dispatch("own", Task::text("go"), context).await });
    assert_eq!(answer.await.unwrap().output, json!("nothing to pay"));
    let warnings: Vec<_> = record(&log, "own")
        .await
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::Warning(warning) => Some(warning.message.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(warnings, ["the code did not ask for recorded steps: `own/pay`"]);
}
