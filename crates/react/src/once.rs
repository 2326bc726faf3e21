//! Tools whose calls are made once across runs.

pub(crate) mod begun;
mod entry_texts;
mod ledger;
mod outcome;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, Limit};
use backstop_event_log::{EventLog, text_digest};
use backstop_redact::Redactor;
use backstop_tool::{
    Arguments, DispatchSpec, Probe, Schema, StateType, Tool, ToolContext, ToolError,
};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use layer0::error::StateError;
use layer0::event::DoneBefore;
use layer0::failure::{Chain, Effect, Failure};
use layer0::{JsonText, StateStore, ToolSpec, text};

use self::begun::{EndedCall, GiveUpGuard, warn_if_not_noted};
use self::ledger::{OnceClaim, OnceEntry, OnceLedger, WAIT};
use self::outcome::CallOutcome;
use crate::dispatch::{Dispatcher, PriorAnswer};
use crate::effect::guard::GuardedStore;

/// A tool whose calls are made once for each value of an argument, in all runs that share the state store. The answer
/// of the first call is also the answer of every later one, with a note in its `tool.responded`.
pub(crate) struct Once {
    tool: Arc<dyn Tool>,
    name: Arc<str>,
    /// JSON pointer to the argument.
    pointer: Arc<str>,
    /// Whether the tool has a probe.
    probes: bool,
    output: Option<Schema>,
    ledger: OnceLedger,
}

/// The state that all `once` calls of an agent share.
#[derive(Clone)]
pub(crate) struct OnceStores<'a> {
    pub(crate) state: &'a Arc<dyn StateStore>,
    pub(crate) log: Option<&'a Arc<dyn EventLog>>,
    pub(crate) clock: &'a Arc<dyn Clock>,
    pub(crate) redactor: &'a Redactor,
    /// Limit for an answer of the state store.
    pub(crate) patience: Duration,
}

impl Once {
    /// Wraps a tool whose spec names the argument that identifies a call.
    pub(crate) fn around(
        spec: &ToolSpec,
        tool: &Arc<dyn Tool>,
        stores: &OnceStores<'_>,
    ) -> Option<Arc<dyn Tool>> {
        let pointer = spec.once.clone()?;
        // An invalid schema was refused when the tool was added.
        let output = spec.output_schema.as_ref();
        let output = output.and_then(|schema| Schema::new(&schema.value()).ok());
        let store = GuardedStore::new(Arc::clone(stores.state), stores.patience, stores.clock);
        let ledger = OnceLedger {
            store: Arc::new(store),
            log: stores.log.cloned(),
            clock: Arc::clone(stores.clock),
            redactor: stores.redactor.clone(),
            keeps_arguments: spec.probe,
        };
        Some(Arc::new(Self {
            tool: Arc::clone(tool),
            name: Arc::clone(&spec.name),
            pointer,
            probes: spec.probe,
            output,
            ledger,
        }))
    }

    /// Returns the key of a call: the tool and the value, whose numbers are compared exactly.
    fn key(&self, arguments: &Arguments) -> Result<String, ToolError> {
        let value = arguments.text().pointer(&self.pointer);
        let value = value.filter(|value| value.get() != "null");
        let Some(value) = value else {
            let why = format!("`{}` says what is done once: it is required", self.pointer);
            return Err(ToolError::InvalidInput(why));
        };
        let digest = text_digest(value.exact_numbers().get());
        Ok(format!("once/{}/{digest}", self.name))
    }

