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
    /// Encodes an answer; see [`Wire::of`].
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
    ///
    /// `reply` encodes an answer. Its second argument is the body of the request. The suite sets only its field
    /// `stream`, which says whether to stream the answer. Each field of the answer has a place in the reply:
    ///
    /// - `text` and `thinking` are streamed in several pieces, so that a trial sees that pieces are passed on. A missing
    ///   text is an empty one.
    /// - `tool_calls` come in their order, with their ids; an empty id is left out. Arguments that are a string are the
    ///   text that the model wrote, also if it is no JSON: they are sent in place of encoded arguments, not encoded again.
    /// - `stop_reason` is the end of the answer: by default a call of tools if there are any, and otherwise a normal end.
    ///   A reason without a form in the protocol belongs into [`Cannot::Stop`].
    /// - `usage` is the billed tokens, and absent if it is `None`.
    /// - `error` makes the answer fail. Without a text it is the failure that the endpoint reports before an answer:
    ///   `status`, or else the usual status of its `kind`, and a body of the protocol. With a text, a streamed answer
    ///   begins with status 200, the text and the usage, and then reports the failure, if the protocol can
    ///   ([`Cannot::FailMidway`]); a whole answer is the failure alone. Two kinds are no reports of the endpoint:
    ///   [`StreamTruncated`](ErrorKind::StreamTruncated) is an answer without its end
    ///   ([`Ending::CutAt`](crate::Ending::CutAt) for a whole one), and
    ///   [`InvalidResponse`](ErrorKind::InvalidResponse) has status 200 and a body or an event that is not of the
    ///   protocol. `retry_after_ms` is the wait that the endpoint asks for, in a header or the body.
    /// - `delay_ms` is the delay before the first byte.
    ///
    /// The encoder of a small protocol, whose failures have a `kind`:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use backstop_provider::{ErrorKind, ScriptedAnswer, ScriptedError};
    /// use backstop_testkit::{Ending, Reply, Wire};
    /// use layer0::message::StopReason;
    /// use serde_json::{Value, json};
    ///
    /// fn reply(answer: &ScriptedAnswer, request: &Value) -> Reply {
    ///     let streamed = request["stream"] == true;
    ///     let reply = match (&answer.error, streamed) {
    ///         (None, false) => Reply::json(200, &whole(answer)),
    ///         (None, true) => Reply::events(pieces(answer) + &end(answer)),
    ///         (Some(error), _) => failed(answer, error, streamed),
    ///     };
    ///     reply.delay(Duration::from_millis(answer.delay_ms))
    /// }
    ///
    /// fn whole(answer: &ScriptedAnswer) -> Value {
    ///     let (text, calls) = (answer.text.as_deref().unwrap_or_default(), calls(answer));
    ///     let tokens = answer.usage.map(|usage| [usage.input_tokens, usage.output_tokens]);
    ///     json!({ "text": text, "calls": calls, "stop": stop(answer), "tokens": tokens })
    /// }
    ///
    /// fn calls(answer: &ScriptedAnswer) -> Vec<Value> {
    ///     let calls = answer.tool_calls.iter().map(|call| {
    ///         // A string is the text of the arguments already.
    ///         let text = call.arguments.as_str().map(str::to_owned);
    ///         let text = text.unwrap_or_else(|| call.arguments.to_string());
    ///         json!({ "id": call.id, "name": call.name, "arguments": text })
    ///     });
    ///     calls.collect()
    /// }
    ///
    /// fn stop(answer: &ScriptedAnswer) -> &'static str {
    ///     match &answer.stop_reason {
    ///         Some(StopReason::MaxTokens) => "length",
    ///         _ if answer.tool_calls.is_empty() => "end",
    ///         _ => "calls",
    ///     }
    /// }
    ///
    /// /// The events of a stream without its end.
    /// fn pieces(answer: &ScriptedAnswer) -> String {
    ///     let text = answer.text.as_deref().unwrap_or_default();
    ///     let pieces = text.split_inclusive(' ').map(|piece| json!({ "text": piece }));
    ///     let calls = calls(answer).into_iter().map(|call| json!({ "call": call }));
    ///     let tokens = answer.usage.map(|usage| json!({ "tokens": [usage.input_tokens, usage.output_tokens] }));
    ///     pieces.chain(calls).chain(tokens).map(|event| format!("data: {event}\n\n")).collect()
    /// }
    ///
    /// fn end(answer: &ScriptedAnswer) -> String {
    ///     format!("event: done\ndata: \"{}\"\n\n", stop(answer))
    /// }
    ///
    /// fn failed(answer: &ScriptedAnswer, error: &ScriptedError, streamed: bool) -> Reply {
    ///     let begins = streamed && (answer.text.is_some() || answer.usage.is_some());
    ///     let (status, kind) = match error.kind {
    ///         ErrorKind::StreamTruncated if streamed => return Reply::events(pieces(answer)),
    ///         ErrorKind::StreamTruncated => {
    ///             let whole = Reply::json(200, &whole(answer));
    ///             let half = whole.body.len() / 2;
    ///             return whole.ending(Ending::CutAt(half));
    ///         }
    ///         ErrorKind::InvalidResponse if begins => {
    ///             return Reply::events(pieces(answer) + "data: <html>\n\n");
    ///         }
    ///         ErrorKind::InvalidResponse => return Reply::html(200),
    ///         ErrorKind::RateLimited => (429, "busy"),
    ///         ErrorKind::AuthFailed => (401, "key"),
    ///         ErrorKind::ContextOverflow => (400, "too_long"),
    ///         ErrorKind::InvalidRequest => (400, "request"),
    ///         // The other kinds are in `Wire::that_cannot`.
    ///         _ => (503, "unavailable"),
    ///     };
    ///     let wait = error.retry_after_ms;
    ///     let body = json!({ "error": { "kind": kind, "retry_after_ms": wait } });
    ///     match begins {
    ///         true => Reply::events(format!("{}data: {body}\n\n", pieces(answer))),
    ///         false => Reply::json(error.status.unwrap_or(status), &body),
    ///     }
    /// }
    ///
    /// # use backstop_provider::ScriptedProvider;
    /// # let my_provider = |_: &str, _| Arc::new(ScriptedProvider::saying(["hello"])) as _;
    /// // `my_provider` makes the provider for a URL, with timeouts.
    /// let wire = Wire::of(my_provider, reply);
    /// let hello = wire.says(&ScriptedAnswer::saying("hello you"), true);
    /// let text = "data: {\"text\":\"hello \"}\n\ndata: {\"text\":\"you\"}\n\nevent: done\ndata: \"end\"\n\n";
    /// assert_eq!(String::from_utf8(hello.body)?, text);
    /// # Ok::<(), std::string::FromUtf8Error>(())
    /// ```
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
