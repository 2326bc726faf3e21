//! The ledger of calls that are made once: an entry for each key, in the state store.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, Limit};
use backstop_event_log::EventLog;
use backstop_redact::Redactor;
use backstop_tool::ToolContext;
use layer0::error::StateError;
use layer0::failure::Chain;
use layer0::id::{CallId, RunId};
use layer0::state::{Expected, Scope, StateWrite};
use layer0::{JsonText, StateStore};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::entry_texts::{EntryTexts, OlderTexts};
use super::outcome::{CallOutcome, outcome_in};
use crate::effect::guard::GuardedStore;

/// Delay between two checks of a call that another run makes.
pub(super) const WAIT: Duration = Duration::from_millis(100);
/// Number of checks between two queries whether the other run's process is alive.
const LOOKS: u32 = 10;

/// The entries of all keys.
#[derive(Clone)]
pub(super) struct OnceLedger {
    pub(super) store: Arc<GuardedStore<dyn StateStore>>,
    /// The log of the runs that make the calls.
    pub(super) log: Option<Arc<dyn EventLog>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) redactor: Redactor,
    /// Whether the arguments of a call are kept, for a probe by another call.
    pub(super) keeps_arguments: bool,
}

/// The entry of one call, with its state. It contains nothing about the subject of the call, and stays when the run is
/// removed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OnceEntry {
    pub(super) run: RunId,
    pub(super) call_id: CallId,
    pub(super) state: EntryState,
    /// The texts, if an older version wrote them into the entry.
    #[serde(flatten, skip_serializing)]
    texts: OlderTexts,
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
pub(super) enum OnceClaim {
    /// Another call of unknown end has the key; the version is that of its entry.
    Elsewhere(Box<OnceEntry>, u64, &'static str),
    /// The call was made before.
    Done(Box<OnceEntry>),
    /// This call has the key; the version is that of its entry.
    Mine(u64),
}

impl OnceEntry {
    fn new(context: &ToolContext, state: EntryState) -> Self {
        let (run, call_id) = (context.run.clone(), context.call_id.clone());
        Self { run, call_id, state, texts: OlderTexts::default() }
    }

    fn belongs_to(&self, context: &ToolContext) -> bool {
        self.run == context.run && self.call_id == context.call_id
    }
}

impl OnceLedger {
    /// Claims a key for a call, or returns the entry of another call. Waits while that call is running.
    pub(super) async fn claim(
        &self,
        key: &str,
        arguments: &JsonText,
        (context, limit): (&ToolContext, &Limit),
    ) -> Result<OnceClaim, StateError> {
        let (mut expected, mut looks) = (Some(Expected::Absent), 0);
        loop {
            if let Some(expected) = expected.take() {
                match self.begin(key, expected, arguments, context).await {
                    Err(StateError::Conflict { .. }) => {}
                    begun => return begun.map(OnceClaim::Mine),
                }
            }
            let Some((entry, version)) = self.read(key).await? else {
                expected = Some(Expected::Absent);
                continue;
            };
            if entry.state == EntryState::Done {
                return Ok(OnceClaim::Done(Box::new(entry)));
            }
            if entry.belongs_to(context) {
                // The runtime repeats its own call, and knows that it may.
                expected = Some(Expected::Version(version));
                continue;
            }
            looks += 1;
            let asks = looks % LOOKS == 1;
            let outcome = self.outcome(&entry, asks, context).await;
            let outcome = match outcome {
                CallOutcome::Running if limit.time_left().is_some_and(|left| left <= WAIT) => {
                    CallOutcome::Unknown("has begun before, and its end is not known")
                }
                outcome => outcome,
            };
            match outcome {
                CallOutcome::Running => self.clock.sleep(WAIT).await,
                CallOutcome::DidNot => expected = Some(Expected::Version(version)),
                CallOutcome::Unknown(why) => {
                    return Ok(OnceClaim::Elsewhere(Box::new(entry), version, why));
                }
                CallOutcome::Happened(output) => {
                    match self.finish(key, entry, version, output).await {
                        Err(StateError::Conflict { .. }) => {}
                        finished => return finished.map(|entry| OnceClaim::Done(Box::new(entry))),
                    }
                }
            }
        }
    }

