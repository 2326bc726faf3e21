//! Removal of runs and sessions, and texts that PostgreSQL refuses.

use std::sync::Arc;
use std::time::Duration;

use backstop_error_store::{ErrorStore, Lookup, NewResult, Origin, ResultStore};
use backstop_event_log::{Cursor, EventFilter, EventLog, InboxRequest, RunFilter, RunWriter};
use backstop_redact::Redactor;
use backstop_retention::RemoveError;
use layer0::StateStore;
use layer0::event::{AgentRecord, ErrorStored, EventKind, RunForked, RunStarted};
use layer0::state::{Scope, StateQuery, StateWrite};
use serde_json::json;

use crate::support::{
    append, at, begin, error, finished, following, fresh, names, server, stage, started, state,
};

const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Long after the end of every run of these tests.
const LATER: i64 = 40 * 24 * 60 * 60 * 1_000;

async fn over(log: &Arc<dyn EventLog>, run: &str, first: EventKind) {
    let mut writer = RunWriter::new(Arc::clone(log), run.into());
    stage(&mut writer, first);
    append(&mut writer, finished()).await.unwrap();
}

/// Spec: S10
#[tokio::test(flavor = "multi_thread")]
async fn old_runs_are_pruned_with_what_they_stored() {
    let server = server!();
    let database = fresh(server).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    over(&log, "run_1", started("a")).await;
    over(&log, "run_2", following("a", "run_1")).await;
    let open = begin(&log, "run_open", "b").await;
    let own = database.errors().store(error("a", "run_1", "own")).await.unwrap();
    let kept = database.errors().store(error("b", "run_open", "kept")).await.unwrap();
    let end = log.read_feed(&EventFilter::new(), &Cursor::now()).await.unwrap().cursor;
    let removed = database.prune_runs(WEEK, &[], at(LATER)).await.unwrap();
    assert_eq!(removed.runs, ["run_2".into(), "run_1".into()]);
    assert_eq!((removed.errors, names(&database).await), (1, vec!["run_open".to_owned()]));
    let found = database.errors().find(&own.id).await.unwrap();
    assert!(matches!(found, Lookup::Expired), "{found:?}");
    assert!(matches!(database.errors().find(&kept.id).await.unwrap(), Lookup::Found(_)));
    // A cursor after the removed events stays valid, and later events are returned.
    drop(open);
    over(&log, "run_3", started("c")).await;
    let page = log.read_feed(&EventFilter::new(), &end).await.unwrap();
    assert_eq!(page.records.len(), 2);
}

/// Spec: S10
#[tokio::test(flavor = "multi_thread")]
async fn a_followed_or_open_run_is_not_deleted() {
    let server = server!();
    let database = fresh(server).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    over(&log, "run_1", started("a")).await;
    over(&log, "run_2", following("a", "run_1")).await;
    let writer = begin(&log, "run_open", "b").await;
    let followed = database.delete_run(&"run_1".into()).await;
    assert!(matches!(followed, Err(RemoveError::Followed { .. })), "{followed:?}");
    let open = database.delete_run(&"run_open".into()).await;
    assert!(matches!(open, Err(RemoveError::Open(_))), "{open:?}");
    assert!(matches!(database.delete_run(&"run_9".into()).await, Err(RemoveError::NoRun(_))));
    database.delete_run(&"run_2".into()).await.unwrap();
    database.delete_run(&"run_1".into()).await.unwrap();
    assert_eq!(names(&database).await, ["run_open"]);
    drop(writer);
}

