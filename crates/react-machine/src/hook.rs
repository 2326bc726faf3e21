//! Where in a run other people's code is called.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Where in a run a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HookPoint {
    /// After `run.started`, before the input is looked at.
    RunStart,
    /// Before the model is asked.
    BeforeModel,
    /// After the model answered, before the guards look at the answer.
    AfterModel,
    /// For gates: before a call is looked at. For observers: before an admitted call runs.
    BeforeTool,
    /// After a tool ran, before its answer is logged.
    AfterTool,
    /// After a signal was recorded that is neither `cancel` nor `input`; the run goes on meanwhile.
    Signal,
    /// Before the last event of the run.
    RunEnd,
}

impl HookPoint {
    /// Returns the text that stands in events and scenario files.
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

/// What an agent's definition says of a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HookRecord {
    /// Its name.
    pub name: Arc<str>,
    /// Where it is called.
    pub points: Vec<HookPoint>,
    /// Does the run go on when it fails?
    pub fail_open: bool,
}

impl HookRecord {
    /// Makes the record of a hook.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, points: Vec<HookPoint>, fail_open: bool) -> Self {
        Self { name: name.into(), points, fail_open }
    }
}
