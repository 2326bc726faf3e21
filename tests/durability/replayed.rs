//! Every scenario's run replays, and a record that was changed does not.

use std::sync::Arc;

use backstop::event_log::{RunWriter, Seed};
use backstop::layer0::event::{Actor, Event, EventKind};
use backstop::layer0::failure::Chain;
use backstop::layer0::id::RunId;
use backstop::orchestrator::{is_workflow, replay_workflow};
use backstop::react::{ResumeError, replay};
use backstop::{EventLog, MemoryLog};
use serde_json::Value;

use crate::support::played::{Played, failing, passing};

/// Records events as a run of their own, sealed anew.
async fn recorded(events: &[Event]) -> (MemoryLog, RunId) {
    let run = events[0].run.clone();
    let log = Arc::new(MemoryLog::new());
    let mut writer = RunWriter::new(Arc::clone(&log) as Arc<dyn EventLog>, run.clone());
    for event in events {
        writer.stage(
            &Seed::new("test"),
            event.at,
            event.actor,
            event.caused_by,
            event.kind.clone(),
        );
    }
    writer.commit().await.unwrap();
    drop(writer);
    (Arc::into_inner(log).unwrap(), run)
}

fn outcome(events: &[Event]) -> Result<(), ResumeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (log, run) = recorded(events).await;
        if is_workflow(&events[0]) {
            replay_workflow(&log, &run).await.unwrap();
            return Ok(());
        }
        replay(&log, &run).await.map(drop)
    })
}

fn recordings() -> impl Iterator<Item = (&'static Played, &'static [Event])> {
    let all = passing().iter().chain(failing());
    all.map(|played| (played, &played.rehearsal.report.events[..])).filter(|(_, e)| !e.is_empty())
}

/// Spec: D6
#[test]
fn every_run_of_the_suite_replays() {
    let mut count = 0;
    for (played, events) in recordings() {
        if let Err(error) = outcome(events) {
            panic!("{}: {}", played.name, Chain(&error));
        }
        count += 1;
    }
    assert!(count > 100, "{count}");
}

#[track_caller]
fn diverges_at(result: Result<(), ResumeError>, seq: u64, what: &str) {
    match result {
        Err(ResumeError::Diverged(divergence)) => assert_eq!(divergence.seq, seq, "{what}"),
        Err(other) => panic!("{what}: {}", Chain(&other)),
        Ok(()) => panic!("{what}: it was not noticed"),
    }
}

/// As [`diverges_at`], or right behind it, where an independent fact stands first.
#[track_caller]
fn diverges_from(result: Result<(), ResumeError>, seq: u64, what: &str) {
    match result {
        Err(ResumeError::Diverged(divergence)) => {
            assert!((seq..=seq + 2).contains(&divergence.seq), "{what}: {}", divergence.seq);
        }
        Err(other) => panic!("{what}: {}", Chain(&other)),
        Ok(()) => panic!("{what}: it was not noticed"),
    }
}

/// Changes the first text or number of an event's data.
fn changed(kind: &EventKind) -> Option<EventKind> {
    fn change(value: &mut Value) -> bool {
        match value {
            Value::String(text) if text.parse::<f64>().is_err() => {
                text.push('x');
                true
            }
            Value::Number(number) if number.is_u64() => {
                *value = Value::from(number.as_u64().unwrap_or(0) + 1);
                true
            }
            Value::Array(items) => items.iter_mut().any(change),
            Value::Object(fields) => fields.values_mut().any(change),
            _ => false,
        }
    }
    let mut data = serde_json::to_value(kind).unwrap();
    // An outcome and what is waited for are one of a few words; the words for people are compared by none.
    let fields = data.as_object_mut().unwrap();
    let kept = ["outcome", "for", "reason", "message", "chain"].map(|key| fields.remove_entry(key));
    let done = change(&mut data);
    data.as_object_mut().unwrap().extend(kept.into_iter().flatten());
    done.then(|| EventKind::decode(kind.event_type(), &data.to_string()).unwrap())
}

/// Spec: E13, D11. Words may change between versions; nothing compares them.
#[test]
fn changed_words_are_no_divergence() {
    let mut changed = 0;
    for (played, events) in recordings() {
        let mut events = events.to_vec();
        for event in events.iter_mut().filter(|event| event.actor == Actor::Machine) {
            let mut data = serde_json::to_value(&event.kind).unwrap();
            let words = ["/message", "/error/message", "/output/error", "/chain/0"];
            for at in words {
                if let Some(Value::String(text)) = data.pointer_mut(at) {
                    text.push_str(", in other words");
                    changed += 1;
                }
            }
            let event_type = event.kind.event_type();
            event.kind = EventKind::decode(event_type, &data.to_string()).unwrap();
        }
        if let Err(error) = outcome(&events) {
            panic!("{}: {}", played.name, Chain(&error));
        }
    }
    assert!(changed > 50, "{changed} texts were changed");
}