/// Spec: S10
#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_session_leaves_tombstones() {
    let server = server!();
    let database = fresh(server).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    over(&log, "run_1", started("a")).await;
    let mut copy = RunWriter::new(Arc::clone(&log), "run_copy".into());
    stage(&mut copy, started("a"));
    stage(&mut copy, RunForked::new("run_copy", "ses_copy", "run_1", 1).into());
    append(&mut copy, finished()).await.unwrap();
    drop(copy);
    let state = state(&database);
    let scope = Scope::Session("a".into());
    state.write(StateWrite::new(scope.clone(), "k", json!("v"))).await.unwrap();
    let own = database.errors().store(error("a", "run_1", "own")).await.unwrap();
    let forgotten = database.forget_session(&"a".into(), "ada", false, at(9)).await.unwrap();
    let forks: Vec<&str> = forgotten.forks.iter().map(|fork| fork.run.as_str()).collect();
    assert_eq!(forks, ["run_copy"], "a copy still holds what was copied");
    assert_eq!((forgotten.removed.errors, forgotten.removed.state), (1, 1));
    assert!(state.list(StateQuery::new(scope)).await.unwrap().is_empty());
    let left = database.tombstone(&"run_1".into()).await.unwrap().unwrap();
    assert_eq!((&*left.by, left.at), ("ada", at(9)));
    assert!(matches!(database.errors().find(&own.id).await.unwrap(), Lookup::Expired));
    let again = database.forget_session(&"a".into(), "ada", false, at(9)).await;
    assert!(matches!(again, Err(RemoveError::NoSession(_))), "{again:?}");
}

/// Spec: J2. NUL is no text for PostgreSQL, and is kept.
#[tokio::test(flavor = "multi_thread")]
async fn nul_is_kept_in_every_text() {
    let server = server!();
    let database = fresh(server).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let (run, session) = ("run_\0\u{e000}", "s\0");
    let agent = AgentRecord::new("de\0mo", "d", json!({}));
    let mut first = RunStarted::new("hello", session.into(), agent);
    first.labels = Arc::new([("te\0nant".to_owned(), "ac\0me".to_owned())].into());
    let mut writer = RunWriter::new(Arc::clone(&log), run.into());
    append(&mut writer, first.into()).await.unwrap();
    append(&mut writer, ErrorStored::new("err_\0", "c\0", "t\0ool", 1, 0).into()).await.unwrap();
    let summary = log.summary(&run.into()).await.unwrap().unwrap();
    assert_eq!((summary.run.as_str(), summary.session.as_str()), (run, session));
    assert_eq!((&*summary.agent, &*summary.labels["te\0nant"]), ("de\0mo", "ac\0me"));
    for filter in [RunFilter::new().label("te\0nant", "ac\0me"), RunFilter::new().agent("de\0mo")] {
        assert_eq!(log.runs(filter).await.unwrap().len(), 1);
    }
    let input = InboxRequest::Input { run: run.into(), text: "go\0on".into() };
    assert!(log.send(input.clone(), "ad\0a", at(1)).await.unwrap());
    let inbox = log.inbox(&run.into()).await.unwrap();
    assert_eq!((&inbox[0].request, &*inbox[0].by), (&input, "ad\0a"));
    let listed = log.runs(RunFilter::new().session(session).id_prefix("run_\0")).await.unwrap();
    assert_eq!(listed.len(), 1);

    let origin = Origin::new(at(0), session, run, "c\0", "t\0ool");
    let id =
        database.results().put(NewResult::new(origin, "bo\0dy", &Redactor::new())).await.unwrap();
    let Lookup::Found(result) = database.results().find(&id).await.unwrap() else { panic!() };
    assert_eq!((&*result.body, &*result.origin.tool), ("bo\0dy", "t\0ool"));
    let stored = database.errors().store(error(session, run, "a\0b")).await.unwrap();
    let Lookup::Found(kept) = database.errors().find(&stored.id).await.unwrap() else { panic!() };
    assert!(kept.raw().contains(r"a\u0000b"), "{}", kept.raw());
    let write = StateWrite::new(Scope::Global, "k", json!({ "a\0": "b\0c" }));
    state(&database).write(write).await.unwrap();
    let read = state(&database).read(&Scope::Global, "k").await.unwrap().unwrap();
    assert_eq!(read.value, json!({ "a\0": "b\0c" }));
    drop(writer);
}
