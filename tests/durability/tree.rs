//! A tree of agents in real processes, killed around every append of every record, and taken up again.

use backstop_event_log::Runs;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;

use backstop::event_log::{RunFilter, RunSummary, verify_run};
use backstop::layer0::event::{Event, EventKind};
use backstop::layer0::usage::Usage;
use backstop::react::replay;
use backstop::{Database, read_events};

use super::kill::{Folder, of_calls, result};

const ROOT: &str = "run_tree";
/// The calls that act, with the agents whose runs make them.
pub(super) const ACTING: [(&str, &str); 2] =
    [("charge_blindly-call", "fixer"), ("wipe-call", "payer")];

/// Every how many appends a process is killed, where not everything is tried.
const SPREAD: usize = 9;

/// The records of a tree, by the names of their agents.
pub(super) type Records = BTreeMap<String, (RunSummary, Vec<Event>)>;

/// Reads every record; each agent has one run.
async fn records(folder: &Folder, place: &str) -> Records {
    let database = Database::open_read_only(folder.path("a.db")).await.unwrap();
    let log = database.log();
    let mut records = Records::new();
    for run in log.runs(RunFilter::new()).await.unwrap() {
        let read = read_events(&log, &run.run).await.unwrap();
        let twice = records.insert(run.agent.to_string(), read);
        assert!(twice.is_none(), "{place}: {} was started twice", run.agent);
    }
    database.close().await;
    records
}

fn events<'r>(records: &'r Records, agent: &str) -> &'r [Event] {
    records.get(agent).map_or(&[], |(_, events)| events)
}

/// Adds up what the events of all records say was used by each run itself.
pub(super) fn added_up(records: &Records) -> Usage {
    let mut used = Usage::default();
    used.add_cost(0);
    for event in records.values().flat_map(|(_, events)| events) {
        match &event.kind {
            EventKind::ModelAttempted(attempted) => {
                used.model_attempts += 1;
                used.add_tokens(attempted.usage.unwrap_or_default());
                used.add_cost(attempted.cost_nanousd.unwrap_or_default());
            }
            EventKind::ModelRequested(_) => used.model_calls += 1,
            EventKind::ToolRequested(_) | EventKind::ToolAttempted(_) => used.tool_calls += 1,
            EventKind::RunRecovered(recovered) => {
                used.model_attempts += recovered.models;
                used.model_calls -= recovered.models;
                used.tool_calls += u32::try_from(recovered.rerun.len()).unwrap();
            }
            _ => {}
        }
    }
    used
}

/// What every run came to, without when and how long.
fn results(records: &Records) -> Vec<(String, Vec<String>)> {
    records.iter().map(|(agent, (_, events))| (agent.clone(), result(events))).collect()
}

/// Holds what must be so at the end, however often the processes died.
async fn check(folder: &Folder, place: &str) -> Records {
    let records = records(folder, place).await;
    let names: Vec<&str> = records.keys().map(String::as_str).collect();
    assert_eq!(names, ["clerk", "fixer", "lead", "payer"], "{place}");
    let mut used = records["lead"].0.usage;
    used.wall_ms = 0;
    assert_eq!(used, added_up(&records), "{place}: what was used adds up");
    let database = Database::open_read_only(folder.path("a.db")).await.unwrap();
    for (agent, (summary, events)) in &records {
        assert!(!summary.is_open(), "{place}: {agent} is {:?}", summary.state);
        verify_run(&database.log(), &summary.run).await.unwrap();
        replay(&database.log(), &summary.run).await.unwrap();
        let (mut asked, mut answered) =
            (of_calls(events, "tool.requested"), of_calls(events, "tool.responded"));
        asked.sort_unstable();
        answered.sort_unstable();
        assert_eq!(answered, asked, "{place}: {agent} answers each call once");
        let count = |of: &str| events.iter().filter(|e| e.kind.event_type() == of).count();
        assert!(count("run.recovered") <= 1, "{place}: {agent}");
        let dispatched: std::collections::BTreeSet<_> = events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::OperatorDispatched(dispatched) => Some(&dispatched.run),
                _ => None,
            })
            .collect();
        assert_eq!(count("operator.returned"), dispatched.len(), "{place}: {agent}");
    }
    database.close().await;
    records
}

pub(super) fn is_interrupted(events: &[Event], call: &str) -> bool {
    events.iter().any(|event| match &event.kind {
        EventKind::ToolResponded(answer) if answer.call_id.as_str() == call => {
            answer.error.as_ref().is_some_and(|error| error.reason == *"tool.interrupted")
        }
        _ => false,
    })
}

/// Spec: O2, O3, O5, D5, D8. A tree that is killed at any append of any of its records comes to the end of an
/// undisturbed one: no run is started twice, what acts acts once, and what was used adds up.
#[tokio::test]
async fn killed_tree_goes_on_from_every_append() {
    let whole = Folder::new();
    assert_eq!(whole.mortal(&["run", ROOT]).0.code(), Some(4));
    whole.resume_after_approval(ROOT).await;
    let undisturbed = check(&whole, "undisturbed").await;
    let expected = results(&undisturbed);
    let reopened = events(&undisturbed, "fixer").iter();
    assert_eq!(reopened.filter(|e| e.kind.event_type() == "run.reopened").count(), 1);
    assert_eq!(whole.effects().into_values().collect::<Vec<_>>(), [1, 1]);

    let is_full = std::env::var_os("BACKSTOP_EVERY_KILL").is_some();
    let (mut killed, mut interrupted) = (0, 0);
    for (when, first) in [("after", 1), ("before", 1 + SPREAD / 2)] {
        let (first, step) = if is_full { (1, 1) } else { (first, SPREAD) };
        // From here on, the tree waits, and the appends are those of the process that goes on.
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
            if !before.contains_key("lead") {
                assert_eq!(folder.mortal(&["run", ROOT]).0.code(), Some(4), "{place}");
            }
            folder.resume_after_approval(ROOT).await;
            let after = check(&folder, &place).await;
            let all = folder.effects();
            let mut is_whole = true;
            for (call, agent) in ACTING {
                let times = |effects: &BTreeMap<String, usize>| effects.get(call).copied();
                let (first, all) = (times(&done).unwrap_or(0), times(&all).unwrap_or(0));
                let was = |kind| of_calls(events(&before, agent), kind).contains(&call);
                let is_lost = was("tool.requested") && !was("tool.responded");
                assert_eq!(is_interrupted(events(&after, agent), call), is_lost, "{place}: {call}");
                assert_eq!(all, if is_lost { first } else { 1 }, "{place}: {call} acts once");
                is_whole &= !is_lost;
                interrupted += usize::from(is_lost);
            }
            if is_whole {
                assert_eq!(results(&after), expected, "{place}");
            }
        }
    }
    assert!(killed >= if is_full { 50 } else { 6 }, "{killed}");
    assert!(!is_full || interrupted >= 2, "{interrupted}");
}