    /// Returns the outcome of the call of an entry: from its record, or else from the entry.
    async fn outcome(&self, entry: &OnceEntry, asks: bool, context: &ToolContext) -> CallOutcome {
        const FAILED: CallOutcome = CallOutcome::Unknown("failed before, and may have acted");
        if let (Some(log), true) = (&self.log, asks) {
            let own = entry.run == context.run;
            match outcome_in(&**log, &entry.run, &entry.call_id, own).await {
                Ok(CallOutcome::Running) => {}
                Ok(outcome) => return outcome,
                // The entry's state is used instead.
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

    async fn read(&self, key: &str) -> Result<Option<(OnceEntry, u64)>, StateError> {
        let Some(found) = self.store.read(&Scope::Global, key).await? else { return Ok(None) };
        let entry = found
            .value
            .read()
            .map_err(|error| StateError::Serialization(format!("`{key}`: {error}")))?;
        Ok(Some((entry, found.version)))
    }

    async fn write(
        &self,
        key: &str,
        expected: Expected,
        entry: &OnceEntry,
    ) -> Result<u64, StateError> {
        let write = StateWrite::new(Scope::Global, key, json!(entry)).expecting(expected);
        self.store.write(write).await
    }

    /// Reads the texts of an entry; empty if they were removed with their run.
    pub(super) async fn read_texts(
        &self,
        key: &str,
        entry: &OnceEntry,
    ) -> Result<EntryTexts, StateError> {
        let found = self.store.read(&Scope::Run(entry.run.clone()), key).await?;
        let texts = found.and_then(|found| found.value.read().ok());
        Ok(texts.unwrap_or_else(|| (&entry.texts).into()))
    }

    /// Writes the texts of a call. Texts that are too large are left out: the entry itself is more important.
    async fn write_texts(
        &self,
        key: &str,
        run: &RunId,
        texts: &EntryTexts,
    ) -> Result<(), StateError> {
        let scope = Scope::Run(run.clone());
        let texts = texts.to_json();
        let texts = texts.map_err(|error| StateError::Serialization(error.to_string()));
        let written = match texts {
            Ok(texts) => self.store.write(StateWrite::new(scope, key, texts)).await,
            Err(error) => Err(error),
        };
        match written {
            Err(StateError::TooLarge { .. } | StateError::Serialization(_)) => Ok(()),
            written => written.map(drop),
        }
    }

    /// Removes the texts of a call whose run was removed while they were written.
    async fn remove_orphans(&self, key: &str, run: &RunId) -> Result<(), StateError> {
        let Some(log) = &self.log else { return Ok(()) };
        if let Ok(None) = log.summary(run).await {
            self.store.delete(&Scope::Run(run.clone()), key, Expected::Any).await?;
        }
        Ok(())
    }

    async fn begin(
        &self,
        key: &str,
        expected: Expected,
        arguments: &JsonText,
        context: &ToolContext,
    ) -> Result<u64, StateError> {
        let version =
            self.write(key, expected, &OnceEntry::new(context, EntryState::Begun)).await?;
        if self.keeps_arguments {
            let arguments = arguments.clone();
            let texts = EntryTexts::from_arguments(&context.call_id, &self.redactor, arguments);
            if let Err(error) = self.write_texts(key, &context.run, &texts).await {
                // They are only needed for a probe.
                let (run, error) = (&context.run, Chain(&error));
                tracing::warn!(%run, %error, "the arguments of a call made once were not kept");
            }
        }
        Ok(version)
    }

    /// Marks the call of an entry as made. If its run was removed meanwhile, the answer is removed too.
    pub(super) async fn finish(
        &self,
        key: &str,
        entry: OnceEntry,
        version: u64,
        output: Option<JsonText>,
    ) -> Result<OnceEntry, StateError> {
        let has_texts = output.is_some();
        let entry = self.write_done(key, entry, version, output).await?;
        if has_texts {
            self.remove_orphans(key, &entry.run).await?;
        }
        Ok(entry)
    }

    /// Writes the answer first, so that a done entry always has it.
    async fn write_done(
        &self,
        key: &str,
        mut entry: OnceEntry,
        version: u64,
        output: Option<JsonText>,
    ) -> Result<OnceEntry, StateError> {
        (entry.state, entry.texts) = (EntryState::Done, OlderTexts::default());
        if let Some(output) = output {
            let texts = EntryTexts::from_output(&entry.call_id, &self.redactor, output);
            self.write_texts(key, &entry.run, &texts).await?;
        }
        self.write(key, Expected::Version(version), &entry).await?;
        Ok(entry)
    }

    /// Marks a call as made, on behalf of the call itself.
    pub(super) async fn note_done(
        &self,
        key: &str,
        version: u64,
        context: &ToolContext,
        output: Option<JsonText>,
    ) -> Result<(), StateError> {
        let entry = OnceEntry::new(context, EntryState::Done);
        self.write_done(key, entry, version, output).await.map(drop)
    }

    /// Marks a call as failed or given up; it may have acted.
    pub(super) async fn note_failed(
        &self,
        key: &str,
        version: u64,
        context: &ToolContext,
    ) -> Result<(), StateError> {
        let entry = OnceEntry::new(context, EntryState::Failed);
        self.write(key, Expected::Version(version), &entry).await.map(drop)
    }

    /// Frees the key of a call that did not happen.
    pub(super) async fn free(&self, key: &str, version: u64) -> Result<(), StateError> {
        self.store.delete(&Scope::Global, key, Expected::Version(version)).await.map(drop)
    }

    /// Returns the entry of a call, if the call still has the key and its end is open.
    pub(super) async fn open_entry(
        &self,
        key: &str,
        context: &ToolContext,
    ) -> Result<Option<(OnceEntry, u64)>, StateError> {
        let found = self.read(key).await?;
        Ok(found.filter(|(entry, _)| entry.belongs_to(context) && entry.state != EntryState::Done))
    }

    /// Writes the result of a probe, or a person's settlement, for the call of an entry.
    pub(super) async fn settle(
        &self,
        key: &str,
        (entry, version): (OnceEntry, u64),
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

#[cfg(test)]
mod tests {
    use backstop_clock::SystemClock;
    use backstop_state::MemoryStateStore;

    use super::*;

    /// Writes a text as arguments and output of a call, and checks that both are read back.
    async fn check_kept(text: &str) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let store: Arc<dyn StateStore> = Arc::new(MemoryStateStore::new());
        let ledger = OnceLedger {
            store: Arc::new(GuardedStore::new(store, Duration::from_secs(5), &clock)),
            log: None,
            clock,
            redactor: Redactor::new(),
            keeps_arguments: true,
        };
        let (run, call_id) = (RunId::from("run_1"), CallId::from("c"));
        let entry =
            OnceEntry { run, call_id, state: EntryState::Begun, texts: OlderTexts::default() };
        let said = JsonText::parse(text).unwrap();
        let answered = EntryTexts::from_output(&entry.call_id, &ledger.redactor, said.clone());
        let begun = EntryTexts::from_arguments(&entry.call_id, &ledger.redactor, said.clone());
        for (texts, is_answered) in [(begun, false), (answered, true)] {
            ledger.write_texts("once/pay/a", &entry.run, &texts).await.unwrap();
            let scope = Scope::Run(entry.run.clone());
            let stored = ledger.store.read(&scope, "once/pay/a").await.unwrap().unwrap();
            assert_eq!(stored.value.value()["call_id"], "c", "it is found by an erasure");
            let read = ledger.read_texts("once/pay/a", &entry).await.unwrap();
            let texts =
                if is_answered { (None, Some(said.clone())) } else { (Some(said.clone()), None) };
            assert_eq!((read.arguments(), read.answer()), texts);
        }
    }

    /// Spec: T16, P12. A probe is given the arguments that the call had.
    #[tokio::test]
    async fn texts_keep_numbers_as_written() {
        check_kept(r#"{"amount":1.10,"id":123456789012345678901234567890}"#).await;
    }

    /// Spec: T16. `null` is an answer.
    #[tokio::test]
    async fn texts_keep_null() {
        check_kept("null").await;
    }

    /// Spec: T16, P12. The deepest answer that a tool may give is kept.
    #[tokio::test]
    async fn texts_keep_the_deepest_answer() {
        for levels in [98, 99, 100] {
            check_kept(&format!("{}1.10{}", "[".repeat(levels), "]".repeat(levels))).await;
        }
    }
}
