//! `[memory]`, `[log]`, `[error_store]` and `[result_store]` of a scenario.

use serde::Deserialize;

/// `[memory]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct MemoryTable {
    /// Entries that every read returns.
    pub entries: Vec<String>,
    /// Text of the error that a read fails with.
    pub read_error: Option<String>,
    /// Text of the panic of a read.
    pub read_panic: Option<String>,
    /// Delay at the start of a read, in milliseconds.
    pub read_hang_ms: Option<u64>,
    /// Text of the error that a write fails with.
    pub write_error: Option<String>,
    /// Text of the panic of a write.
    pub write_panic: Option<String>,
    /// Delay at the start of a write, in milliseconds.
    pub write_hang_ms: Option<u64>,
}

/// `[log]`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LogFaultTable {
    /// Sequence number from which all appends fail.
    pub fail_at_seq: Option<u64>,
}

/// `[error_store]` and `[result_store]`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct StoreFaultTable {
    /// Failure of the store; absent if it works.
    pub fail: Option<StoreFault>,
    /// Number of calls that find the store locked before it works; all calls by default.
    pub locked_times: Option<u32>,
}

/// A failure of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StoreFault {
    /// The store is closed.
    Closed,
    /// The disk is full.
    DiskFull,
    /// Another process holds the lock.
    Locked,
    /// There is no store.
    None,
}
