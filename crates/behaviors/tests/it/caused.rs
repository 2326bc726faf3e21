//! Causes of events, and capabilities of behaviours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use backstop_behaviors::{BehaviorContext, PackBehaviors, behavior};
use backstop_event_log::{EventLog, RunFilter, read_events};
use backstop_provider::{ErrorKind, ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, Pack, ReopenRequest};
use backstop_state::MemoryStateStore;
use layer0::event::{Cause, EventKind};
use layer0::failure::Failure;
use layer0::operator::{Signal, Task};
use layer0::state::{Scope, StateWrite};
use layer0::{JsonText, Operator, Orchestrator, StateStore};

use super::{Seen, host, memory, noting, opened, record, settled, warn};

fn agent(name: &'static str, log: &Arc<dyn EventLog>) -> Agent {
    let model = ScriptedProvider::from_fn(|_| ScriptedAnswer::saying("done"));
    Agent::builder(model).name(name).shared_log(Arc::clone(log)).build().unwrap()
}

fn orchestrator(agents: impl IntoIterator<Item = Agent>) -> Arc<dyn Orchestrator> {
    let builder = backstop_orchestrator::LocalOrchestrator::builder();
    let builder = agents.into_iter().fold(builder, |builder, agent| {
        builder.shared_operator(Arc::new(agent) as Arc<dyn Operator>)
    });
    Arc::new(builder.build().unwrap())
}

async fn causes(log: &Arc<dyn EventLog>, agent: &str) -> Vec<Option<Cause>> {
    let mut causes = Vec::new();
    for run in log.runs(RunFilter::new().agent(agent)).await.unwrap() {
        let (_, events) = read_events(&**log, &run.run).await.unwrap();
        let EventKind::RunStarted(started) = &events[0].kind else { panic!("{events:?}") };
        causes.push(started.cause.as_deref().cloned());
    }
    causes.sort_by_key(|cause| cause.as_ref().map_or(0, |cause| cause.length));
    causes
}

/// Spec: X5, X6. Two behaviours that dispatch at each other's ends, and one that is not shown its own.
#[tokio::test(flavor = "multi_thread")]
async fn circles_end() {
    let (log, told) = (memory(), Seen::default());
    let dispatching = |name: &'static str, on: &'static str, operator: &'static str| {
        behavior(name, on.parse().unwrap(), move |_, context: BehaviorContext| async move {
            context.dispatch(operator, Task::text("go")).await.map(drop)
        })
    };
    let serving = host(&log)
        .behavior(dispatching("a", "run.started", "x"))
        .behavior(dispatching("b", "run.started", "y"))
        .behavior(noting("ops", "behavior.failed", &told))
        .grant("operator:dispatch")
        .orchestrator(orchestrator([agent("x", &log), agent("y", &log)]))
        .build()
        .unwrap()
        .serve();
    opened(&log, &["a", "b", "ops"]).await;
    agent("first", &log).run("go").await.unwrap();
    settled(&serving).await;
    for _ in 0..20 {
        settled(&serving).await;
    }
    serving.stop().await;
    // Each chain begins at the first run, and continues with the events of the other behaviour.
    let lengths = |causes: Vec<Option<Cause>>| -> Vec<u32> {
        causes.into_iter().map(|cause| cause.unwrap().length).collect()
    };
    assert_eq!(lengths(causes(&log, "x").await), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(lengths(causes(&log, "y").await), [1, 2, 3, 4, 5, 6, 7, 8]);
    let failed = |events: Vec<layer0::event::Event>| -> Vec<String> {
        let failed = events.into_iter().filter_map(|event| match event.kind {
            EventKind::BehaviorFailed(failed) => Some(failed.reason.to_string()),
            _ => None,
        });
        failed.collect()
    };
    assert_eq!(failed(record(&log, "a", 1).await), ["behavior.recursion"]);
    assert_eq!(failed(record(&log, "b", 1).await), ["behavior.recursion"]);
    assert!(told.lock().unwrap().is_empty(), "that a circle ended is told to none");
}

