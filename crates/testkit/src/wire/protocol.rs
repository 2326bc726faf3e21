use std::sync::Arc;

use backstop_provider::{ErrorKind, ModelResponse, Provider, ProviderError, ScriptedAnswer};
use backstop_provider_http::Timeouts;
use layer0::message::StopReason;
use serde_json::{Value, json};

use crate::server::{Loopback, Reply};
use crate::server::{hello, patient, send};

/// Makes a provider for a server at a URL such as `http://127.0.0.1:4000`, with these timeouts and
/// [`KEY`](crate::KEY); a provider without timeouts for each phase takes the nearest it has.
pub type MakeProvider = fn(&str, Timeouts) -> Arc<dyn Provider>;

/// A provider under test, and how its protocol looks on the wire.
///
/// For a protocol that this crate speaks there is a function that makes one, such as
/// [`openai::wire`](crate::wire::openai::wire).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Wire {
    /// Makes the provider.
    pub provider: MakeProvider,
    /// Makes the bytes of an answer. The value is what was asked; its `stream` says whether the
    /// answer is to be streamed.
    pub reply: fn(&ScriptedAnswer, &Value) -> Reply,
    /// What the protocol has no form for.
    pub cannot: &'static [Cannot],
    /// The endpoint by whose rules requests are judged: the name of a
    /// [`strict::Dialect`](crate::strict::Dialect).
    pub judge: Option<&'static str>,
}

/// What a protocol may have no form for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cannot {
    /// Say how many tokens an answer was billed that breaks off with a failure.
    BillFailures,
    /// Carry the key as it is: it signs, or needs none.
    CarryKey,
    /// Say how many tokens went into a cache.
    CountCacheWrites,
    /// Say how many tokens came from a cache.
    CountCached,
    /// Fail like this.
    Fail(ErrorKind),
    /// Fail like this after an answer has begun.
    FailMidway(ErrorKind),
    /// Take back what the provider gave with an answer, in whatever shape it came.
    KeepState,
    /// Mark the result of a tool as a failure.
    MarkFailures,
    /// Show an image of a tool.
    ShowToolImages,
    /// Stop for this reason.
    Stop(StopReason),
    /// Think aloud.
    Think,
}

impl Wire {
    /// Makes the wire of a protocol that can say everything, anywhere.
    #[must_use]
    pub const fn of(provider: MakeProvider, reply: fn(&ScriptedAnswer, &Value) -> Reply) -> Self {
        Self { provider, reply, cannot: &[], judge: None }
    }

    /// Says what the protocol has no form for.
    #[must_use]
    pub const fn that_cannot(mut self, cannot: &'static [Cannot]) -> Self {
        self.cannot = cannot;
        self
    }

    /// Judges requests by the rules of the endpoint with this name, as a [`strict::Dialect`](crate::strict::Dialect)
    /// has it; `None` judges none.
    #[must_use]
    pub const fn judged_as(mut self, endpoint: Option<&'static str>) -> Self {
        self.judge = endpoint;
        self
    }

    /// Has the protocol a form for this?
    #[must_use]
    pub fn can(&self, what: Cannot) -> bool {
        !self.cannot.contains(&what)
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
