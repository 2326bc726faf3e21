//! Shared state of all effects of a run.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use backstop_event_log::Lease;
use backstop_provider::ProviderError;
use layer0::Orchestrator;
use layer0::id::RunId;
use layer0::operator::{Caller, Signals};

use super::asks::Asks;
use super::late::Late;
use crate::agent::inner::AgentInner;
use crate::feed::StreamFeed;
use crate::hook::{HookContext, HookError};
use crate::place::DispatchContext;

/// Performs the steps of one run.
pub(crate) struct Effects {
    pub(super) agent: Arc<AgentInner>,
    pub(super) context: HookContext,
    /// Feed of the run's stream; `None` without a reader.
    pub(super) feed: Option<Arc<StreamFeed>>,
    pub(super) late: Arc<Late>,
    pub(super) asks: Arc<Asks>,
    /// Place of the run among other runs.
    pub(super) place: DispatchContext,
    /// The lease of the run's claim, if there is one.
    lease: OnceLock<Arc<dyn Lease>>,
    errors: LiveErrors,
}

/// The errors of steps with their sources. The record has them as data.
#[derive(Default)]
struct LiveErrors {
    model: Mutex<Option<ProviderError>>,
    hook: Mutex<Option<HookError>>,
}

impl Effects {
    pub(crate) fn new(
        agent: Arc<AgentInner>,
        context: HookContext,
        feed: Option<Arc<StreamFeed>>,
        place: DispatchContext,
    ) -> Self {
        let (late, asks, errors) = (Arc::default(), Arc::default(), LiveErrors::default());
        Self { agent, context, feed, late, asks, place, lease: OnceLock::new(), errors }
    }

    pub(crate) const fn run(&self) -> &RunId {
        &self.context.run
    }

    /// Restricts actions to the time of a lease. Only the first call has an effect.
    pub(crate) fn act_under(&self, lease: Arc<dyn Lease>) {
        // A run has one journal, which has one claim.
        let _is_first = self.lease.set(lease);
    }

    pub(super) fn lease(&self) -> Option<&Arc<dyn Lease>> {
        self.lease.get()
    }

    /// Returns the late answers of tools that were given up.
    pub(crate) fn late(&self) -> &Late {
        &self.late
    }

    /// Returns the requests of steps to the run.
    pub(crate) fn asks(&self) -> &Asks {
        &self.asks
    }

    /// Returns the orchestrator that the run's tools dispatch through.
    pub(crate) fn orchestrator(&self) -> Option<&Arc<dyn Orchestrator>> {
        self.place.orchestrator.as_ref()
    }

    /// Returns the caller that gets reports on the run.
    pub(crate) fn caller(&self) -> Option<&Arc<dyn Caller>> {
        self.place.caller.as_ref()
    }

    /// Returns the signals of the caller in this process.
    pub(crate) fn signals(&self) -> Option<&Signals> {
        self.place.signals.as_ref()
    }

    /// Takes the error of the last model attempt in this process.
    pub(crate) fn take_model_error(&self) -> Option<ProviderError> {
        self.errors.model.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes the error of the hook that stopped the run in this process.
    pub(crate) fn take_hook_error(&self) -> Option<HookError> {
        self.errors.hook.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn keep_model_error(&self, error: ProviderError) {
        *self.errors.model.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    pub(super) fn keep_hook_error(&self, error: HookError) {
        *self.errors.hook.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}
