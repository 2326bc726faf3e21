//! Calls that are made once and have begun: their outcome is written however they end.

use std::sync::Arc;

use backstop_tool::ToolContext;
use layer0::error::StateError;

use super::ledger::OnceLedger;
use super::outcome::CallOutcome;

/// Guard of a call: when dropped before the end of the call, writes that it was given up.
pub(super) struct GiveUpGuard(Option<Box<BegunCall>>);

/// A call that ended, and whose outcome is not written yet.
pub(crate) struct EndedCall {
    call: Box<BegunCall>,
    outcome: CallOutcome,
}

impl EndedCall {
    pub(super) const fn new(call: Box<BegunCall>, outcome: CallOutcome) -> Self {
        Self { call, outcome }
    }

    /// Writes the outcome.
    pub(crate) async fn note(self) {
        let BegunCall { ledger, key, version, context } = *self.call;
        let noted = match self.outcome {
            CallOutcome::Happened(output) => {
                ledger.note_done(&key, version, &context, output).await
            }
            CallOutcome::DidNot => ledger.free(&key, version).await,
            CallOutcome::Running | CallOutcome::Unknown(_) => {
                ledger.note_failed(&key, version, &context).await
            }
        };
        warn_if_not_noted(&key, noted);
    }
}

/// A call whose key is claimed.
pub(super) struct BegunCall {
    ledger: OnceLedger,
    key: String,
    version: u64,
    context: ToolContext,
}

impl GiveUpGuard {
    pub(super) fn new(ledger: &OnceLedger, key: &str, version: u64, context: &ToolContext) -> Self {
        let (ledger, key, context) = (ledger.clone(), key.to_owned(), context.clone());
        Self(Some(Box::new(BegunCall { ledger, key, version, context })))
    }

    pub(super) fn disarm(mut self) -> Option<Box<BegunCall>> {
        self.0.take()
    }
}

impl Drop for GiveUpGuard {
    fn drop(&mut self) {
        let Some(call) = self.0.take() else { return };
        // Without a runtime, the record has the outcome.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let clock = Arc::clone(&call.ledger.clock);
        runtime.spawn(clock.track(Box::pin(async move {
            let BegunCall { ledger, key, version, context } = *call;
            let noted = ledger.note_failed(&key, version, &context).await;
            warn_if_not_noted(&key, noted);
        })));
    }
}

pub(super) fn warn_if_not_noted(key: &str, noted: Result<(), StateError>) {
    if let Err(error) = noted {
        // The entry stays begun: no other call is made before the record or a person settles it.
        tracing::warn!(key, %error, "what became of a call that is made once was not noted");
    }
}
