//! Paths of steps and routes: counted, in scopes, and found again by another process.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::MemoryLog;
use backstop_orchestrator::LocalOrchestrator;
use futures_util::future::join;
use layer0::error::OperatorError;
use layer0::event::{Event, EventKind};
use layer0::failure::{Chain, Failure};
use layer0::operator::{Answer, Context, Task};
use serde_json::json;

use crate::process::{Own, died, own, record, resume, run_of};
use crate::workflows::{dispatch, echo, events_of, named, steps, workflow};
use crate::{builder, start};

fn routes(events: &[Event]) -> Vec<(&str, &str)> {
    let routed = events.iter().filter_map(|event| match &event.kind {
        EventKind::WorkflowRouted(routed) => Some((&*routed.step, &*routed.to)),
        _ => None,
    });
    routed.collect()
}

/// Spec: O6. A loop may choose at a step each time, and finds each choice again.
#[tokio::test]
async fn repeated_routes_at_one_step_are_counted() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let process = |log: &Arc<MemoryLog>, ways: [&'static str; 3]| {
        let code = own("own", move |_, context: Context| async move {
            let mut taken = Vec::new();
            for way in ways {
                taken.push(context.step("way").route(way).await?);
            }
            Ok(Answer::from_output(json!(taken)))
        });
        builder(&clock).operator(workflow(code, &clock, log)).build().unwrap()
    };
    let live = dispatch(&clock, &process(&log, ["left", "right", "left"]), "own", "x").await;
    assert_eq!(live.unwrap().output, json!(["left", "right", "left"]));
    let events = record(&log, "own").await;
    let expected = [("own/way", "left"), ("own/way~2", "right"), ("own/way~3", "left")];
    assert_eq!(routes(&events), expected);
    let second =
        |it: &Event| matches!(&it.kind, EventKind::WorkflowRouted(it) if &*it.to == "right");
    let log = died(&log, "own", second).await;
    let other = process(&log, ["up", "up", "up"]);
    let resumed = resume(&clock, &other, "own", run_of(&log, "own").await).await.unwrap();
    assert_eq!(resumed.output, json!(["left", "right", "up"]), "what was recorded counts");
}

/// Spec: O6
#[tokio::test]
async fn name_that_looks_counted_is_refused() {
    for (scope, step) in [(None, "tick~2"), (Some("a~1"), "tick")] {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let (tick, ticks) = named("tick");
        let code = own("own", move |task: Task, context: Context| async move {
            context.step("tick").dispatch("tick", task.clone()).await?;
            context.step("tick").dispatch("tick", task.clone()).await?;
            let part = scope.map_or_else(|| context.clone(), |scope| context.scope(scope));
            let way = part.step(step).route("left").await.unwrap_err();
            assert_eq!(way.code(), "orch.dispatch_failed");
            part.step(step).dispatch("tick", task).await
        });
        let orchestrator = builder(&clock).operator(tick).operator(workflow(code, &clock, &log));
        let error = dispatch(&clock, &orchestrator.build().unwrap(), "own", "x").await.unwrap_err();
        assert_eq!(error.code(), "orch.dispatch_failed");
        let text = Chain(&error).to_string();
        assert!(text.contains("the name of a step cannot hold `~`"), "{text}");
        assert_eq!(ticks.load(Ordering::SeqCst), 2, "nothing else answers for it");
        let events = events_of(&log, "own").await;
        assert_eq!(steps(&events), [("own/tick", "tick"), ("own/tick~2", "tick")]);
        assert_eq!(routes(&events), []);
    }
}

/// Two lines of steps without names; the first one is slower. With scopes, each line has its own numbers.
fn lines(clock: &VirtualClock, log: &Arc<MemoryLog>, has_scopes: bool) -> LocalOrchestrator {
    let time = clock.clone();
    let draft = own("draft", move |task: Task, _| {
        let time = time.clone();
        async move {
            let topic = task.input.as_str().unwrap().to_owned();
            time.sleep(Duration::from_secs(if topic == "one" { 20 } else { 10 })).await;
            Ok(Answer::from_output(format!("draft {topic}").into()))
        }
    });
    let code: Own = own("own", move |_, context: Context| async move {
        let line = |topic: &'static str| {
            let context = if has_scopes { context.scope(topic) } else { context.clone() };
            async move {
                let draft = context.dispatch("draft", Task::text(topic).idempotent()).await?;
                let checked = context.dispatch("check", Task::json(draft.output)).await?;
                Ok::<_, OperatorError>(checked.output)
            }
        };
        let (one, two) = join(line("one"), line("two")).await;
        Ok(Answer::from_output(json!([one?, two?])))
    });
    builder(clock)
        .operator(draft)
        .operator(echo("check", clock, log))
        .operator(workflow(code, clock, log))
        .build()
        .unwrap()
}

/// Spec: O6. The order in which they asked for their steps is that of the record.
#[tokio::test]
async fn lines_of_unnamed_steps_resume_anywhere() {
    for (has_scopes, paths) in [
        (true, ["own/one/1", "own/two/1", "own/two/2", "own/one/2"]),
        (false, ["own/1", "own/2", "own/3", "own/4"]),
    ] {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let live = dispatch(&clock, &lines(&clock, &log, has_scopes), "own", "x").await.unwrap();
        assert_eq!(live.output, json!(["draft one check", "draft two check"]));
        let events = record(&log, "own").await;
        assert_eq!(steps(&events).iter().map(|step| step.0).collect::<Vec<_>>(), paths);
        for last in 1..events.len() as u64 {
            let log = died(&log, "own", |event| event.seq == last).await;
            let process = lines(&clock, &log, has_scopes);
            let resumed = resume(&clock, &process, "own", run_of(&log, "own").await).await;
            assert_eq!(resumed.unwrap().output, live.output, "{has_scopes}, died behind {last}");
        }
    }
}
