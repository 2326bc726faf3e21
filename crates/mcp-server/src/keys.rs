//! Keys by which a call that is made again is known.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::text_digest;
use layer0::StateStore;
use layer0::error::StateError;
use layer0::failure::Failure;
use layer0::id::RunId;
use layer0::state::{Expected, Scope, StateQuery, StateWrite, Versioned};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What keys in the state store begin with.
const PREFIX: &str = "mcp/";
/// Into how many parts the keys are divided, by the first two digits of their digests.
const PARTS: usize = 256;
/// The most keys of a part.
const MAX_IN_PART: u32 = 400;
/// How long a key is kept that no call comes with.
const LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How long a key is kept at least, however many there are.
const LEAST_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// What is kept of a key.
#[derive(Serialize, Deserialize)]
struct Kept {
    input: String,
    run: String,
}

/// The keys of calls, in a state store.
pub(crate) struct Keys {
    store: Arc<dyn StateStore>,
    clock: Arc<dyn Clock>,
}

/// What a key stands for.
pub(crate) enum Keyed {
    /// The run that a call with the same key and input started.
    Earlier(RunId),
    /// The run that was offered: the key is new.
    New,
    /// A call with the same key had another input.
    Reused,
}

impl Keys {
    pub(crate) fn new(store: Arc<dyn StateStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// Binds a key of an operator to an input and a run, unless it is bound already.
    pub(crate) async fn bind(
        &self,
        operator: &str,
        key: &str,
        input: &Value,
        run: &RunId,
    ) -> Result<Keyed, StateError> {
        let key = format!("{PREFIX}{}", text_digest(&json!([operator, key]).to_string()));
        let input = text_digest(&input.to_string());
        loop {
            if let Some(found) = self.store.read(&Scope::Global, &key).await? {
                let kept: Kept = serde_json::from_value(found.value.clone())
                    .map_err(|error| StateError::Serialization(error.to_string()))?;
                self.renew(&key, found).await;
                return Ok(match kept.input == input {
                    true => Keyed::Earlier(kept.run.into()),
                    false => Keyed::Reused,
                });
            }
            self.make_room(&key).await?;
            let kept = json!(Kept { input: input.clone(), run: run.to_string() });
            let write = StateWrite::new(Scope::Global, key.as_str(), kept).expires_after(LIFETIME);
            match self.store.write(write.expecting(Expected::Absent)).await {
                Ok(_) => return Ok(Keyed::New),
                // Another call with the key was faster.
                Err(StateError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Keeps a key for its whole lifetime again.
    async fn renew(&self, key: &str, found: Versioned) {
        let write = StateWrite::new(Scope::Global, key, found.value).expires_after(LIFETIME);
        let renewed = self.store.write(write.expecting(Expected::Version(found.version))).await;
        if let Err(error) = renewed {
            // It stays until it expires.
            tracing::warn!(code = error.code(), "an idempotency key was not renewed: {error}");
        }
    }

    /// Removes the oldest key of a part that is full. None is removed that a call may still come with: then a new
    /// one is refused.
    async fn make_room(&self, key: &str) -> Result<(), StateError> {
        let part = &key[..PREFIX.len() + 2];
        let query = StateQuery::new(Scope::Global).prefix(part).limit(MAX_IN_PART);
        let kept = self.store.list(query).await?;
        if kept.len() < usize::try_from(MAX_IN_PART).unwrap_or(usize::MAX) {
            return Ok(());
        }
        let oldest = kept.into_iter().min_by_key(|(_, kept)| kept.written_at);
        let now = self.clock.now();
        match oldest.filter(|(_, kept)| kept.written_at.after(LEAST_LIFETIME) <= now) {
            Some((key, kept)) => {
                let removed =
                    self.store.delete(&Scope::Global, &key, Expected::Version(kept.version)).await;
                match removed {
                    // Another call removed or renewed it.
                    Ok(_) | Err(StateError::Conflict { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            None => Err(StateError::WriteFailed(format!(
                "there is room for about {} idempotency keys a day",
                PARTS * usize::try_from(MAX_IN_PART).unwrap_or(usize::MAX)
            ))),
        }
    }
}
