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
use crate::classify::Row;
use crate::config_error::ConfigError;
use crate::endpoint::Endpoint;
use crate::framing::Framing;
use crate::key::ApiKey;
use crate::reply::Reply;
use crate::sign::Sign;

/// What is particular to one wire protocol: what its failures are, what is sent, and how an answer is
/// read, whole and as a stream. [`HttpProvider`](crate::HttpProvider) is the rest.
///
/// A value of it holds the settings that no other protocol has.
///
/// ```
/// use std::borrow::Cow;
/// use std::ops::ControlFlow;
///
/// use layer0::message::StopReason;
/// use backstop_provider::{ModelRequest, ModelResponse, ProviderError};
/// use backstop_provider_http::{
///     ConfigError, Draft, Endpoint, Event, Events, HttpProviderBuilder, Protocol, Reply, Row, Stream,
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
///     const ROWS: &'static [Row] = &[];
///     type Framing = Events;
///     type Response = String;
///     type Stream = Pieces;
///
///     fn base_url(&self) -> Result<Cow<'static, str>, ConfigError> {
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
///     type Frame = Event;
///
///     fn take(
///         &mut self,
///         event: Event,
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

    /// Does the provider itself want a key? Another base URL never does.
    const NEEDS_KEY: bool = true;

    /// What its failures are: the first row that matches wins; the rest is decided by status.
    const ROWS: &'static [Row];

    /// The header that carries the key, and what stands before the key in it.
    const KEY_HEADER: (&'static str, &'static str) = ("authorization", "Bearer ");

    /// Further headers of every request.
    const HEADERS: &'static [(&'static str, &'static str)] = &[];

    /// The header of an answer that names the type of a failure, in front of what its body says.
    const KIND_HEADER: Option<&'static str> = None;

    /// How the body of a stream is cut into frames.
    type Framing: Framing;

    /// What an answer in one piece says.
    type Response: DeserializeOwned;

    /// An answer that is put together from frames.
    type Stream: Stream<Frame = <Self::Framing as Framing>::Frame>;

    /// Takes settings and key from the environment.
    ///
    /// # Errors
    ///
    /// As [`ApiKey::from_env`].
    fn from_env() -> Result<(Self, Option<ApiKey>), ConfigError> {
        Ok((Self::default(), Some(ApiKey::from_env(Self::KEY_VARIABLE)?)))
    }

    /// Returns where the provider itself answers: scheme, host and path prefix.
    ///
    /// # Errors
    ///
    /// What is missing to know that, such as [`ConfigError::MissingSetting`].
    fn base_url(&self) -> Result<Cow<'static, str>, ConfigError>;

    /// Returns what is appended to the base URL, such as `/chat/completions`.
    fn path(&self, model: &str, is_streamed: bool) -> String;

    /// Returns the header that carries the key with these settings, as [`Protocol::KEY_HEADER`] does.
    fn key_header(&self) -> (&'static str, &'static str) {
        Self::KEY_HEADER
    }

    /// Returns what authorises requests where no key does.
    ///
    /// # Errors
    ///
    /// What is missing to sign with, or what no header can carry.
    fn signer(&self) -> Result<Option<Arc<dyn Sign>>, ConfigError> {
        Ok(None)
    }

    /// Returns the secrets that the settings hold.
    fn secrets(&self) -> Vec<&ApiKey> {
        Vec::new()
    }

    /// Says which settings the protocol has. [`Protocol::request`] sends all of them.
    fn settings(&self, endpoint: &Endpoint) -> SettingsSupport {
        let _ = endpoint;
        SettingsSupport::basic()
    }

    /// Says what the protocol does with the form that an answer has to have.
    /// [`Protocol::request`] sends what it takes of it.
    fn output_support(&self, endpoint: &Endpoint, request: &ModelRequest) -> OutputSupport {
        let _ = (endpoint, request);
        OutputSupport::Prompt
    }

    /// Returns the endpoint's limits. A request is within them when [`Protocol::request`] writes it.
    fn accepts(&self, endpoint: &Endpoint) -> Accepts {
        let _ = endpoint;
        Accepts::everything()
    }

    /// Makes the body of a request.
    ///
    /// # Errors
    ///
    /// [`ProviderError::InvalidRequest`] when the protocol cannot say it.
    fn request<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        is_streamed: bool,
    ) -> Result<impl Serialize + 'a, ProviderError>;

    /// Reads an answer in one piece.
    ///
    /// # Errors
    ///
    /// Whatever a failure in it is; [`ProviderError::StreamTruncated`] without a stop reason;
    /// [`ProviderError::InvalidResponse`] when it is no answer.
    fn response(
        &self,
        response: Self::Response,
        reply: &Reply<'_>,
    ) -> Result<ModelResponse, ProviderError>;

    /// Begins an answer that comes as a stream.
    fn stream(&self) -> Self::Stream;
}

/// An answer that is put together from the frames of a stream.
pub trait Stream: Send {
    /// One frame, such as an event.
    type Frame;

    /// Takes the next frame; breaks where the answer has ended with it.
    ///
    /// # Errors
    ///
    /// Whatever a failure in it is; [`ProviderError::InvalidResponse`] when it is none of the
    /// protocol's.
    fn take(
        &mut self,
        frame: Self::Frame,
        reply: &Reply<'_>,
    ) -> Result<ControlFlow<()>, ProviderError>;

    /// Returns how many bytes are held of the answer so far, about. An answer that grows beyond
    /// [`MAX_ANSWER_BYTES`](crate::MAX_ANSWER_BYTES) is given up, however small its frames are.
    fn held_bytes(&self) -> usize;

    /// Ends the answer, at its end or at that of the body.
    ///
    /// # Errors
    ///
    /// [`ProviderError::StreamTruncated`] where the end of the answer has not come.
    fn finish(self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError>;
}
