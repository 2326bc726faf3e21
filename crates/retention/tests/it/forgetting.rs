//! Sessions are forgotten completely, or not at all.

use backstop_event_log::RunState;
use backstop_retention::{
    Forgotten, RemoveError, RunRow, forget_session, plan_forget, session_scopes,
};
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};

use crate::shelf::Shelf;

fn run(id: i64, session: &str, state: RunState) -> RunRow {
    RunRow {
        id,
        run: format!("run_{id}").into(),
        session: session.into(),
        state: state.as_str().to_owned(),
        parent: None,
        follows: None,
        last_seq: 2,
        ended_at: Timestamp::from_millis(id),
    }
}

/// A session of two runs, a copy of it, and an unrelated one.
fn shelf() -> Shelf {
    let over = |id, session| run(id, session, RunState::Finished);
    let follower = RunRow { follows: Some("run_0".into()), ..over(1, "s") };
    let rows = vec![over(0, "s"), follower, over(2, "copy"), over(3, "other")];
    let mut shelf = Shelf::new(9, rows);
    shelf.copies = vec![("s", "copy".into())];
    shelf
}

fn forget(shelf: &Shelf, session: &str, with_forks: bool) -> Result<Forgotten, RemoveError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (session, now) = (SessionId::from(session), Timestamp::from_millis(99));
    runtime.block_on(forget_session(shelf, &session, "ops", with_forks, now))
}

fn left(shelf: &Shelf) -> Vec<RunId> {
    shelf.rows().iter().map(|row| row.run.clone()).collect()
}

/// Spec: S10. Copies hold what was copied: they are named, or go too.
#[test]
fn copies_are_named_or_go_too() {
    let before = shelf();
    let forgotten = forget(&before, "s", false).unwrap();
    assert_eq!(forgotten.removed.runs, ["run_1".into(), "run_0".into()]);
    let forks: Vec<_> = forgotten.forks.iter().map(|fork| fork.run.as_str()).collect();
    assert_eq!(forks, ["run_2"]);
    assert_eq!(left(&before), ["run_2".into(), "run_3".into()]);

    let before = shelf();
    let forgotten = forget(&before, "s", true).unwrap();
    assert_eq!((forgotten.removed.runs.len(), forgotten.forks.len()), (3, 0));
    assert_eq!(left(&before), ["run_3".into()]);
}

/// Spec: S10. Each session that goes is marked first, once, and its mark is taken off.
#[test]
fn sessions_are_marked_while_they_go() {
    for (with_forks, sessions) in [(false, vec!["s"]), (true, vec!["s", "copy"])] {
        let shelf = shelf();
        forget(&shelf, "s", with_forks).unwrap();
        let (marked, taken_off) = &*shelf.marks.lock().unwrap();
        assert_eq!(marked.iter().map(SessionId::as_str).collect::<Vec<_>>(), sessions);
        assert_eq!(taken_off.len(), sessions.len());
    }
}

/// Spec: S10
#[test]
fn open_run_refuses_before_anything_goes() {
    for session in ["s", "copy"] {
        let shelf = shelf();
        shelf.rows().push(run(4, session, RunState::Running));
        let refused = forget(&shelf, "s", true).unwrap_err();
        assert!(matches!(refused, RemoveError::Open(run) if run.as_str() == "run_4"));
        assert_eq!(left(&shelf).len(), 5);
        let (marked, taken_off) = &*shelf.marks.lock().unwrap();
        assert_eq!(marked.len(), taken_off.len(), "a refusal takes the marks off too");
    }
    // An open copy that stays does not refuse the request.
    let shelf = shelf();
    shelf.rows().push(run(4, "copy", RunState::Running));
    assert_eq!(forget(&shelf, "s", false).unwrap().forks.len(), 2);
}

/// Spec: S10
#[test]
fn taken_run_refuses_before_anything_goes() {
    let mut shelf = shelf();
    shelf.taken = Some(("s".into(), "run_9".into()));
    let refused = forget(&shelf, "s", false).unwrap_err();
    assert!(matches!(refused, RemoveError::Open(run) if run.as_str() == "run_9"));
    assert_eq!(left(&shelf).len(), 4);
}

