//! The suites that every log and store must pass.

use std::sync::Arc;

use backstop_clock::Clock;
use backstop_event_log::EventLog;
use backstop_testkit::contract::{self, Open};

use crate::support::{open, reopen, server};

/// Spec: S11, J2
#[tokio::test(flavor = "multi_thread")]
async fn the_log_passes_the_suite() {
    let databases = server!().in_turn();
    contract::event_log(async move || Arc::new(open(&databases.next().await).await.log()) as _)
        .check()
        .await;
    let databases = server!().in_turn();
    let log = async move || Arc::new(open(&databases.next().await).await.log()) as _;
    contract::erasable_event_log(log).check().await;
}

/// Spec: J2, D8
#[tokio::test(flavor = "multi_thread")]
async fn the_log_keeps_what_it_has_when_reopened() {
    let databases = server!().in_turn();
    let suite = contract::reopened_event_log(async move || {
        let url = databases.next().await;
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
    let databases = server!().in_turn();
    contract::feed(async move || Arc::new(open(&databases.next().await).await.log()) as _)
        .check()
        .await;
}

/// Spec: A1
#[tokio::test(flavor = "multi_thread")]
async fn the_log_keeps_approvals() {
    let databases = server!().in_turn();
    contract::approvals(async move || Arc::new(open(&databases.next().await).await.log()) as _)
        .check()
        .await;
}

/// Spec: X2, X4
#[tokio::test(flavor = "multi_thread")]
async fn the_log_keeps_subscriptions() {
    let databases = server!().in_turn();
    contract::subscriptions(async move || Arc::new(open(&databases.next().await).await.log()) as _)
        .check()
        .await;
}

/// Spec: D9, M7
#[tokio::test(flavor = "multi_thread")]
async fn the_log_keeps_transcripts() {
    let databases = server!().in_turn();
    contract::transcripts(async move || Arc::new(open(&databases.next().await).await.log()) as _)
        .check()
        .await;
}

/// Spec: J2w
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_starts_pass_the_suite() {
    let databases = server!().in_turn();
    contract::start_keys(async move || Arc::new(open(&databases.next().await).await.log()) as _)
        .check()
        .await;
}

/// Spec: S1, S11
#[tokio::test(flavor = "multi_thread")]
async fn the_error_store_passes_the_suite() {
    let databases = server!().in_turn();
    contract::error_store(async move || {
        Arc::new(open(&databases.next().await).await.errors()) as _
    })
    .check()
    .await;
}

/// Spec: L1
#[tokio::test(flavor = "multi_thread")]
async fn the_result_store_passes_the_suite() {
    let databases = server!().in_turn();
    contract::result_store(async move || {
        Arc::new(open(&databases.next().await).await.results()) as _
    })
    .check()
    .await;
}

/// Spec: K1
#[tokio::test(flavor = "multi_thread")]
async fn the_state_store_passes_the_suite() {
    let databases = server!().in_turn();
    let suite = contract::state_store(async move |clock: Arc<dyn Clock>| {
        Arc::new(open(&databases.next().await).await.state().clock(clock)) as _
    });
    suite.check().await;
}
