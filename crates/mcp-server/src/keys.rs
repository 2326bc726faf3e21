//! Keys by which a call that is made again is known.

use std::sync::Arc;

use backstop_event_log::text_digest;
use layer0::StateStore;
use layer0::error::StateError;
use layer0::id::RunId;
use layer0::state::{Expected, Scope, StateWrite};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What is kept of a key.
#[derive(Serialize, Deserialize)]
struct Kept {
    input: String,
    run: String,
}

/// The keys of calls, in a state store.
pub(crate) struct Keys(pub(crate) Arc<dyn StateStore>);

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
    /// Binds a key of an operator to an input and a run, unless it is bound already.
    pub(crate) async fn bind(
        &self,
        operator: &str,
        key: &str,
        input: &Value,
        run: &RunId,
    ) -> Result<Keyed, StateError> {
        let key = format!("mcp/{}", text_digest(&json!([operator, key]).to_string()));
        let input = text_digest(&input.to_string());
        loop {
            if let Some(kept) = self.0.read(&Scope::Global, &key).await? {
                let kept: Kept = serde_json::from_value(kept.value)
                    .map_err(|error| StateError::Serialization(error.to_string()))?;
                return Ok(match kept.input == input {
                    true => Keyed::Earlier(kept.run.into()),
                    false => Keyed::Reused,
                });
            }
            let kept = json!(Kept { input: input.clone(), run: run.to_string() });
            let write = StateWrite::new(Scope::Global, key.as_str(), kept);
            match self.0.write(write.expecting(Expected::Absent)).await {
                Ok(_) => return Ok(Keyed::New),
                // Another call with the key was faster.
                Err(StateError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
