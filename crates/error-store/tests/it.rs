//! The stores in memory against the contract, and their limits.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use backstop_error_store::{
    ErrorFilter, ErrorStore, Lookup, MemoryErrorStore, MemoryResultStore, NewError, NewResult,
    Origin, ResultStore, StoreError, Summary,
};
use backstop_redact::Redactor;
use layer0::{Code, Timestamp, code};

fn origin(session: &str, second: i64) -> Origin {
    Origin::new(Timestamp::from_millis(second * 1_000), session, "run_1", "c1", "sql")
}

fn error(session: &str, second: i64, text: &str) -> NewError {
    let reason = Code::new(code::TOOL_EXECUTION_FAILED);
    NewError::new(origin(session, second), reason, None, text, &Redactor::new())
}

/// Spec: S1, S10
#[tokio::test]
async fn memory_errors_hold_the_contract() {
    let suite =
        backstop_testkit::contract::error_store(async || Arc::new(MemoryErrorStore::new()) as _);
    suite.check().await;
}

/// Spec: L2, S10
#[tokio::test]
async fn memory_results_hold_the_contract() {
    let suite =
        backstop_testkit::contract::result_store(async || Arc::new(MemoryResultStore::new()) as _);
    suite.check().await;
}

/// Spec: S7. Ids sort by time, so that even those it no longer lists answer "expired".
#[tokio::test]
async fn a_long_lived_store_stays_bounded() {
    let store = MemoryErrorStore::with_capacity(64 * 1024);
    let mut ids = Vec::new();
    for second in 0..10_000 {
        let text = format!("error {second} {}", "x".repeat(200));
        ids.push(store.store(error("s", second, &text)).await.unwrap().id);
    }
    let left = store.list(ErrorFilter::new()).await.unwrap();
    assert!((50..=128).contains(&left.len()), "{} errors in 64 KiB", left.len());
    let (gone, kept) = ids.split_at(ids.len() - left.len());
    for id in gone {
        assert_eq!(store.get(&"s".into(), id).await.unwrap(), Lookup::Expired);
    }
    for id in kept {
        assert!(store.get(&"s".into(), id).await.unwrap().into_item().is_some());
    }
}

/// Spec: S6, S7, S10
#[tokio::test]
async fn what_is_held_refuses_what_does_not_fit() {
    let store = MemoryErrorStore::with_capacity(10_000);
    let first = store.store(error("s", 0, &"a".repeat(6_000))).await.unwrap();
    let hold = store.hold(&"s".into());
    let refused = store.store(error("s", 1, &"b".repeat(6_000))).await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    assert!(store.get(&"s".into(), &first.id).await.unwrap().into_item().is_some());
    drop(hold);
    store.store(error("s", 1, &"b".repeat(6_000))).await.unwrap();
    assert!(store.get(&"s".into(), &first.id).await.unwrap().is_expired());

    let results = MemoryResultStore::with_capacity(10_000);
    let result = |text: &str| NewResult::new(origin("s", 0), text, &Redactor::new());
    results.put(result("small")).await.unwrap();
    let refused = results.put(result(&"x".repeat(20_000))).await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
}

/// Each file has the summary, a line of `====`, and the output of a failing program.
///
/// Spec: S4
#[test]
fn summaries_say_what_failed() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/failures");
    let mut wrong = Vec::new();
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let (expected, output) = text.split_once("\n====\n").unwrap();
        let summary = Summary::from_error(output, None).text;
        if summary != expected {
            wrong.push(format!("{}: {summary:?}, not {expected:?}", path.display()));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count >= 90, "{count} outputs");
}
