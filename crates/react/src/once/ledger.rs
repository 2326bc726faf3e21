//! The ledger of calls that are made once: an entry for each key, in the state store.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::EventLog;
use backstop_redact::Redactor;
use backstop_tool::ToolContext;
use layer0::error::StateError;
use layer0::failure::Chain;
use layer0::id::{CallId, RunId};
use layer0::state::{Expected, Scope, StateWrite};
use layer0::{JsonText, StateStore};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::outcome::{CallOutcome, outcome_in};

/// The delay between two checks of a call that another run makes.
pub(super) const WAIT: Duration = Duration::from_millis(100);
/// The number of checks between two that ask whether the process of that run is alive.
const LOOKS: u32 = 10;

/// The entries of all keys.
#[derive(Clone)]
pub(super) struct OnceLedger {
    pub(super) store: Arc<dyn StateStore>,
    /// The log of the runs that make the calls.
    pub(super) log: Option<Arc<dyn EventLog>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) redactor: Redactor,
}

/// An entry: one call, and what became of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) run: RunId,
    pub(super) call_id: CallId,
    pub(super) state: EntryState,
    /// The arguments, for a probe by another call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    /// The output, where a tree holds it without a loss.
    output: Option<Value>,
    /// The output as text, where a tree would change its numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EntryState {
    /// It is running, or its process died.
    Begun,
    Done,
    /// It failed or was given up, and may have acted.
    Failed,
}

/// The answer of the ledger to a claim.
pub(super) enum Claim {
    /// Another call has it, whose end is not known; the version is that of its entry.
    Elsewhere(Box<Entry>, u64, &'static str),
    /// The call was made before.
    Done(Box<Entry>),
    /// The call is this run's to make; the version is that of its entry.
    Mine(u64),
}

impl Entry {
    fn new(context: &ToolContext, state: EntryState) -> Self {
        let (run, call_id) = (context.run.clone(), context.call_id.clone());
        Self { run, call_id, state, arguments: None, output: None, text: None }
    }

    fn is_of(&self, context: &ToolContext) -> bool {
        self.run == context.run && self.call_id == context.call_id
    }

    /// Makes it done, with what it answered.
    fn done(mut self, redactor: &Redactor, output: Option<JsonText>) -> Self {
        (self.state, self.arguments) = (EntryState::Done, None);
        // As text that is redacted later, a secret would run into its escapes.
        let Some(output) = output.map(|output| redactor.redact_held_json(output)) else {
            return self;
        };
        match output.value() {
            value if JsonText::from(&value).get() == output.get() => self.output = Some(value),
            _ => self.text = Some(output.get().to_owned()),
        }
        self
    }

    /// Returns what the call answered; `None` where that is not known.
    pub(super) fn answer(&self) -> Option<JsonText> {
        match (&self.text, &self.output) {
            (Some(text), _) => JsonText::parse(text).ok().or_else(|| Some(JsonText::string(text))),
            (None, output) => output.as_ref().map(JsonText::from),
        }
    }

    /// Returns the arguments of the call, where they were kept.
    pub(super) fn arguments(&self) -> Option<JsonText> {
        self.arguments.as_ref().map(JsonText::from)
    }
}

impl OnceLedger {
    /// Claims a key for a call, or returns what another call has made of it. Waits while that one is running.
    pub(super) async fn claim(
        &self,
        key: &str,
        arguments: &JsonText,
        context: &ToolContext,
    ) -> Result<Claim, StateError> {
        let (mut expected, mut looks) = (Some(Expected::Absent), 0);
        loop {
            if let Some(expected) = expected.take() {
                match self.begin(key, expected, arguments, context).await {
                    Err(StateError::Conflict { .. }) => {}
                    begun => return begun.map(Claim::Mine),
                }
            }
            let Some((entry, version)) = self.read(key).await? else {
                expected = Some(Expected::Absent);
                continue;
            };
            if entry.state == EntryState::Done {
                return Ok(Claim::Done(Box::new(entry)));
            }
            if entry.is_of(context) {
                // The runtime makes it again: it knows that it may.
                expected = Some(Expected::Version(version));
                continue;
            }
            looks += 1;
            let asks = looks % LOOKS == 1;
            let outcome = self.outcome(&entry, asks, context).await;
            let outcome = match outcome {
                CallOutcome::Running if context.deadline <= self.clock.now().after(WAIT) => {
                    CallOutcome::Unknown("has begun before, and its end is not known")
                }
                outcome => outcome,
            };
            match outcome {
                CallOutcome::Running => self.clock.sleep(WAIT).await,
                CallOutcome::DidNot => expected = Some(Expected::Version(version)),
                CallOutcome::Unknown(why) => {
                    return Ok(Claim::Elsewhere(Box::new(entry), version, why));
                }
                CallOutcome::Happened(output) => {
                    match self.finish(key, entry, version, output).await {
                        Err(StateError::Conflict { .. }) => {}
                        finished => return finished.map(|entry| Claim::Done(Box::new(entry))),
                    }
                }
            }
        }
    }

