//! State of an agent, shared by its clones and its runs.

use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::EventLog;
use backstop_provider::ModelSettings;
use backstop_react_machine::CheckedDefinition;
use backstop_redact::Redactor;
use backstop_retry::{Jitter, RetryConfig};
use backstop_tool::{Grants, ToolSource, Toolset};
use serde_json::Value;

use crate::approval::Approver;
use crate::hook::Hook;
use crate::live::Hub;
use crate::memory::Memory;
use crate::pool::ModelStack;
use crate::record::digest::{Resolved, record};
use crate::record::transcript_cache::TranscriptCache;
use crate::spend_limits::SpendLimits;
use crate::stores::Stores;

pub(crate) struct AgentInner {
    pub(crate) definition: CheckedDefinition,
    pub(crate) record: LazyRecord,
    /// The declared schemas; boxed because few agents have any.
    pub(crate) schemas: Option<Box<Schemas>>,
    pub(crate) models: ModelStack,
    /// Whether answers are streamed.
    pub(crate) stream: bool,
    pub(crate) retry: RetryConfig,
    pub(crate) jitter: Jitter,
    pub(crate) settings: ModelSettings,
    pub(crate) tools: Toolset,
    /// Tool sources and warnings; boxed because few agents have any.
    pub(crate) outside: Option<Box<ExternalSources>>,
    pub(crate) grants: Grants,
    pub(crate) log: Option<Arc<dyn EventLog>>,
    /// The transcripts of sessions in the log.
    pub(crate) transcripts: TranscriptCache,
    pub(crate) stores: Stores,
    /// Its spend limits; boxed because few agents have any.
    pub(crate) spend_limits: Option<Box<SpendLimits>>,
    pub(crate) memory: Option<Arc<dyn Memory>>,
    pub(crate) app_state: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) hooks: Box<[Hook]>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) redactor: Redactor,
    pub(crate) hub: Arc<Hub>,
}

/// Tool sources of an agent, and warnings about it.
#[derive(Clone, Default)]
pub(crate) struct ExternalSources {
    /// Sources of some of the tools.
    pub(crate) sources: Vec<Arc<dyn ToolSource>>,
    /// Warnings that each run records at its start.
    pub(crate) warnings: Vec<Arc<str>>,
}

impl ExternalSources {
    /// Returns it in a box, unless it is empty.
    pub(crate) fn into_box(self) -> Option<Box<Self>> {
        (!self.sources.is_empty() || !self.warnings.is_empty()).then(|| Box::new(self))
    }
}

/// The declared schemas of the input and the answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schemas {
    pub(crate) input: Option<Arc<Value>>,
    pub(crate) output: Option<Arc<Value>>,
}

impl Schemas {
    /// Returns them in a box, unless there is none.
    pub(crate) fn into_box(self) -> Option<Box<Self>> {
        (self.input.is_some() || self.output.is_some()).then(|| Box::new(self))
    }
}

/// The recorded form of the agent for `run.started`, made for the first run: an agent that is never run does not hold
/// it.
#[derive(Default)]
pub(crate) struct LazyRecord(OnceLock<Box<Resolved>>);

impl AgentInner {
    /// Returns the schema of the input of a dispatch.
    pub(crate) fn input_schema(&self) -> Option<&Value> {
        self.schemas.as_ref()?.input.as_deref()
    }

    /// Returns the schema of answers, for runs that do not set another one.
    pub(crate) fn output_schema(&self) -> Option<&Arc<Value>> {
        self.schemas.as_ref()?.output.as_ref()
    }

    /// Returns the sources of some of the tools.
    pub(crate) fn sources(&self) -> &[Arc<dyn ToolSource>] {
        self.outside.as_ref().map_or(&[], |outside| &outside.sources)
    }

    /// Returns the warnings that each run records at its start.
    pub(crate) fn warnings(&self) -> &[Arc<str>] {
        self.outside.as_ref().map_or(&[], |outside| &outside.warnings)
    }

    /// Returns the recorded form of the agent for `run.started`.
    pub(crate) fn record(&self) -> Resolved {
        let record = self.record.0.get_or_init(|| Box::new(record(&self.definition)));
        Resolved::clone(record)
    }

    /// Returns the timeout of one call of a store.
    pub(crate) fn store_timeout(&self) -> Duration {
        Duration::from_millis(self.definition.limits.store_timeout_ms)
    }
}
