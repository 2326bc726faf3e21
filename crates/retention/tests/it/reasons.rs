//! Deletion of single runs, and the reasons why runs are kept.

use backstop_event_log::RunState;
use backstop_retention::{RemoveError, Removed, RunRow, delete_run};
use layer0::Timestamp;
use layer0::id::RunId;

use crate::shelf::Shelf;

fn row(id: i64, parent: Option<&str>, follows: Option<&str>) -> RunRow {
    RunRow {
        id,
        run: format!("run_{id}").into(),
        session: "s".into(),
        state: RunState::Finished.as_str().to_owned(),
        parent: parent.map(RunId::from),
        follows: follows.map(RunId::from),
        last_seq: 2,
        ended_at: Timestamp::from_millis(id),
    }
}

fn open(row: RunRow) -> RunRow {
    RunRow { state: RunState::Running.as_str().to_owned(), ..row }
}

fn delete(shelf: &Shelf, run: &str) -> Result<Removed, RemoveError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(delete_run(shelf, &run.into()))
}

fn delete_from(rows: Vec<RunRow>, run: &str) -> Result<Removed, RemoveError> {
    delete(&Shelf::new(9, rows), run)
}

/// Spec: S10
#[test]
fn run_goes_with_what_it_dispatched() {
    let rows = vec![row(0, None, None), row(1, Some("run_0"), None), row(2, Some("run_1"), None)];
    let removed = delete_from(rows, "run_0").unwrap();
    assert_eq!(removed.runs, ["run_2".into(), "run_1".into(), "run_0".into()]);
}

/// Spec: S10
#[test]
fn reason_names_what_keeps_a_run() {
    let child = || row(1, Some("run_0"), None);
    let grandchild = || row(2, Some("run_1"), None);
    let unrelated = || row(8, None, None);
    let check = |rows: Vec<RunRow>, run: &str, is_reason: &dyn Fn(&RemoveError) -> bool| {
        let refused = delete_from(rows, run).unwrap_err();
        assert!(is_reason(&refused), "{run}: {refused:?}");
    };
    let is_open = |name: &'static str| move |it: &RemoveError| matches!(it, RemoveError::Open(run) if run.as_str() == name);
    check(
        vec![unrelated(), row(0, None, None)],
        "run_9",
        &|refused| matches!(refused, RemoveError::NoRun(run) if run.as_str() == "run_9"),
    );
    check(vec![open(row(0, None, None)), unrelated()], "run_0", &is_open("run_0"));
    let tree = vec![row(0, None, None), child(), open(grandchild())];
    check(tree, "run_0", &is_open("run_2"));
    check(vec![row(0, None, None), child()], "run_1", &|refused| {
        matches!(refused, RemoveError::Dispatched { run, caller, .. }
            if (run.as_str(), caller.as_str()) == ("run_1", "run_0"))
    });
    let followed = vec![row(0, None, None), child(), row(3, None, Some("run_1"))];
    check(followed, "run_0", &|refused| {
        matches!(refused, RemoveError::Followed { run, by, .. }
            if (run.as_str(), by.as_str()) == ("run_1", "run_3"))
    });
    let last = vec![row(0, None, None), row(3, None, Some("run_0"))];
    assert!(delete_from(last, "run_3").is_ok(), "what follows nothing that stays");
}

/// Spec: S10. Without its caller a run goes.
#[test]
fn run_whose_caller_has_gone_goes() {
    assert!(delete_from(vec![row(1, Some("run_0"), None)], "run_1").is_ok());
}

/// Spec: S10
#[test]
fn deletion_is_tried_three_times() {
    for (conflicts, goes) in [(2, true), (3, false)] {
        let shelf = Shelf::new(9, vec![row(0, None, None)]);
        *shelf.conflicts.lock().unwrap() = conflicts;
        assert_eq!(delete(&shelf, "run_0").is_ok(), goes, "{conflicts} conflicts");
    }
}
