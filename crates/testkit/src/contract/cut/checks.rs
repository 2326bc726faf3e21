use std::collections::BTreeMap;

use backstop_event_log::{EventLog, RunFilter, read_events, verify_run};
use backstop_orchestrator::{is_workflow, replay_workflow};
use layer0::event::{Event, EventKind};
use layer0::id::RunId;

/// Checks the records of a log, and returns the ends of the root's dispatches, by step or call.
pub(super) async fn check_records(
    log: &dyn EventLog,
    root: &RunId,
    place: &str,
) -> BTreeMap<String, String> {
    let mut ends = BTreeMap::new();
    for summary in log.runs(RunFilter::new()).await.expect("runs are listed") {
        let at = format!("{place}: {}", summary.agent);
        let (_, events) = read_events(log, &summary.run).await.expect("a record is readable");
        assert!(!summary.is_open(), "{at} is {:?}", summary.state);
        let verified = verify_run(log, &summary.run).await;
        assert!(verified.is_ok(), "{at}: {verified:?}");
        check_episodes(&events, &at);
        if is_workflow(&events[0]) {
            let replayed = replay_workflow(log, &summary.run).await;
            assert!(replayed.is_ok(), "{at}: {replayed:?}");
        } else {
            let replayed = backstop_react::replay(log, &summary.run).await;
            assert!(replayed.is_ok(), "{at}: {:?}", replayed.err());
        }
        if summary.run == *root {
            ends = dispatch_ends(&events);
        }
    }
    ends
}

fn check_episodes(events: &[Event], at: &str) {
    let count = |of: &str| events.iter().filter(|event| event.kind.event_type() == of).count();
    let ended = count("run.finished") + count("run.failed");
    assert_eq!(ended, 1 + count("run.reopened"), "{at} ends once an episode");
    let mut answered = BTreeMap::<_, usize>::new();
    for event in events {
        if let EventKind::ToolResponded(answer) = &event.kind {
            *answered.entry(&answer.call_id).or_default() += 1;
        }
    }
    assert!(answered.values().all(|times| *times == 1), "{at}: answered twice: {answered:?}");
}

/// Returns operator, outcome and reason of each dispatch that has returned.
fn dispatch_ends(events: &[Event]) -> BTreeMap<String, String> {
    let (mut names, mut ends) = (BTreeMap::new(), BTreeMap::new());
    for event in events {
        match &event.kind {
            EventKind::OperatorDispatched(it) => {
                let call = it.call_id.as_ref().map(ToString::to_string);
                let name = it.step.as_ref().map(ToString::to_string).or(call).unwrap_or_default();
                names.insert(it.run.clone(), format!("{name} {}", it.operator));
            }
            EventKind::OperatorReturned(it) => {
                let end = format!("{:?} {:?} {}", it.outcome, it.reason, it.superseded);
                ends.insert(names.get(&it.run).cloned().unwrap_or_default(), end);
            }
            _ => {}
        }
    }
    ends
}
