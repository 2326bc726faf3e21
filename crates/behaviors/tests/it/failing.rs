//! Behaviours that fail, panic and hang.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use backstop_behaviors::{BehaviorError, FnBehavior, behavior};
use layer0::code;
use layer0::error::OperatorError;
use layer0::event::EventKind;
use layer0::failure::{Effect, Facts, Failure};

use super::{Seen, host, memory, noting, opened, places, record, settled, types, warn};

fn failing(
    name: &'static str,
    runs: &Arc<AtomicU32>,
    react: impl Fn(u32) -> Result<(), BehaviorError> + Send + Sync + Clone + 'static,
) -> FnBehavior {
    let runs = Arc::clone(runs);
    behavior(name, "warning".parse().unwrap(), move |_, _| {
        let (runs, react) = (Arc::clone(&runs), react.clone());
        async move { react(runs.fetch_add(1, Ordering::SeqCst) + 1) }
    })
}

/// Spec: X3
#[tokio::test(flavor = "multi_thread")]
async fn failures_leave_the_others_alone() {
    let (log, seen, told) = (memory(), Seen::default(), Seen::default());
    let (once, twice) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
    let for_good = failing("for good", &once, |_| {
        Err(OperatorError::NonRetryable(format!(
            "no desk for sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa {}",
            "of many ".repeat(25_000)
        ))
        .into())
    });
    let flaky = failing("flaky", &twice, |run| match run {
        1 => Err(OperatorError::Retryable("busy".into()).into()),
        _ => Ok(()),
    });
    let hanging = behavior("hanging", "warning".parse().unwrap(), |_, _| async {
        std::future::pending().await
    });
    let wild = behavior("wild", "warning".parse().unwrap(), |_, _| async { panic!("wild thing") });
    let serving = host(&log)
        .behavior(for_good)
        .behavior(flaky)
        .behavior(hanging.timeout(Duration::from_millis(50)).attempts(1))
        .behavior(wild)
        .behavior(noting("fine", "warning", &seen))
        .behavior(noting("ops", "behavior.failed", &told))
        .build()
        .unwrap()
        .serve();
    let names = ["for good", "flaky", "hanging", "wild", "fine", "ops"];
    opened(&log, &names).await;
    warn(&log, "run_1", 1).await;
    settled(&serving).await;
    serving.stop().await;
    assert_eq!(places(&seen).len(), 1);
    assert_eq!((once.load(Ordering::SeqCst), twice.load(Ordering::SeqCst)), (1, 2));
    let mut failures: Vec<_> = told
        .lock()
        .unwrap()
        .iter()
        .map(|delivery| match &delivery.event.kind {
            EventKind::BehaviorFailed(failed)
                if !failed.message.contains("sk-ant") && failed.message.len() < 1_000 =>
            {
                (
                    failed.behavior.to_string(),
                    failed.reason.to_string(),
                    failed.exception_type.to_string(),
                    failed.attempts,
                )
            }
            other => panic!("{other:?}"),
        })
        .collect();
    failures.sort();
    let expected = [
        ("for good", "operator.non_retryable", "OperatorError", 1),
        ("hanging", "behavior.timeout", "Ended", 1),
        ("wild", "behavior.panicked", "Ended", 1),
    ];
    let expected = expected.map(|(a, b, c, d)| (a.to_owned(), b.to_owned(), c.to_owned(), d));
    assert_eq!(failures, expected);
    let events = record(&log, "flaky", 1).await;
    let Some(EventKind::BehaviorCompleted(completed)) = events.last().map(|event| &event.kind)
    else {
        panic!("{events:?}")
    };
    assert_eq!(completed.attempts, 2);

    // Once, also after a restart.
    let again = host(&log).behavior(noting("ops", "behavior.failed", &told)).build().unwrap();
    let again = again.serve();
    settled(&again).await;
    again.stop().await;
    assert_eq!(told.lock().unwrap().len(), 3);
    let ops = record(&log, "ops", 1).await;
    assert_eq!(types(&ops).iter().filter(|it| **it == "behavior.completed").count(), 3);
}

/// Spec: X3, X5. Behaviours that fail at each other's failures come to an end.
#[tokio::test(flavor = "multi_thread")]
async fn failures_at_failures_end() {
    let log = memory();
    let names = ["a", "b", "c"];
    let failing = |name: &'static str| {
        let on = if name == "a" { "warning or behavior.failed" } else { "behavior.failed" };
        behavior(name, on.parse().unwrap(), |_, _| async {
            Err(OperatorError::NonRetryable("the hook is gone".into()).into())
        })
    };
    let host = names.into_iter().fold(host(&log), |host, name| host.behavior(failing(name)));
    let serving = host.build().unwrap().serve();
    opened(&log, &names).await;
    warn(&log, "run_1", 1).await;
    let mut before = 0;
    loop {
        settled(&serving).await;
        let mut now = 0;
        for name in names {
            now += record(&log, name, 1).await.len();
        }
        if now == before {
            break;
        }
        before = now;
        assert!(now < 2_000, "{now}");
    }
    serving.stop().await;
    let mut longest = 0;
    for name in names {
        for event in record(&log, name, 1).await {
            if let EventKind::BehaviorFailed(failed) = event.kind {
                longest = longest.max(failed.length);
            }
        }
    }
    assert_eq!(longest, 8);
}

/// A refusal whose `is_retryable` says something else than its row.
#[derive(Debug, thiserror::Error)]
#[error("refused")]
struct Refusal {
    is_retryable: bool,
}

impl Failure for Refusal {
    fn facts(&self) -> Facts {
        match self.is_retryable {
            true => Facts::never(code::BEHAVIOR_FAILED, Effect::None),
            false => Facts::backoff(code::BEHAVIOR_FAILED, Effect::None),
        }
    }

    fn is_retryable(&self) -> bool {
        self.is_retryable
    }
}

/// Spec: R1
#[test]
fn an_overridden_answer_decides_about_another_attempt() {
    for is_retryable in [true, false] {
        let error = BehaviorError::from(Refusal { is_retryable });
        assert_eq!(error.facts().retry.is_retryable(), is_retryable);
    }
}
