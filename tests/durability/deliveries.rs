//! Behaviours in real processes, killed around every append of their subscriptions, and served again.

use backstop_event_log::Runs;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;

use backstop::event_log::{RunFilter, verify_run};
use backstop::layer0::event::EventKind;
use backstop::{Database, read_events};

use super::kill::Folder;

const RUN: &str = "run_told";

/// How often each delivery ended so, by the name of its behaviour and the event.
type Ends = BTreeMap<(String, u64, bool), usize>;

/// Holds the records of the subscriptions, and returns their ends.
async fn ends(folder: &Folder, place: &str) -> Ends {
    let database = Database::open_read_only(folder.path("a.db")).await.unwrap();
    let log = database.log();
    let mut ends = Ends::new();
    for segment in log.runs(RunFilter::new().segments()).await.unwrap() {
        verify_run(&log, &segment.run).await.unwrap();
        let (_, events) = read_events(&log, &segment.run).await.unwrap();
        let mut open = BTreeMap::new();
        for event in events {
            match event.kind {
                EventKind::BehaviorDelivered(it) => drop(open.insert(it.seq, it.event)),
                EventKind::BehaviorCompleted(it) => {
                    assert!(open.remove(&it.seq).is_some(), "{place}: ended without a begin");
                    *ends.entry((it.behavior.to_string(), it.seq, true)).or_default() += 1;
                }
                EventKind::BehaviorFailed(it) => {
                    assert!(open.remove(&it.seq).is_some(), "{place}: ended without a begin");
                    *ends.entry((it.behavior.to_string(), it.seq, false)).or_default() += 1;
                }
                _ => {}
            }
        }
    }
    database.close().await;
    ends
}

/// Spec: X2, X3. Whenever the host dies, each delivery has one end in the record, and what is made again has the
/// id that it had.
#[tokio::test]
async fn killed_host_delivers_from_every_append() {
    let whole = Folder::new();
    let (status, said) = whole.mortal(&["run", RUN]);
    assert_eq!(status.code(), Some(0), "{said}");
    let expected = ends(&whole, "undisturbed").await;
    let told = expected.keys().filter(|(name, ..)| name == "told").count();
    assert_eq!((told, expected.len()), (5, 6), "{expected:?}");
    assert!(expected.values().all(|count| *count == 1));
    let effects = whole.effects();
    assert_eq!(effects.len(), 6, "{effects:?}");
    let mut killed = 0;
    for when in ["after", "before"] {
        for append in 1.. {
            let place = format!("{when} {append}");
            let folder = Folder::new();
            let (status, said) = folder.mortal(&["run", RUN, when, &append.to_string()]);
            if status.code() == Some(0) {
                break;
            }
            assert_eq!(status.signal(), Some(9), "{place}: {said}");
            killed += 1;
            let (status, said) = folder.mortal(&["run", RUN]);
            assert_eq!(status.code(), Some(0), "{place}: {said}");
            let ended = ends(&folder, &place).await;
            let told = |ends: &Ends| -> Vec<_> {
                ends.iter()
                    .filter(|((name, ..), _)| name == "told")
                    .map(|it| format!("{it:?}"))
                    .collect()
            };
            assert_eq!(told(&ended), told(&expected), "{place}");
            // The failure stands elsewhere in its record when deliveries were made again.
            let ops = ended.iter().filter(|((name, ..), _)| name == "ops");
            assert_eq!(ops.map(|(_, count)| *count).collect::<Vec<_>>(), [1], "{place}");
            let made = folder.effects();
            let of_run = made.iter().filter(|(id, _)| id.starts_with("told/"));
            let ids: Vec<_> = of_run.clone().map(|(id, _)| id.clone()).collect();
            let all: Vec<_> = (1..=5).map(|seq| format!("told/{RUN}/{seq}")).collect();
            assert_eq!(ids, all, "{place}");
            assert!(of_run.clone().all(|(_, count)| *count <= 2), "{place}: {made:?}");
        }
    }
    assert!(killed >= 14, "{killed}");
}