/// Spec: S10
#[test]
fn dry_run_names_queued_runs() {
    let mut shelf = shelf();
    shelf.queued = vec!["run_9".into(), "run_0".into()];
    let plan = |session: &str| {
        let session = session.into();
        let planned = plan_forget(&shelf, &session, false, Timestamp::from_millis(9));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (runs, _) = runtime.block_on(planned).unwrap();
        runs.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(plan("nobody"), ["run_9", "run_0"]);
    assert_eq!(plan("s"), ["run_1", "run_0", "run_9"], "a run that has begun is named once");
    assert_eq!(left(&shelf).len(), 4);
}

/// Spec: S10. A session that holds anything at all is known.
#[test]
fn session_without_anything_is_unknown() {
    let mut shelf = shelf();
    let refused = forget(&shelf, "nobody", false).unwrap_err();
    assert!(matches!(refused, RemoveError::NoSession(session) if session.as_str() == "nobody"));
    shelf.stateful = Some("nobody".into());
    let forgotten = forget(&shelf, "nobody", false).unwrap();
    assert_eq!(forgotten.removed.state, 1);
    for texts in [[1, 0], [0, 1], [1, 1]] {
        shelf.texts = Some(("text".into(), texts));
        let removed = forget(&shelf, "text", false).unwrap().removed;
        assert_eq!([removed.errors, removed.results], texts);
    }
    assert!(forget(&shelf, "other", false).is_ok(), "runs are enough");
}

/// Spec: S10. A removal that meets a writer is tried again, and gives up.
#[test]
fn removal_is_tried_three_times() {
    for (conflicts, goes) in [(2, true), (3, false)] {
        let shelf = shelf();
        *shelf.conflicts.lock().unwrap() = conflicts;
        let forgotten = forget(&shelf, "s", false);
        assert_eq!(forgotten.is_ok(), goes, "{conflicts} conflicts: {forgotten:?}");
        assert_eq!(left(&shelf).len(), if goes { 2 } else { 4 });
    }
}

/// A count of zero state values is omitted for people; other zero counts are not.
#[test]
fn only_empty_state_is_left_out() {
    let mut shelf = shelf();
    let json = |forgotten: Forgotten| serde_json::to_value(forgotten).unwrap();
    assert_eq!(json(forget(&shelf, "other", false).unwrap()).get("state"), None);
    shelf.stateful = Some("s".into());
    assert_eq!(json(forget(&shelf, "s", false).unwrap())["state"], 1);
}

/// Spec: S10. A session that another process removes meanwhile was there.
#[test]
fn session_that_vanishes_was_known() {
    let mut shelf = shelf();
    (*shelf.conflicts.lock().unwrap(), shelf.vanishes) = (1, true);
    assert_eq!(forget(&shelf, "s", false).unwrap(), Forgotten::default());
}

/// Spec: S10. The ids of texts are forgotten only if no copy remains to look for them.
#[test]
fn removal_names_its_person_and_time() {
    for (with_forks, is_silent) in [(false, false), (true, true)] {
        let shelf = shelf();
        forget(&shelf, "s", with_forks).unwrap();
        assert_eq!(*shelf.swept.lock().unwrap(), 1);
        for removal in &*shelf.removals.lock().unwrap() {
            let by = removal.forgotten.as_ref().map(|(by, at)| (by.as_str(), at.as_millis()));
            assert_eq!((by, removal.is_silent), (Some(("ops", 99)), is_silent));
        }
    }
}

/// Spec: S10, B4
#[test]
fn state_of_a_session_is_in_two_scopes() {
    let scopes: Vec<_> = session_scopes(&"s-1".into()).map(|scope| scope.to_string()).collect();
    assert_eq!(scopes, ["session:s-1", "limit:session:s-1"]);
}

/// Spec: S10
#[test]
fn dry_run_refuses_what_the_removal_would() {
    let plan = |shelf: &Shelf, session: &str, with_forks| {
        let session = session.into();
        let planned = plan_forget(shelf, &session, with_forks, Timestamp::from_millis(9));
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(planned)
    };
    let mut shelf = shelf();
    let (runs, forks) = plan(&shelf, "s", false).unwrap();
    assert_eq!((runs.len(), forks.len()), (2, 1));
    assert_eq!(plan(&shelf, "s", true).unwrap().0.len(), 3, "copies too");
    let refused = plan(&shelf, "nobody", false).unwrap_err();
    assert!(matches!(refused, RemoveError::NoSession(_)), "{refused:?}");
    shelf.taken = Some(("s".into(), "run_9".into()));
    let refused = plan(&shelf, "s", false).unwrap_err();
    assert!(matches!(refused, RemoveError::Open(_)), "{refused:?}");
    assert_eq!((left(&shelf).len(), *shelf.swept.lock().unwrap()), (4, 0), "it is only read");
    assert_eq!(shelf.marks.lock().unwrap().0, []);
}
