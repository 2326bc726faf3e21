//! Limits of a run that its guards enforce, and time limits of its parts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::budget::milliseconds;

/// Limits of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum number of model calls of a run, without retries and resends.
    pub max_iterations: u32,
    /// Maximum number of tool calls in one answer of the model.
    pub max_parallel_tools: u32,
    /// Maximum number of tools that run at the same time; the rest of a batch waits.
    pub max_concurrent_tools: u32,
    /// Maximum number of requests for the same batch; `None` for no limit.
    pub max_repeated_batch_steps: Option<u32>,
    /// Maximum number of requests for the same batch while it makes progress: its tools are exploratory, or its results
    /// change. `None` for no limit.
    pub max_observation_steps: Option<u32>,
    /// Maximum number of times that the model may repeat a text without requesting anything new; `None` for no limit.
    pub max_stagnation_steps: Option<u32>,
    /// Number of consecutive failures of the same call with the same code after which it no longer runs; `None` for no
    /// limit.
    pub max_repeated_failures: Option<u32>,
    /// Time limit of one tool execution, in milliseconds, unless the tool has its own.
    pub tool_timeout_ms: u64,
    /// Maximum size of a tool's output, in bytes of text; of a larger one the model reads only the beginning.
    pub max_result_bytes: u64,
    /// Time limit of one read or write of the memory, in milliseconds.
    pub memory_timeout_ms: u64,
    /// Time limit of one call of a hook, in milliseconds.
    pub hook_timeout_ms: u64,
    /// Time limit of one call of the error store or the result store, in milliseconds.
    pub store_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_iterations: 25,
            max_parallel_tools: 25,
            max_concurrent_tools: 8,
            max_repeated_batch_steps: Some(4),
            max_observation_steps: Some(15),
            max_stagnation_steps: Some(5),
            max_repeated_failures: Some(3),
            tool_timeout_ms: 30_000,
            max_result_bytes: 16 * 1024,
            memory_timeout_ms: 5_000,
            hook_timeout_ms: 5_000,
            store_timeout_ms: 5_000,
        }
    }
}

impl Limits {
    /// Returns the default limits: 25 model calls, 25 tool calls at once with 8 of them running, 30 seconds for tools,
    /// 5 for hooks, memory and stores, 16 KiB of output.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use backstop_react_machine::Limits;
    ///
    /// let limits = Limits::new().max_iterations(5).tool_timeout(Duration::from_secs(1));
    /// assert_eq!(limits.tool_timeout_ms, 1_000);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the model calls of a run; retries and resends do not count.
    #[must_use]
    pub fn max_iterations(mut self, max_iterations: u32) -> Self {
        self.max_iterations = max_iterations;
        self
    }

    /// Limits the number of tool calls in one answer of the model.
    #[must_use]
    pub fn max_parallel_tools(mut self, max_parallel_tools: u32) -> Self {
        self.max_parallel_tools = max_parallel_tools;
        self
    }

    /// Limits the number of tools that run at the same time.
    #[must_use]
    pub fn max_concurrent_tools(mut self, max_concurrent_tools: u32) -> Self {
        self.max_concurrent_tools = max_concurrent_tools;
        self
    }

    /// Limits the number of requests for the same batch; `None` for no limit. The same holds for the methods below.
    #[must_use]
    pub fn max_repeated_batch_steps(
        mut self,
        max_repeated_batch_steps: impl Into<Option<u32>>,
    ) -> Self {
        self.max_repeated_batch_steps = max_repeated_batch_steps.into();
        self
    }

    /// Limits the number of requests for the same batch while it makes progress.
    #[must_use]
    pub fn max_observation_steps(mut self, max_observation_steps: impl Into<Option<u32>>) -> Self {
        self.max_observation_steps = max_observation_steps.into();
        self
    }

    /// Limits how often the model may repeat a text without requesting anything new.
    #[must_use]
    pub fn max_stagnation_steps(mut self, max_stagnation_steps: impl Into<Option<u32>>) -> Self {
        self.max_stagnation_steps = max_stagnation_steps.into();
        self
    }

    /// Limits the consecutive failures of the same call with the same code; after that many it no longer runs.
    #[must_use]
    pub fn max_repeated_failures(mut self, max_repeated_failures: impl Into<Option<u32>>) -> Self {
        self.max_repeated_failures = max_repeated_failures.into();
        self
    }

    /// Limits the size of a tool's output that the model reads at once, in bytes.
    #[must_use]
    pub fn max_result_bytes(mut self, max_result_bytes: u64) -> Self {
        self.max_result_bytes = max_result_bytes;
        self
    }

    /// Limits the time of one tool execution, unless the tool has its own limit.
    #[must_use]
    pub fn tool_timeout(mut self, limit: Duration) -> Self {
        self.tool_timeout_ms = milliseconds(limit);
        self
    }

    /// Limits the time of one read or write of the memory.
    #[must_use]
    pub fn memory_timeout(mut self, limit: Duration) -> Self {
        self.memory_timeout_ms = milliseconds(limit);
        self
    }

    /// Limits the time of one call of a hook.
    #[must_use]
    pub fn hook_timeout(mut self, limit: Duration) -> Self {
        self.hook_timeout_ms = milliseconds(limit);
        self
    }

    /// Limits the time of one call of the error store or the result store.
    #[must_use]
    pub fn store_timeout(mut self, limit: Duration) -> Self {
        self.store_timeout_ms = milliseconds(limit);
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Spec: G1, G2, G3, G4
    #[test]
    fn defaults_are_the_documented_ones() {
        let expected = json!({
            "max_iterations": 25, "max_parallel_tools": 25, "max_concurrent_tools": 8,
            "max_repeated_batch_steps": 4, "max_observation_steps": 15, "max_stagnation_steps": 5,
            "max_repeated_failures": 3, "tool_timeout_ms": 30_000, "max_result_bytes": 16_384,
            "memory_timeout_ms": 5_000, "hook_timeout_ms": 5_000, "store_timeout_ms": 5_000,
        });
        assert_eq!(serde_json::to_value(Limits::new()).unwrap(), expected);
    }

    #[test]
    fn builder_sets_each_limit() {
        let limits = Limits::new().max_iterations(1).max_parallel_tools(2).max_concurrent_tools(3);
        let limits = limits.max_repeated_batch_steps(4).max_observation_steps(5);
        let limits = limits.max_stagnation_steps(6).max_repeated_failures(7);
        let limits = limits.tool_timeout(Duration::from_millis(8)).max_result_bytes(9);
        let limits = limits.memory_timeout(Duration::from_millis(10));
        let limits = limits.hook_timeout(Duration::from_millis(11));
        let limits = limits.store_timeout(Duration::from_millis(12));
        let expected = json!({
            "max_iterations": 1, "max_parallel_tools": 2, "max_concurrent_tools": 3,
            "max_repeated_batch_steps": 4, "max_observation_steps": 5, "max_stagnation_steps": 6,
            "max_repeated_failures": 7, "tool_timeout_ms": 8, "max_result_bytes": 9,
            "memory_timeout_ms": 10, "hook_timeout_ms": 11, "store_timeout_ms": 12,
        });
        assert_eq!(serde_json::to_value(limits).unwrap(), expected);
    }
}
