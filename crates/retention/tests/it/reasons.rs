//! Deletion of single runs, and the reasons why runs are kept.

use backstop_error_store::StoreError;
use backstop_event_log::RunState;
use backstop_retention::{
    RemoveError, Removed, RunRow, delete_run, plan_delete, removable, trees, why_kept,
};
use layer0::Timestamp;
use layer0::failure::{Effect, Failure, Retry};
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
    let beside_an_open_run =
        vec![row(0, None, None), open(unrelated()), row(3, None, Some("run_0"))];
    check(beside_an_open_run, "run_0", &|refused| {
        matches!(refused, RemoveError::Followed { run, by, .. }
            if (run.as_str(), by.as_str()) == ("run_0", "run_3"))
    });
    let caller_has_gone = vec![row(1, Some("run_0"), None), row(3, None, Some("run_1"))];
    check(caller_has_gone, "run_1", &|refused| matches!(refused, RemoveError::Followed { .. }));
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
fn dry_run_names_what_deletion_removes() {
    let rows = vec![row(0, None, None), row(1, Some("run_0"), None), row(8, None, None)];
    let shelf = Shelf::new(9, rows);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let plan = |run: &str| runtime.block_on(plan_delete(&shelf, &run.into()));
    let planned = plan("run_0").unwrap();
    assert_eq!(planned, ["run_1".into(), "run_0".into()]);
    assert!(matches!(plan("run_9"), Err(RemoveError::NoRun(_))));
    assert_eq!((shelf.rows().len(), *shelf.swept.lock().unwrap()), (3, 0), "it is only read");
    assert_eq!(delete(&shelf, "run_0").unwrap().runs, planned);
    assert_eq!((shelf.rows().len(), *shelf.swept.lock().unwrap()), (1, 1));
}

fn names(trees: &[Vec<&RunRow>]) -> Vec<String> {
    let name =
        |tree: &Vec<&RunRow>| tree.iter().map(|row| row.run.as_str()).collect::<Vec<_>>().join(" ");
    trees.iter().map(name).collect()
}

/// Spec: S10. A tree goes after those that follow it, and two that follow each other go together.
#[test]
fn trees_go_after_their_followers() {
    let check = |rows: &[RunRow], expected: &[&str]| {
        assert_eq!(names(&trees(rows.iter().collect())), expected);
    };
    check(&[row(0, None, None), row(1, None, None)], &["run_0", "run_1"]);
    check(&[row(0, None, None), row(1, None, Some("run_0"))], &["run_1", "run_0"]);
    let line = [row(0, None, None), row(1, None, Some("run_0")), row(2, None, Some("run_1"))];
    check(&line, &["run_2", "run_1", "run_0"]);
    let two = [row(0, None, None), row(1, None, Some("run_0")), row(2, None, Some("run_0"))];
    check(&two, &["run_1", "run_2", "run_0"]);
    let child = [row(0, None, None), row(1, Some("run_0"), None), row(2, None, Some("run_1"))];
    check(&child, &["run_2", "run_0 run_1"]);
    let inside = [row(0, None, None), row(1, Some("run_0"), Some("run_0"))];
    check(&inside, &["run_0 run_1"]);
    let entangled = [
        row(0, None, Some("run_3")),
        row(1, Some("run_0"), None),
        row(2, None, Some("run_1")),
        row(3, Some("run_2"), None),
        row(4, None, None),
    ];
    check(&entangled, &["run_4", "run_0 run_1 run_2 run_3"]);
    let cycle = [row(0, Some("run_1"), None), row(1, Some("run_0"), None)];
    assert_eq!(trees(cycle.iter().collect()).concat().len(), 2, "each goes once");
}

/// Spec: S10. Rows that were edited by hand do not keep a removal busy.
#[test]
fn cycle_of_callers_is_no_endless_search() {
    let rows =
        [row(0, Some("run_1"), None), row(1, Some("run_0"), None), row(2, Some("run_1"), None)];
    assert_eq!(removable(&rows, |_| true).len(), 3);
    assert_eq!(removable(&rows, |_| false).len(), 0);
    assert!(matches!(why_kept(&rows, &rows[2]), RemoveError::Dispatched { .. }));
    let alone = [row(0, None, None)];
    assert!(matches!(why_kept(&alone, &alone[0]), RemoveError::Open(_)), "nothing else keeps it");
}

/// Spec: E1
#[test]
fn failure_of_the_store_is_passed_on() {
    let facts = |error: RemoveError| (error.code(), error.retry(), error.effect());
    assert_eq!(facts(RemoveError::Open("r".into())), ("run.open", Retry::Backoff, Effect::None));
    let missing = facts(RemoveError::NoRun("r".into()));
    assert_eq!(missing, ("run.not_found", Retry::Never, Effect::None));
    let closed = facts(RemoveError::Store(StoreError::Failed("x".into())));
    assert_eq!((closed.0, closed.2), ("store.failed", Effect::Unknown));
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