    /// Claims the key of a call, or returns the entry of another call.
    async fn claim(
        &self,
        key: &str,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<OnceClaim, ToolError> {
        // time of day: the call has just been given its deadline, and the rest is measured.
        let left = context.deadline.since(self.ledger.clock.now());
        let limit = Limit::new(Arc::clone(&self.ledger.clock), Some(left));
        loop {
            let claim = self.ledger.claim(key, arguments.text(), (context, &limit)).await;
            let (entry, version, why) = match claim.map_err(|error| not_run(&error))? {
                OnceClaim::Elsewhere(entry, version, why) => (entry, version, why),
                claim => return Ok(claim),
            };
            let outcome = self.probe_other(key, &entry, arguments, (context, &limit)).await;
            let refused = done_elsewhere(&entry, why);
            if matches!(outcome, CallOutcome::Unknown(_) | CallOutcome::Running) {
                return Err(refused);
            }
            match self.ledger.settle(key, (*entry, version), outcome).await {
                Ok(()) | Err(StateError::Conflict { .. }) => {}
                Err(error) => return Err(not_run(&error)),
            }
        }
    }

    /// Probes the call of an entry, with its arguments and its id.
    async fn probe_other(
        &self,
        key: &str,
        entry: &OnceEntry,
        arguments: &Arguments,
        (context, limit): (&ToolContext, &Limit),
    ) -> CallOutcome {
        const UNKNOWN: CallOutcome = CallOutcome::Unknown("");
        if !self.probes {
            return UNKNOWN;
        }
        let (run, call) = (entry.run.clone(), entry.call_id.clone());
        let mut other = ToolContext::new(run, context.session.clone(), call, context.deadline);
        other.granted = Arc::clone(&context.granted);
        other.grants = context.grants.clone();
        other.redactor = context.redactor.clone();
        other.app_state.clone_from(&context.app_state);
        other.trace_parent.clone_from(&context.trace_parent);
        other.cancellation = context.cancellation.clone();
        let Ok(kept) = self.ledger.read_texts(key, entry).await else { return UNKNOWN };
        let kept = kept.arguments();
        let arguments = kept.map_or_else(|| arguments.clone(), Arguments::new);
        let asked = AssertUnwindSafe(async { self.tool.probe(&arguments, &other).await });
        let left = limit.time_left().unwrap_or_default().saturating_sub(WAIT);
        // The probe ends before this call is given up, which has not begun yet.
        let said = match select(Box::pin(asked.catch_unwind()), self.ledger.clock.sleep(left)).await
        {
            Either::Left((Ok(Ok(said)), _)) => said,
            Either::Left(_) | Either::Right(_) => return UNKNOWN,
        };
        read_probe(&said).unwrap_or(UNKNOWN)
    }

    /// Makes a call whose key is claimed, and has its outcome written.
    async fn make(
        &self,
        key: &str,
        version: u64,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let given_up = GiveUpGuard::new(&self.ledger, key, version, context);
        let result = self.tool.call(arguments, context).await;
        let Some(call) = given_up.disarm() else { return result };
        let outcome = match &result {
            // An output that does not fit is no answer for other calls, but the call was made.
            Ok(output) => {
                CallOutcome::Happened(Some(output.clone()).filter(|output| self.fits(output)))
            }
            Err(error) => match error.facts().effect {
                // Another call may be made.
                Effect::None => CallOutcome::DidNot,
                Effect::Happened => CallOutcome::Happened(None),
                Effect::Unknown => CallOutcome::Unknown(""),
            },
        };
        let ended = EndedCall::new(call, outcome);
        match Dispatcher::from_context(context) {
            // Its step writes it: a stop and the time limit of the call leave what the tool returned.
            Some(dispatcher) => dispatcher.end_once(ended),
            None => ended.note().await,
        }
        result
    }

    fn fits(&self, output: &JsonText) -> bool {
        self.output.as_ref().is_none_or(|schema| schema.check(&output.value()).is_ok())
    }
}

fn read_probe(probe: &Probe) -> Option<CallOutcome> {
    match probe {
        Probe::DidNot => Some(CallOutcome::DidNot),
        Probe::Happened(output) => Some(CallOutcome::Happened(output.clone())),
        _ => None,
    }
}

/// Returns the error of a call that was not made because the ledger cannot be read or written.
fn not_run(error: &StateError) -> ToolError {
    let failed = ToolError::ExecutionFailed(format!("not run: {}", Chain(error)));
    failed.with_code(error.code()).with_effect(Effect::None)
}

fn done_elsewhere(entry: &OnceEntry, why: &str) -> ToolError {
    let OnceEntry { run, call_id, .. } = entry;
    ToolError::DoneElsewhere(format!("it {why}. See to call {call_id} of run {run}"))
}

#[async_trait]
impl Tool for Once {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn needs(&self, arguments: &Arguments) -> Result<Vec<String>, ToolError> {
        self.tool.needs(arguments)
    }

    fn describe_denied_need(&self, arguments: &Arguments, need: &str) -> String {
        self.tool.describe_denied_need(arguments, need)
    }

    fn checks_arguments(&self) -> bool {
        self.tool.checks_arguments()
    }

    fn input_code(&self) -> Option<&str> {
        self.tool.input_code()
    }

    fn stores_errors(&self) -> bool {
        self.tool.stores_errors()
    }

    fn state_type(&self) -> Option<StateType> {
        self.tool.state_type()
    }

    fn dispatch(&self, arguments: &Arguments) -> Option<DispatchSpec> {
        self.tool.dispatch(arguments)
    }

    fn operator(&self) -> Option<&str> {
        self.tool.operator()
    }

    async fn proposal(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<Option<JsonText>, ToolError> {
        self.tool.proposal(arguments, context).await
    }

    /// Probes the tool, and writes the result before the run records it: the key of a call that did not happen is free
    /// when the model reads that it may call again.
    async fn probe(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<Probe, ToolError> {
        let said = self.tool.probe(arguments, context).await?;
        if let (Some(outcome), Ok(key)) = (read_probe(&said), self.key(arguments)) {
            let open = self.ledger.open_entry(&key, context).await;
            let settled = match open {
                Ok(Some(open)) => self.ledger.settle(&key, open, outcome).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            warn_if_not_noted(&key, settled);
        }
        Ok(said)
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let key = self.key(arguments)?;
        let entry = match self.claim(&key, arguments, context).await? {
            OnceClaim::Mine(version) => return self.make(&key, version, arguments, context).await,
            OnceClaim::Done(entry) => entry,
            OnceClaim::Elsewhere(entry, _, why) => return Err(done_elsewhere(&entry, why)),
        };
        let kept = self.ledger.read_texts(&key, &entry).await;
        let kept = kept.map_err(|error| not_run(&error))?.answer();
        let answer = kept.unwrap_or_else(|| JsonText::string(text::HAPPENED));
        let before = DoneBefore::new(entry.run.clone(), entry.call_id.clone());
        if let Some(dispatcher) = Dispatcher::from_context(context) {
            dispatcher.give_prior(PriorAnswer::Once(before));
        }
        Ok(answer)
    }
}
