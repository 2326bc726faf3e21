//! The log in memory, held against the contracts of logs.

use std::sync::Arc;

use backstop_event_log::MemoryLog;
use backstop_testkit::contract;

/// Spec: D1, D2, D4, D7, D8
#[tokio::test]
async fn memory_log_keeps_the_contract_of_logs() {
    contract::event_log(async || Arc::new(MemoryLog::new()) as _).check().await;
}

/// Spec: D13
#[tokio::test]
async fn memory_log_erases() {
    contract::erasable_event_log(async || Arc::new(MemoryLog::new()) as _).check().await;
}

/// Spec: A1
#[tokio::test]
async fn memory_log_keeps_the_contract_of_approvals() {
    contract::approvals(async || Arc::new(MemoryLog::new()) as _).check().await;
}

/// Spec: D14
#[tokio::test]
async fn memory_log_can_be_followed() {
    contract::feed(async || Arc::new(MemoryLog::new()) as _).check().await;
}

/// Spec: J2w
#[tokio::test]
async fn memory_log_binds_keys_of_starts() {
    contract::start_keys(async || Arc::new(MemoryLog::new()) as _).check().await;
}

/// Spec: X2
#[tokio::test]
async fn memory_log_keeps_subscriptions() {
    contract::subscriptions(async || Arc::new(MemoryLog::new()) as _).check().await;
}

/// Spec: M7, W3
#[tokio::test]
async fn memory_log_keeps_transcripts() {
    contract::transcripts(async || Arc::new(MemoryLog::new()) as _).check().await;
}
