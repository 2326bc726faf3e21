use std::sync::Arc;

use backstop_provider::{ErrorKind, ModelResponse, Provider, ProviderError, ScriptedAnswer};
use backstop_provider_http::Timeouts;
use layer0::message::StopReason;
use serde_json::{Value, json};

use crate::server::{Loopback, Reply};
use crate::server::{hello, patient, send};

/// Makes a provider for a server at a URL such as `http://127.0.0.1:4000`, with these timeouts and [`KEY`](crate::KEY);
/// a provider without timeouts for each phase uses the nearest that it has.
pub type MakeProvider = fn(&str, Timeouts) -> Arc<dyn Provider>;

/// A provider under test, with the encoder of its protocol.
///
/// For the protocols of this crate there are functions that make one, such as
/// [`openai::wire`](crate::wire::openai::wire).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Wire {
    /// Makes the provider.
    pub provider: MakeProvider,
    /// Encodes an answer. The value is the request; its `stream` is whether the answer is to be streamed.
    pub reply: fn(&ScriptedAnswer, &Value) -> Reply,
    /// Features without a form in the protocol.
    pub cannot: &'static [Cannot],
    /// The endpoint whose rules judge the requests: the name of a [`strict::Dialect`](crate::strict::Dialect).
    pub judge: Option<&'static str>,
}

/// A feature that may have no form in a protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cannot {
    /// Report the billed tokens of an answer that fails.
    BillFailures,
    /// Carry the key as it is: it signs, or needs none.
    CarryKey,
    /// Report the number of tokens written to a cache.
    CountCacheWrites,
    /// Report the number of tokens from a cache.
    CountCached,
    /// Fail in this way.
    Fail(ErrorKind),
    /// Fail in this way after an answer has begun.
    FailMidway(ErrorKind),
    /// Take back the state that the provider gave with an answer, in any form.
    KeepState,
    /// Mark the result of a tool as a failure.
    MarkFailures,
    /// Give an id to a tool call.
    NameCalls,
    /// Show an image of a person's message.
    ShowImages,
    /// Show an image of a tool.
    ShowToolImages,
    /// Stop for this reason.
    Stop(StopReason),
    /// Stream an answer. Trials then ask for whole answers alone.
    Stream,
    /// Think aloud.
    Think,
}

impl Wire {
    /// Returns the wire of a protocol with a form for every feature.
    #[must_use]
    pub const fn of(provider: MakeProvider, reply: fn(&ScriptedAnswer, &Value) -> Reply) -> Self {
        Self { provider, reply, cannot: &[], judge: None }
    }

    /// Sets the features without a form in the protocol.
    #[must_use]
    pub const fn that_cannot(mut self, cannot: &'static [Cannot]) -> Self {
        self.cannot = cannot;
        self
    }

    /// Judges requests by the rules of the endpoint with this name, as in [`strict::Dialect`](crate::strict::Dialect);
    /// `None` means no judge.
    #[must_use]
    pub const fn judged_as(mut self, endpoint: Option<&'static str>) -> Self {
        self.judge = endpoint;
        self
    }

    /// Returns whether the protocol has a form for a feature.
    #[must_use]
    pub fn can(&self, what: Cannot) -> bool {
        !self.cannot.contains(&what)
    }

    /// Returns the values of `streamed` for which a trial asks: whole answers, and streamed ones if there are any.
    pub fn stream_modes(&self) -> impl Iterator<Item = bool> + use<> {
        let streams = self.can(Cannot::Stream);
        [false, true].into_iter().filter(move |streamed| streams || !streamed)
    }

    /// Encodes an answer.
    #[must_use]
    pub fn says(&self, answer: &ScriptedAnswer, streamed: bool) -> Reply {
        (self.reply)(answer, &json!({ "stream": streamed }))
    }

    /// Calls a server that gives this reply once.
    ///
    /// # Errors
    ///
    /// The errors of the provider.
    pub async fn ask(&self, reply: Reply, streamed: bool) -> Result<ModelResponse, ProviderError> {
        let server = Loopback::replying([reply]);
        let provider = (self.provider)(&server.url(), patient());
        send(&*provider, &hello(), streamed).await
    }
}