/// Spec: X6, D12
#[tokio::test(flavor = "multi_thread")]
async fn behaviour_reopens_with_a_grant() {
    for is_granted in [true, false] {
        let log = memory();
        let away = Arc::new(AtomicU32::new(1));
        let left = Arc::clone(&away);
        let model = ScriptedProvider::from_fn(move |_| match left.swap(0, Ordering::SeqCst) {
            0 => ScriptedAnswer::saying("at last"),
            _ => ScriptedAnswer::failing(ErrorKind::AuthFailed),
        });
        let shaky = Agent::builder(model).name("shaky").shared_log(Arc::clone(&log));
        let shaky = shaky.build().unwrap();
        let reopening = behavior(
            "again",
            "run.failed[reason=provider.*]".parse().unwrap(),
            |delivery, context: BehaviorContext| async move {
                context.reopen(ReopenRequest::new(delivery.run).by("again")).await.map(drop)
            },
        );
        let builder = host(&log).behavior(reopening).agent(shaky.clone());
        let builder = if is_granted { builder.grant("run:reopen") } else { builder };
        let serving = builder.build().unwrap().serve();
        opened(&log, &["again"]).await;
        let failure = shaky.run("go").await.unwrap_err();
        settled(&serving).await;
        serving.stop().await;
        let (_, events) = read_events(&*log, &failure.run_id).await.unwrap();
        let reopened = events.iter().find_map(|event| match &event.kind {
            EventKind::RunReopened(reopened) => reopened.cause.as_deref().cloned(),
            _ => None,
        });
        let seq = events.iter().find(|it| it.kind.event_type() == "run.failed").unwrap().seq;
        let expected = Cause::new("again", failure.run_id.clone(), seq, 1);
        assert_eq!(reopened, is_granted.then_some(expected));
        let last = record(&log, "again", 1).await.pop().unwrap().kind;
        match (is_granted, last) {
            (true, EventKind::BehaviorCompleted(_)) => {}
            (false, EventKind::BehaviorFailed(failed)) => {
                assert_eq!(failed.reason, *"tool.permission_denied");
                assert!(failed.message.contains("run:reopen"), "{}", failed.message);
            }
            (_, other) => panic!("{other:?}"),
        }
    }
}

/// Spec: X6, K1
#[tokio::test(flavor = "multi_thread")]
async fn behaviour_keeps_state_and_sends_signals() {
    let log = memory();
    let store: Arc<dyn StateStore> = Arc::new(MemoryStateStore::new());
    let counting = behavior(
        "count",
        "warning".parse().unwrap(),
        |delivery, context: BehaviorContext| async move {
            let write = StateWrite::new(
                Scope::Global,
                "seen",
                JsonText::parse(&delivery.seq.to_string()).unwrap(),
            );
            context.state()?.write(write).await?;
            context.signal(&delivery.run, Signal::new("noted", delivery.seq.into())).await
        },
    );
    let serving = host(&log)
        .behavior(counting)
        .state_store(Arc::clone(&store))
        .grant("state:write")
        .grant("run:signal")
        .build()
        .unwrap()
        .serve();
    opened(&log, &["count"]).await;
    warn(&log, "run_1", 1).await;
    settled(&serving).await;
    serving.stop().await;
    let seen = store.read(&Scope::Global, "seen").await.unwrap().unwrap();
    assert_eq!(seen.value.get(), "2");
    let inbox = log.inbox(&"run_1".into()).await.unwrap();
    assert_eq!(inbox.len(), 1, "{inbox:?}");
    assert_eq!(&*inbox[0].by, "behavior count");
}

/// Spec: X7
#[tokio::test(flavor = "multi_thread")]
async fn pack_brings_behaviours_and_their_grants() {
    let (log, seen) = (memory(), Seen::default());
    let signalling = || {
        behavior(
            "noted",
            "warning".parse().unwrap(),
            |delivery, context: BehaviorContext| async move {
                context.signal(&delivery.run, Signal::new("noted", 1.into())).await
            },
        )
    };
    let pack = || Pack::new("desk").version("1.0.0").grant("run:signal").behavior(signalling());
    let serving = host(&log).pack(pack()).build().unwrap().serve();
    opened(&log, &["noted"]).await;
    warn(&log, "run_1", 1).await;
    settled(&serving).await;
    serving.stop().await;
    assert_eq!(log.inbox(&"run_1".into()).await.unwrap().len(), 1);
    let other = Pack::new("other").behavior(noting("noted", "warning", &seen));
    let clash = host(&log).pack(pack()).pack(other).build().unwrap_err();
    let clash = layer0::failure::chain(&clash);
    assert_eq!(clash[1], "pack `other` brings `noted`, which pack `desk 1.0.0` has already");
    let twice = host(&log).pack(pack()).pack(pack().version("2.0.0")).build().unwrap_err();
    let twice = layer0::failure::chain(&twice);
    assert_eq!(twice[1], "pack `desk 2.0.0` is loaded beside `desk 1.0.0`");
}

/// Two behaviours with the same name, and invalid names.
#[test]
fn behaviours_have_names_of_their_own() {
    let (log, seen) = (memory(), Seen::default());
    let twice = host(&log)
        .behavior(noting("b", "warning", &seen))
        .behavior(noting("b", "run.failed", &seen))
        .build()
        .unwrap_err();
    assert_eq!(twice.to_string(), "there is already a behaviour named `b`");
    assert_eq!(twice.code(), "config.invalid");
    assert!(host(&log).behavior(noting("a/b", "warning", &seen)).build().is_err());
}