    /// Returns what became of the call of an entry: as its record says, else as the entry does.
    async fn outcome(&self, entry: &Entry, asks: bool, context: &ToolContext) -> CallOutcome {
        const FAILED: CallOutcome = CallOutcome::Unknown("failed before, and may have acted");
        if let (Some(log), true) = (&self.log, asks) {
            let own = entry.run == context.run;
            match outcome_in(&**log, &entry.run, &entry.call_id, own).await {
                Ok(CallOutcome::Running) => {}
                Ok(outcome) => return outcome,
                // The entry says what it says.
                Err(error) => {
                    let (run, error) = (&entry.run, Chain(&error));
                    tracing::warn!(%run, %error, "what became of a call made once cannot be read");
                }
            }
        }
        match entry.state {
            EntryState::Failed => FAILED,
            _ => CallOutcome::Running,
        }
    }

    async fn read(&self, key: &str) -> Result<Option<(Entry, u64)>, StateError> {
        let Some(found) = self.store.read(&Scope::Global, key).await? else { return Ok(None) };
        let entry = serde_json::from_value(found.value)
            .map_err(|error| StateError::Serialization(format!("`{key}`: {error}")))?;
        Ok(Some((entry, found.version)))
    }

    async fn write(&self, key: &str, expected: Expected, entry: &Entry) -> Result<u64, StateError> {
        let write = StateWrite::new(Scope::Global, key, json!(entry)).expecting(expected);
        self.store.write(write).await
    }

    async fn begin(
        &self,
        key: &str,
        expected: Expected,
        arguments: &JsonText,
        context: &ToolContext,
    ) -> Result<u64, StateError> {
        let mut entry = Entry::new(context, EntryState::Begun);
        entry.arguments = Some(self.redactor.redact_held_json(arguments.clone()).value());
        match self.write(key, expected, &entry).await {
            // They serve a probe only.
            Err(StateError::TooLarge { .. } | StateError::Serialization(_)) => {
                entry.arguments = None;
                self.write(key, expected, &entry).await
            }
            begun => begun,
        }
    }

    /// Writes down that the call of an entry was made.
    pub(super) async fn finish(
        &self,
        key: &str,
        entry: Entry,
        version: u64,
        output: Option<JsonText>,
    ) -> Result<Entry, StateError> {
        let mut entry = entry.done(&self.redactor, output);
        let expected = Expected::Version(version);
        match self.write(key, expected, &entry).await {
            // That it was made is worth more than what it answered.
            Err(StateError::TooLarge { .. } | StateError::Serialization(_)) => {
                (entry.output, entry.text) = (None, None);
                self.write(key, expected, &entry).await?;
            }
            finished => drop(finished?),
        }
        Ok(entry)
    }

    /// Writes down that a call was made, by the call itself.
    pub(super) async fn note_done(
        &self,
        key: &str,
        version: u64,
        context: &ToolContext,
        output: Option<JsonText>,
    ) -> Result<(), StateError> {
        let entry = Entry::new(context, EntryState::Done);
        self.finish(key, entry, version, output).await.map(drop)
    }

    /// Writes down that a call failed or was given up, and may have acted.
    pub(super) async fn note_failed(
        &self,
        key: &str,
        version: u64,
        arguments: &JsonText,
        context: &ToolContext,
    ) -> Result<(), StateError> {
        let mut entry = Entry::new(context, EntryState::Failed);
        entry.arguments = Some(self.redactor.redact_held_json(arguments.clone()).value());
        self.write(key, Expected::Version(version), &entry).await.map(drop)
    }

    /// Frees a key whose call did not happen.
    pub(super) async fn free(&self, key: &str, version: u64) -> Result<(), StateError> {
        self.store.delete(&Scope::Global, key, Expected::Version(version)).await.map(drop)
    }

    /// Returns the entry of a call, where the key is still this one's and its end is open.
    pub(super) async fn open_entry(
        &self,
        key: &str,
        context: &ToolContext,
    ) -> Result<Option<(Entry, u64)>, StateError> {
        let found = self.read(key).await?;
        Ok(found.filter(|(entry, _)| entry.is_of(context) && entry.state != EntryState::Done))
    }

    /// Writes down what a probe or a person says of the call of an entry.
    pub(super) async fn settle(
        &self,
        key: &str,
        (entry, version): (Entry, u64),
        outcome: CallOutcome,
    ) -> Result<(), StateError> {
        match outcome {
            CallOutcome::Happened(output) => {
                self.finish(key, entry, version, output).await.map(drop)
            }
            CallOutcome::DidNot => self.free(key, version).await,
            CallOutcome::Running | CallOutcome::Unknown(_) => Ok(()),
        }
    }
}
