//! `[memory]`, `[log]`, `[error_store]` and `[result_store]` of a scenario.

use serde::Deserialize;

/// `[memory]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct MemoryTable {
    /// What every read returns.
    pub entries: Vec<String>,
    /// The text a read fails with.
    pub read_error: Option<String>,
    /// The text a read panics with.
    pub read_panic: Option<String>,
    /// How long a read hangs first, in milliseconds.
    pub read_hang_ms: Option<u64>,
    /// The text a write fails with.
    pub write_error: Option<String>,
    /// The text a write panics with.
    pub write_panic: Option<String>,
    /// How long a write hangs first, in milliseconds.
    pub write_hang_ms: Option<u64>,
}

/// `[log]`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LogFaultTable {
    /// The append that would write this seq fails, and all after it.
    pub fail_at_seq: Option<u64>,
}

/// `[error_store]` and `[result_store]`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct StoreFaultTable {
    /// How it fails; it works otherwise.
    pub fail: Option<StoreFault>,
    /// How often it is locked before it works; for ever otherwise.
    pub locked_times: Option<u32>,
}

/// How a store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StoreFault {
    /// It was closed.
    Closed,
    /// The disk is full.
    DiskFull,
    /// Another process holds the lock.
    Locked,
    /// There is none.
    None,
}
