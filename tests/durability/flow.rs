//! Workflows within a workflow in real processes, killed around every append of every record, and taken up
//! again.

use backstop_event_log::Runs;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;

use backstop::event_log::{RunFilter, verify_run};
use backstop::layer0::event::EventKind;
use backstop::orchestrator::{is_workflow, replay_workflow};
use backstop::react::replay;
use backstop::{Database, read_events};

use super::kill::{Folder, of_calls, result};
use super::tree::{ACTING, Records, added_up, is_interrupted};

const ROOT: &str = "run_flow";
const STEPS: [&str; 12] = [
    "desk/1",
    "desk/choose",
    "each/1",
    "each/2",
    "flow/1",
    "flow/2",
    "flow/3",
    "flow/4",
    "gather/1",
    "gather/2",
    "watch/1",
    "watch/2",
];
/// Every how many appends a process is killed, where not everything is tried.
const SPREAD: usize = 11;

/// Reads every record, by the step that it does.
async fn records(folder: &Folder, place: &str) -> Records {
    let database = Database::open_read_only(folder.path("a.db")).await.unwrap();
    let log = database.log();
    let mut read = Vec::new();
    for run in log.runs(RunFilter::new()).await.unwrap() {
        read.push(read_events(&log, &run.run).await.unwrap());
    }
    database.close().await;
    let mut steps = BTreeMap::new();
    for event in read.iter().flat_map(|(_, events)| events) {
        if let EventKind::OperatorDispatched(dispatched) = &event.kind {
            let step = dispatched.step.clone().unwrap().to_string();
            steps.insert(dispatched.run.clone(), step);
        }
    }
    let mut records = Records::new();
    for (summary, events) in read {
        let step = steps.get(&summary.run).cloned().unwrap_or_else(|| "root".to_owned());
        let twice = records.insert(step.clone(), (summary, events));
        assert!(twice.is_none(), "{place}: {step} was done twice");
    }
    records
}

/// Holds what must be so at the end, however often the processes died.
async fn check(folder: &Folder, place: &str) -> Records {
    let records = records(folder, place).await;
    let names: Vec<&str> = records.keys().map(String::as_str).filter(|it| *it != "root").collect();
    assert_eq!(names, STEPS, "{place}");
    let mut used = records["root"].0.usage;
    used.wall_ms = 0;
    assert_eq!(used, added_up(&records), "{place}: what was used adds up");
    let database = Database::open_read_only(folder.path("a.db")).await.unwrap();
    for (step, (summary, events)) in &records {
        assert!(!summary.is_open(), "{place}: {step} is {:?}", summary.state);
        verify_run(&database.log(), &summary.run).await.unwrap();
        match is_workflow(&events[0]) {
            true => drop(replay_workflow(&database.log(), &summary.run).await.unwrap()),
            false => drop(replay(&database.log(), &summary.run).await),
        }
        let count = |of: &str| events.iter().filter(|e| e.kind.event_type() == of).count();
        assert!(count("run.recovered") <= 1, "{place}: {step}");
        let ends = count("run.finished") + count("run.failed");
        assert_eq!(ends, 1, "{place}: {step} ends once");
        assert_eq!(count("operator.returned"), count("operator.dispatched"), "{place}: {step}");
    }
    database.close().await;
    records
}

fn results(records: &Records) -> Vec<(String, Vec<String>)> {
    records.iter().map(|(step, (_, events))| (step.clone(), result(events))).collect()
}

/// Spec: O6, D5. A workflow that is killed at any append of any record comes to the end of an undisturbed one:
/// no step is done twice, and what was used adds up.
#[tokio::test]
async fn killed_workflow_goes_on_from_every_append() {
    let whole = Folder::new();
    assert_eq!(whole.mortal(&["run", ROOT]).0.code(), Some(4));
    whole.resume_after_approval(ROOT).await;
    let expected = results(&check(&whole, "undisturbed").await);
    assert_eq!(whole.effects().into_values().collect::<Vec<_>>(), [1, 1]);

    let is_full = std::env::var_os("BACKSTOP_EVERY_KILL").is_some();
    let mut killed = 0;
    for (when, first) in [("after", 1), ("before", 1 + SPREAD / 2)] {
        let (first, step) = if is_full { (1, 1) } else { (first, SPREAD) };
        // From here on, the workflow waits, and the appends are those of the process that goes on.
        let mut waited: Option<usize> = None;
        for append in (first..).step_by(step) {
            let place = format!("{when} {append}");
            let folder = Folder::new();
            let (mut status, mut said) = folder.mortal(&["run", ROOT, when, &append.to_string()]);
            if status.code() == Some(4) {
                folder.approve().await;
                let first = *waited.get_or_insert(append);
                let number = (append - first + 1).to_string();
                (status, said) = folder.mortal(&["resume", ROOT, when, &number]);
                if status.code() == Some(0) {
                    break;
                }
            }
            assert_eq!(status.signal(), Some(9), "{place}: {said}");
            killed += 1;
            let (before, done) = (records(&folder, &place).await, folder.effects());
            if !before.contains_key("root") {
                assert_eq!(folder.mortal(&["run", ROOT]).0.code(), Some(4), "{place}");
            }
            folder.resume_after_approval(ROOT).await;
            let after = check(&folder, &place).await;
            let all = folder.effects();
            let mut is_whole = true;
            for ((call, _), step) in ACTING.iter().zip(["gather/1", "desk/1"]) {
                let times = |effects: &BTreeMap<String, usize>| effects.get(*call).copied();
                let (first, all) = (times(&done).unwrap_or(0), times(&all).unwrap_or(0));
                let events = |records: &Records| {
                    records.get(step).map(|(_, events)| events.clone()).unwrap_or_default()
                };
                let before = events(&before);
                let was = |kind| of_calls(&before, kind).contains(call);
                let is_lost = was("tool.requested") && !was("tool.responded");
                assert_eq!(is_interrupted(&events(&after), call), is_lost, "{place}: {call}");
                assert_eq!(all, if is_lost { first } else { 1 }, "{place}: {call} acts once");
                is_whole &= !is_lost;
            }
            if is_whole {
                assert_eq!(results(&after), expected, "{place}");
            }
        }
    }
    assert!(killed >= if is_full { 80 } else { 7 }, "{killed}");
}
