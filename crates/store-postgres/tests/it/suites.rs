//! The suites that every log and store has to pass.

use std::sync::Arc;

use backstop_clock::Clock;
use backstop_event_log::EventLog;
use backstop_testkit::contract::{self, Open};

use crate::support::{fresh, reopen, server};

/// Spec: S11, J2
#[tokio::test(flavor = "multi_thread")]
async fn the_log_passes_the_suite() {
    let server = server!();
    contract::event_log(async || Arc::new(fresh(server).await.log()) as _).check().await;
}

/// Spec: J2, D8
#[tokio::test(flavor = "multi_thread")]
async fn the_log_keeps_what_it_has_when_reopened() {
    let server = server!();
    let suite = contract::reopened_event_log(async || {
        let url = server.database().await;
        let open: Open<dyn EventLog> = Box::new(move || {
            let url = url.clone();
            Box::pin(async move { Arc::new(reopen(&url).await.log()) as Arc<dyn EventLog> })
        });
        open
    });
    suite.check().await;
}

/// Spec: X2
#[tokio::test(flavor = "multi_thread")]
async fn the_log_can_be_followed() {
    let server = server!();
    contract::feed(async || Arc::new(fresh(server).await.log()) as _).check().await;
}

/// Spec: A1
#[tokio::test(flavor = "multi_thread")]
async fn the_log_keeps_approvals() {
    let server = server!();
    contract::approvals(async || Arc::new(fresh(server).await.log()) as _).check().await;
}

/// Spec: S1, S11
#[tokio::test(flavor = "multi_thread")]
async fn the_error_store_passes_the_suite() {
    let server = server!();
    contract::error_store(async || Arc::new(fresh(server).await.errors()) as _).check().await;
}

/// Spec: L1
#[tokio::test(flavor = "multi_thread")]
async fn the_result_store_passes_the_suite() {
    let server = server!();
    contract::result_store(async || Arc::new(fresh(server).await.results()) as _).check().await;
}

/// Spec: K1
#[tokio::test(flavor = "multi_thread")]
async fn the_state_store_passes_the_suite() {
    let server = server!();
    let suite = contract::state_store(async |clock: Arc<dyn Clock>| {
        Arc::new(fresh(server).await.state().clock(clock)) as _
    });
    suite.check().await;
}
