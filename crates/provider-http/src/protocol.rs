use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use backstop_provider::{
    ModelRequest, ModelResponse, OutputSupport, ProviderError, SettingsSupport,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::accepts::Accepts;
use crate::classify::FailureRule;
use crate::config_error::ProviderConfigError;
use crate::endpoint::Endpoint;
use crate::framing::Framing;
use crate::key::ApiKey;
use crate::reply::Reply;
use crate::sign::Sign;

/// A wire protocol: its failures, its request body, and the decoding of responses, whole and as a
/// stream. [`HttpProvider`](crate::HttpProvider) does the rest.
///
/// The value holds the settings that no other protocol has.
///
/// ```
/// use std::borrow::Cow;
/// use std::ops::ControlFlow;
///
/// use layer0::message::StopReason;
/// use backstop_provider::{ModelRequest, ModelResponse, ProviderError};
/// use backstop_provider_http::{
///     ProviderConfigError, Draft, Endpoint, SseEvent, Events, HttpProviderBuilder, Protocol, Reply, FailureRule, Stream,
/// };
/// use serde::Serialize;
/// use serde_json::json;
///
/// /// Answers are a text, and streams a text in pieces.
/// #[derive(Debug, Default)]
/// struct Plain;
///
/// impl Protocol for Plain {
///     const NAME: &'static str = "plain";
///     const KEY_VARIABLE: &'static str = "PLAIN_API_KEY";
///     const ROWS: &'static [FailureRule] = &[];
///     type Framing = Events;
///     type Response = String;
///     type Stream = Pieces;
///
///     fn base_url(&self) -> Result<Cow<'static, str>, ProviderConfigError> {
///         Ok("https://plain.example.com".into())
///     }
///
///     fn path(&self, _model: &str, _is_streamed: bool) -> String {
///         "/ask".to_owned()
///     }
///
///     fn request<'a>(
///         &'a self,
///         endpoint: &'a Endpoint,
///         request: &'a ModelRequest,
///         is_streamed: bool,
///     ) -> Result<impl Serialize + 'a, ProviderError> {
///         let messages = request.messages.messages().len();
///         Ok(json!({ "model": endpoint.model(), "messages": messages, "stream": is_streamed }))
///     }
///
///     fn response(&self, text: String, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
///         let mut draft = Draft::default();
///         draft.text = text;
///         Ok(draft.finish(StopReason::End, reply))
///     }
///
///     fn stream(&self) -> Pieces {
///         Pieces::default()
///     }
/// }
///
/// #[derive(Default)]
/// struct Pieces {
///     draft: Draft,
///     is_done: bool,
/// }
///
/// impl Stream for Pieces {
///     type Frame = SseEvent;
///
///     fn take(
///         &mut self,
///         event: SseEvent,
///         reply: &Reply<'_>,
///     ) -> Result<ControlFlow<()>, ProviderError> {
///         self.is_done = event.kind == "done";
///         if self.is_done {
///             return Ok(ControlFlow::Break(()));
///         }
///         self.draft.say(&reply.decode::<String>(event.data.as_bytes())?, reply);
///         Ok(ControlFlow::Continue(()))
///     }
///
///     fn held_bytes(&self) -> usize {
///         self.draft.held_bytes()
///     }
///
///     fn finish(self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
///         if self.is_done {
///             Ok(self.draft.finish(StopReason::End, reply))
///         } else {
///             Err(ProviderError::stream_truncated("`done`"))
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let provider = HttpProviderBuilder::<Plain>::new("m").api_key("from a vault").build()?;
/// assert_eq!(&*provider.read("application/json", r#""hello""#).await?.text, "hello");
/// let body = "data: \"hel\"\n\ndata: \"lo\"\n\nevent: done\ndata: {}\n\n";
/// assert_eq!(&*provider.read("text/event-stream", body).await?.text, "hello");
/// assert!(provider.read("text/event-stream", &body[..14]).await.is_err());
/// # Ok(())
/// # }
/// ```
pub trait Protocol: fmt::Debug + Default + Send + Sync + 'static {
    /// The provider's name.
    const NAME: &'static str;

    /// The environment variable that usually holds the key.
    const KEY_VARIABLE: &'static str;

    /// Whether the provider's own endpoint requires a key. Another base URL never does.
    const NEEDS_KEY: bool = true;

    /// The rows that classify its failures: the first match wins, and the status decides without one.
    const ROWS: &'static [FailureRule];

    /// The header that carries the key, and the prefix of its value.
    const KEY_HEADER: (&'static str, &'static str) = ("authorization", "Bearer ");

    /// Further headers of every request.
    const HEADERS: &'static [(&'static str, &'static str)] = &[];

    /// The response header that names the type of a failure, in addition to the body.
    const KIND_HEADER: Option<&'static str> = None;

    /// The framing of a stream's body.
    type Framing: Framing;

    /// The decoded body of a whole response.
    type Response: DeserializeOwned;

    /// An answer that is assembled from frames.
    type Stream: Stream<Frame = <Self::Framing as Framing>::Frame>;

    /// Reads settings and key from the environment.
    ///
    /// # Errors
    ///
    /// As [`ApiKey::from_env`].
    fn from_env() -> Result<(Self, Option<ApiKey>), ProviderConfigError> {
        Ok((Self::default(), Some(ApiKey::from_env(Self::KEY_VARIABLE)?)))
    }

    /// Returns the base URL of the provider's own endpoint: scheme, host and path prefix.
    ///
    /// # Errors
    ///
    /// An error for a missing part, such as [`ProviderConfigError::MissingSetting`].
    fn base_url(&self) -> Result<Cow<'static, str>, ProviderConfigError>;

    /// Returns the path appended to the base URL, such as `/chat/completions`.
    fn path(&self, model: &str, is_streamed: bool) -> String;

    /// Returns the header that carries the key with these settings, like [`Protocol::KEY_HEADER`].
    fn key_header(&self) -> (&'static str, &'static str) {
        Self::KEY_HEADER
    }

    /// Returns the signer of requests that no key authorises.
    ///
    /// # Errors
    ///
    /// An error for a missing part of the credentials, or for one that no header can carry.
    fn signer(&self) -> Result<Option<Arc<dyn Sign>>, ProviderConfigError> {
        Ok(None)
    }

    /// Returns the secrets that the settings hold.
    fn secrets(&self) -> Vec<&ApiKey> {
        Vec::new()
    }

    /// Returns the settings that the protocol supports. [`Protocol::request`] sends all of them.
    fn settings(&self, endpoint: &Endpoint) -> SettingsSupport {
        let _ = endpoint;
        SettingsSupport::basic()
    }

    /// Returns how far the protocol can enforce an output schema. [`Protocol::request`] sends the
    /// supported part.
    fn output_support(&self, endpoint: &Endpoint, request: &ModelRequest) -> OutputSupport {
        let _ = (endpoint, request);
        OutputSupport::Prompt
    }

    /// Returns the limits of the endpoint. A request is fitted to them before [`Protocol::request`]
    /// encodes it.
    fn accepts(&self, endpoint: &Endpoint) -> Accepts {
        let _ = endpoint;
        Accepts::everything()
    }

    /// Makes the body of a request.
    ///
    /// # Errors
    ///
    /// [`ProviderError::InvalidRequest`] when the protocol cannot express it.
    fn request<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        is_streamed: bool,
    ) -> Result<impl Serialize + 'a, ProviderError>;

    /// Decodes a whole response.
    ///
    /// # Errors
    ///
    /// The class of a failure in it; [`ProviderError::StreamTruncated`] without a stop reason;
    /// [`ProviderError::InvalidResponse`] when it is not an answer.
    fn response(
        &self,
        response: Self::Response,
        reply: &Reply<'_>,
    ) -> Result<ModelResponse, ProviderError>;

    /// Begins an answer that is received as a stream.
    fn stream(&self) -> Self::Stream;
}

/// An answer that is assembled from the frames of a stream.
pub trait Stream: Send {
    /// One frame, such as an event.
    type Frame;

    /// Adds the next frame; breaks if the answer ended with it.
    ///
    /// # Errors
    ///
    /// The class of a failure in it; [`ProviderError::InvalidResponse`] when it does not belong to
    /// the protocol.
    fn take(
        &mut self,
        frame: Self::Frame,
        reply: &Reply<'_>,
    ) -> Result<ControlFlow<()>, ProviderError>;

    /// Returns the approximate number of bytes held for the answer so far. An answer that grows
    /// beyond [`MAX_ANSWER_BYTES`](crate::MAX_ANSWER_BYTES) is refused, however small its frames
    /// are.
    fn held_bytes(&self) -> usize;

    /// Finishes the answer, at its own end or at the end of the body.
    ///
    /// # Errors
    ///
    /// [`ProviderError::StreamTruncated`] if the end of the answer was not received.
    fn finish(self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError>;
}
