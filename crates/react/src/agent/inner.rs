//! What an agent is made of, shared by its clones and its runs.

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

pub(crate) struct Inner {
    pub(crate) definition: CheckedDefinition,
    pub(crate) record: LazyRecord,
    /// What it declares of its input and its answer; few agents do.
    pub(crate) schemas: Option<Box<Schemas>>,
    pub(crate) models: ModelStack,
    /// Are answers asked for in pieces?
    pub(crate) stream: bool,
    pub(crate) retry: RetryConfig,
    pub(crate) jitter: Jitter,
    pub(crate) settings: ModelSettings,
    pub(crate) tools: Toolset,
    /// What it has of elsewhere; few agents have.
    pub(crate) outside: Option<Box<Outside>>,
    pub(crate) grants: Grants,
    pub(crate) log: Option<Arc<dyn EventLog>>,
    /// The transcripts of sessions in the log.
    pub(crate) transcripts: TranscriptCache,
    pub(crate) stores: Stores,
    /// What it may spend together with other runs; few agents have such limits.
    pub(crate) spend_limits: Option<Box<SpendLimits>>,
    pub(crate) memory: Option<Arc<dyn Memory>>,
    pub(crate) app_state: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) hooks: Box<[Hook]>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) redactor: Redactor,
    pub(crate) hub: Arc<Hub>,
}

/// What an agent has of elsewhere, and what is wrong around it.
#[derive(Clone, Default)]
pub(crate) struct Outside {
    /// Where some of the tools come from.
    pub(crate) sources: Vec<Arc<dyn ToolSource>>,
    /// What each run says at its start.
    pub(crate) warnings: Vec<Arc<str>>,
}

impl Outside {
    /// Returns it, where there is anything.
    pub(crate) fn boxed(self) -> Option<Box<Self>> {
        (!self.sources.is_empty() || !self.warnings.is_empty()).then(|| Box::new(self))
    }
}

/// What the agent declares of its input and its answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schemas {
    pub(crate) input: Option<Arc<Value>>,
    pub(crate) output: Option<Arc<Value>>,
}

impl Schemas {
    /// Returns them, where there is one.
    pub(crate) fn boxed(self) -> Option<Box<Self>> {
        (self.input.is_some() || self.output.is_some()).then(|| Box::new(self))
    }
}

/// What `run.started` says of the agent, made for the first run: an agent that was never run does not
/// hold it.
#[derive(Default)]
pub(crate) struct LazyRecord(OnceLock<Box<Resolved>>);

impl Inner {
    /// Returns the schema that the input of a dispatch has to fit.
    pub(crate) fn input_schema(&self) -> Option<&Value> {
        self.schemas.as_ref()?.input.as_deref()
    }

    /// Returns the schema that answers fit, where a run asks for no other.
    pub(crate) fn output_schema(&self) -> Option<&Arc<Value>> {
        self.schemas.as_ref()?.output.as_ref()
    }

    /// Returns where some of the tools come from.
    pub(crate) fn sources(&self) -> &[Arc<dyn ToolSource>] {
        self.outside.as_ref().map_or(&[], |outside| &outside.sources)
    }

    /// Returns what each run says at its start.
    pub(crate) fn warnings(&self) -> &[Arc<str>] {
        self.outside.as_ref().map_or(&[], |outside| &outside.warnings)
    }

    /// Returns what `run.started` says of the agent.
    pub(crate) fn record(&self) -> Resolved {
        let record = self.record.0.get_or_init(|| Box::new(record(&self.definition)));
        Resolved::clone(record)
    }

    /// Returns how long a store may take over one call.
    pub(crate) fn store_timeout(&self) -> Duration {
        Duration::from_millis(self.definition.limits.store_timeout_ms)
    }
}
