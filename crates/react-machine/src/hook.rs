//! The points of a run at which hooks are called.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A point of a run at which hooks are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HookPoint {
    /// After `run.started`, before the input is checked.
    RunStart,
    /// Before a model call.
    BeforeModel,
    /// After the model answered, before the guards check the answer.
    AfterModel,
    /// For gates: before a call is checked. For observers: before an admitted call runs.
    BeforeTool,
    /// After a tool ran, before its answer is logged.
    AfterTool,
    /// After a signal other than `cancel` and `input` was recorded; the run continues meanwhile.
    Signal,
    /// Before the last event of the run.
    RunEnd,
}

impl HookPoint {
    /// Returns the text used in events and scenario files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RunStart => "run_start",
            Self::BeforeModel => "before_model",
            Self::AfterModel => "after_model",
            Self::BeforeTool => "before_tool",
            Self::AfterTool => "after_tool",
            Self::Signal => "signal",
            Self::RunEnd => "run_end",
        }
    }
}

/// The record of a hook in an agent's definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HookRecord {
    /// Name of the hook.
    pub name: Arc<str>,
    /// Points at which it is called.
    pub points: Vec<HookPoint>,
    /// Whether the run continues when it fails.
    pub fail_open: bool,
}

impl HookRecord {
    /// Returns the record of a hook.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, points: Vec<HookPoint>, fail_open: bool) -> Self {
        Self { name: name.into(), points, fail_open }
    }
}