/// Spec: D6. Whatever the machine decided: changed, it is found where it stands; taken away or
/// put in another place, at the first decision that no longer fits.
#[test]
fn every_changed_decision_is_found_at_its_seq() {
    let mut types = std::collections::BTreeSet::new();
    // A workflow decides nothing that could be computed again.
    for (played, events) in recordings().filter(|(_, events)| !is_workflow(&events[0])) {
        for (index, event) in events.iter().enumerate().filter(|(_, e)| e.actor == Actor::Machine) {
            let what = format!("{} {} {}", played.name, event.seq, event.kind.event_type());
            // One of each type and scenario family is enough to see the place.
            let family = played.name.split('_').next().unwrap_or_default();
            if !types.insert((family.to_owned(), event.kind.event_type())) {
                continue;
            }
            if let Some(kind) = changed(&event.kind) {
                let mut events = events.to_vec();
                events[index].kind = kind;
                diverges_at(outcome(&events), event.seq, &what);
            }
            if index + 1 < events.len() {
                let mut less = events.to_vec();
                less.remove(index);
                diverges_from(outcome(&less), event.seq, &format!("{what} taken away"));
                let mut swapped = events.to_vec();
                if swapped[index].kind != swapped[index + 1].kind {
                    swapped.swap(index, index + 1);
                    diverges_from(outcome(&swapped), event.seq, &format!("{what} moved"));
                }
            }
        }
    }
    assert!(types.len() > 20, "{types:?}");
}

/// Spec: D6. A failure that was added or has vanished leads to other decisions.
#[test]
fn an_added_or_vanished_failure_is_found() {
    let mut found = 0;
    for (played, events) in recordings() {
        for (index, event) in events.iter().enumerate() {
            let (mut other, what) = (events.to_vec(), format!("{} {}", played.name, event.seq));
            match &event.kind {
                EventKind::ToolResponded(answer) if event.actor == Actor::Tool => {
                    let mut answer = answer.clone();
                    answer.ok = !answer.ok;
                    answer.error = None;
                    other[index].kind = answer.into();
                    // The model reads it differently from the next call on.
                    let asked = events[index..].iter().find_map(|event| match &event.kind {
                        EventKind::ModelRequested(_) => Some(event.seq),
                        _ => None,
                    });
                    let Some(asked) = asked else { continue };
                    let result = outcome(&other);
                    assert!(
                        matches!(&result, Err(ResumeError::Diverged(d)) if d.seq <= asked),
                        "{what}: {result:?}"
                    );
                }
                EventKind::ModelFailed(_) => {
                    other.remove(index);
                    diverges_at(outcome(&other), event.seq, &what);
                }
                _ => continue,
            }
            found += 1;
        }
    }
    assert!(found > 30, "{found}");
}

/// Spec: D6. Facts that contradict each other are found where they do.
#[test]
fn contradicting_facts_are_found() {
    type Change = fn(&[Event], usize) -> Option<Vec<Event>>;
    fn with(events: &[Event], index: usize, kind: impl Into<EventKind>) -> Option<Vec<Event>> {
        let mut events = events.to_vec();
        events[index].kind = kind.into();
        Some(events)
    }
    let changes: [(&str, Change); 7] = [
        ("another tool is run", |events, index| {
            let EventKind::ToolRequested(requested) = &events[index].kind else { return None };
            let mut requested = requested.clone();
            requested.tool = "elsewhere".into();
            with(events, index, requested)
        }),
        ("another tool answers", |events, index| {
            let EventKind::ToolResponded(answer) = &events[index].kind else { return None };
            let mut answer = answer.clone();
            answer.tool = "elsewhere".into();
            with(events, index, answer)
        }),
        ("a person agreed to other arguments", |events, index| {
            let EventKind::ToolRequested(requested) = &events[index].kind else { return None };
            events[..index].iter().find(|event| {
                matches!(&event.kind, EventKind::ApprovalGranted(granted)
                    if granted.call_id == requested.call_id)
            })?;
            let mut requested = requested.clone();
            requested.arguments = serde_json::json!({ "all": true }).into();
            with(events, index, requested)
        }),
        ("an error that was not stored", |events, index| {
            let EventKind::ToolResponded(answer) = &events[index].kind else { return None };
            let mut answer = answer.clone();
            answer.error.as_mut()?.error_id = Some("err_20260101_000000_abcdef".into());
            with(events, index, answer)
        }),
        ("an error that was stored is gone", |events, index| {
            let EventKind::ErrorStored(_) = &events[index].kind else { return None };
            let mut events = events.to_vec();
            events.remove(index);
            Some(events)
        }),
        ("an error that was stored twice", |events, index| {
            let EventKind::ErrorStored(_) = &events[index].kind else { return None };
            let mut events = events.to_vec();
            events.insert(index, events[index].clone());
            Some(events)
        }),
        ("an attempt of no call", |events, index| {
            let EventKind::ToolAttempted(attempted) = &events[index].kind else { return None };
            let mut attempted = attempted.clone();
            attempted.call_id = "unknown".into();
            with(events, index, attempted)
        }),
    ];
    for (what, change) in changes {
        let mut found = 0;
        for (played, events) in recordings() {
            for index in 0..events.len() {
                let Some(changed) = change(events, index) else { continue };
                let what = format!("{what}: {} {}", played.name, events[index].seq);
                diverges_from(outcome(&changed), events[index].seq, &what);
                found += 1;
            }
        }
        assert!(found > 0, "{what}: {found}");
    }
}

/// Spec: D6, D2
#[test]
fn another_prompt_is_another_agent() {
    let (_, events) = recordings().next().unwrap();
    let mut events = events.to_vec();
    let EventKind::RunStarted(started) = &mut events[0].kind else { panic!("it starts") };
    let mut definition: Value = started.agent.definition.read().unwrap();
    definition["instructions"] = "Be rude.".into();
    started.agent.definition = (&definition).into();
    diverges_at(outcome(&events), 1, "another prompt");
}
