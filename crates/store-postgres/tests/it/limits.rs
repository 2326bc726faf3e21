//! Names and texts that are too long.

use std::sync::Arc;

use backstop_error_store::{
    ErrorFilter, ErrorStore, NewError, NewResult, Origin, ResultStore, StoreError,
};
use backstop_event_log::{EventLog, InboxRequest, LogError, RunFilter, RunWriter, Settlement};
use backstop_redact::Redactor;
use layer0::error::StateError;
use layer0::event::{EventKind, ToolResolved, Verdict, Warning};
use layer0::failure::{Failure, chain};
use layer0::state::{Scope, StateWrite};
use layer0::{Code, StateStore, code};

use crate::support::{append, at, begin, error_at, fresh, noise, resume, server, started, state};

/// What no row of an index has room for, also when it is compressed.
const LONG: usize = 10_000;

#[track_caller]
fn assert_too_large(error: &LogError) {
    assert!(matches!(error, LogError::TooLarge(_)), "{error:?}");
    assert_eq!((error.code(), error.is_retryable()), ("store.failed", false));
    assert!(error.hint().is_some());
    let said = chain(error).join(": ");
    assert!(said.contains("are the most") && !said.contains("index row"), "{said}");
}

/// Spec: J2. A name that is too long is refused, and nothing of its run is written.
#[tokio::test(flavor = "multi_thread")]
async fn long_names_are_refused_whole() {
    let database = fresh(server!()).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let long = noise(LONG);
    let mut of_long_id = RunWriter::new(Arc::clone(&log), (&*long).into());
    assert_too_large(&append(&mut of_long_id, started("s")).await.unwrap_err());
    let mut in_long_session = RunWriter::new(Arc::clone(&log), "run_1".into());
    assert_too_large(&append(&mut in_long_session, started(&long)).await.unwrap_err());
    assert!(log.runs(RunFilter::new()).await.unwrap().is_empty());
    drop((of_long_id, in_long_session));
    // What is looked for, and cannot be there.
    assert!(log.summary(&(&*long).into()).await.unwrap().is_none());
    assert!(matches!(log.claim(&(&*long).into()).await, Err(LogError::NotFound(_))));

    let is_too_large = |error: &StoreError| matches!(error, StoreError::TooLarge(_));
    for too_long in [error_at(0, &long, "run_1", "sql", "x"), error_at(0, "s", "run_1", &long, "x")]
    {
        let refused = database.errors().store(too_long).await.unwrap_err();
        assert!(is_too_large(&refused) && refused.hint().is_some(), "{refused:?}");
    }
    let result =
        NewResult::new(Origin::new(at(0), &*long, "run_1", "c1", "sql"), "text", &Redactor::new());
    assert!(is_too_large(&database.results().put(result).await.unwrap_err()));
    assert!(database.errors().list(ErrorFilter::new()).await.unwrap().is_empty());
    let write = StateWrite::new(Scope::Global, &long, serde_json::json!(1));
    let error = state(&database).write(write).await.unwrap_err();
    assert!(matches!(error, StateError::InvalidKey { .. }), "{error:?}");
    database.close().await;
}

/// Spec: J2. The longest names that are taken find room in every index.
#[tokio::test(flavor = "multi_thread")]
async fn the_longest_names_find_room() {
    let database = fresh(server!()).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let long = noise(1_024);
    drop(begin(&log, &long, &long).await);
    let origin = Origin::new(at(0), &*long, &*long, &*noise(LONG), &*long);
    let code = "\u{1F6D1}".repeat(100);
    let reason = Code::new(code::TOOL_EXECUTION_FAILED);
    let met = NewError::new(origin.clone(), reason, Some(&code), "x", &Redactor::new());
    database.errors().store(met).await.unwrap();
    database.results().put(NewResult::new(origin, "text", &Redactor::new())).await.unwrap();
    assert_eq!(log.summary(&(&*long).into()).await.unwrap().unwrap().session.as_str(), long);
    database.close().await;
}

/// Spec: J2. A model gives ids of any length.
#[tokio::test(flavor = "multi_thread")]
async fn long_call_ids_are_kept() {
    let database = fresh(server!()).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = begin(&log, "run_1", "s").await;
    let long = noise(LONG);
    let resolved = ToolResolved::new(&*long, "ann", Verdict::Happened, None, "done");
    append(&mut writer, resolved.into()).await.unwrap();
    let settle = |call: &str| InboxRequest::Settle {
        run: "run_1".into(),
        call: call.into(),
        settlement: Settlement::call_happened("ann"),
    };
    assert!(!log.send(settle(&long), "ann", at(1)).await.unwrap(), "it is recorded");
    assert!(log.send(settle(&long[1..]), "ann", at(1)).await.unwrap());
    database.close().await;
}

/// Spec: J2. More than a statement takes is refused before it is sent, and the run goes on.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_has_a_most() {
    let database = fresh(server!()).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = begin(&log, "run_1", "s").await;
    let large = EventKind::from(Warning::new("x".repeat((128 << 20) + 1)));
    assert_too_large(&append(&mut writer, large).await.unwrap_err());
    assert_eq!(log.records(&"run_1".into(), 1).await.unwrap().len(), 1);
    drop(writer);
    let mut writer = resume(&log, "run_1").await;
    let small = EventKind::from(Warning::new("x"));
    assert_eq!(append(&mut writer, small).await.unwrap(), 2);
    database.close().await;
}
