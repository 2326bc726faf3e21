//! The store in memory against the contract, and its capacity.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use backstop_state::MemoryStateStore;
use layer0::StateStore;
use layer0::failure::Failure;
use layer0::state::{Expected, Scope, StateWrite};
use serde_json::json;

/// Spec: K1
#[tokio::test]
async fn memory_state_holds_the_contract() {
    let make = async |clock| Arc::new(MemoryStateStore::new().clock(clock)) as _;
    backstop_testkit::contract::state_store(make).check().await;
}

/// Spec: K1. A full store keeps what it has; what is removed makes room.
#[tokio::test]
async fn full_store_refuses_writes() {
    let state = MemoryStateStore::new().capacity(20);
    let write =
        |key: &str, text: &str| state.write(StateWrite::new(Scope::Global, key, json!(text)));
    write("a", "0123456789").await.unwrap();
    let error = write("b", "0123456789").await.unwrap_err();
    assert_eq!(error.code(), "state.write_failed");
    write("a", "0123456789abcde").await.unwrap();
    assert!(state.delete(&Scope::Global, "a", Expected::Any).await.unwrap());
    write("b", "0123456789").await.unwrap();
}
