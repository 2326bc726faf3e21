//! What an operator's own code does beside the runs that it dispatched.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::MemoryLog;
use backstop_orchestrator::{Restart, Supervise};
use layer0::operator::Answer;
use layer0::stop::Stop;
use serde_json::json;

use crate::process::own;
use crate::workflows::{Failing, dispatch, payer, workflow};
use crate::{builder, start};

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
                layer0::Operator::run(&watched, task, &context),
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
    let events = crate::process::record(&log, "own").await;
    let shaky = |event: &&layer0::event::Event| match &event.kind {
        layer0::event::EventKind::OperatorDispatched(it) => &*it.operator == "shaky",
        _ => false,
    };
    assert_eq!(events.iter().filter(shaky).count(), 2, "its restart was due in a second");
}

/// Spec: O6, O2. Code that says that it works is not left, with a record or without.
#[tokio::test]
async fn busy_code_is_not_left() {
    for keeps_record in [true, false] {
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
                let pays = context.step("pay").dispatch("payer", task.clone());
                let (paid, ()) = futures_util::future::join(pays, polls).await;
                paid.map(|_| Answer::completed(json!("done")))
            }
        });
        let orchestrator = builder(&clock).operator(payer(&clock, &log, &paid));
        let orchestrator = match keeps_record {
            true => orchestrator.operator(workflow(code, &clock, &log)),
            false => orchestrator.operator(code),
        };
        let answer = dispatch(&clock, &orchestrator.build().unwrap(), "own", "go").await.unwrap();
        assert_eq!(answer.stop, Stop::WaitingApproval, "{keeps_record}");
        assert_eq!(polled.load(Ordering::SeqCst), 3, "{keeps_record}");
    }
}
