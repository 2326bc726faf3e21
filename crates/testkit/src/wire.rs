use std::sync::Arc;

use provider::{ErrorKind, ModelResponse, Provider, ProviderError, ScriptedAnswer};
use provider_http::Timeouts;
use serde_json::{Value, json};

use crate::ask::{hello, patient, send};
use crate::{Loopback, Reply};

/// A provider under test, and how its protocol looks on the wire.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    /// Makes the provider for a server at this URL, such as `http://127.0.0.1:4000`, with these
    /// timeouts; a provider without timeouts for each phase takes the nearest it has.
    pub provider: fn(&str, Timeouts) -> Arc<dyn Provider>,
    /// Makes the bytes of an answer. The value is what was asked; its `stream` says whether the
    /// answer is to be streamed.
    pub reply: fn(&ScriptedAnswer, &Value) -> Reply,
    /// What the protocol has no form for.
    pub without: &'static [ErrorKind],
    /// What the protocol can only say before an answer has begun, and not in the middle of one.
    pub only_at_the_start: &'static [ErrorKind],
}

impl Wire {
    /// Makes the wire of a protocol that can say everything, anywhere.
    #[must_use]
    pub const fn of(
        provider: fn(&str, Timeouts) -> Arc<dyn Provider>,
        reply: fn(&ScriptedAnswer, &Value) -> Reply,
    ) -> Self {
        Self { provider, reply, without: &[], only_at_the_start: &[] }
    }

    /// Makes the bytes of an answer.
    #[must_use]
    pub fn says(&self, answer: &ScriptedAnswer, streamed: bool) -> Reply {
        (self.reply)(answer, &json!({ "stream": streamed }))
    }

    /// Asks a server that gives this reply once.
    ///
    /// # Errors
    ///
    /// Those of the provider.
    pub async fn ask(&self, reply: Reply, streamed: bool) -> Result<ModelResponse, ProviderError> {
        let server = Loopback::replying([reply]);
        let provider = (self.provider)(&server.url(), patient());
        send(&*provider, &hello(), streamed).await
    }
}
