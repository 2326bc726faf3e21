use async_trait::async_trait;
use backstop_provider::{
    ModelRequest, ModelResponse, ModelSettings, OutputSupport, Provider, ProviderError, StreamSink,
    UnsupportedSetting,
};
use serde::de::IgnoredAny;

use crate::answer::HttpAnswer;
use crate::endpoint::{Endpoint, ResponseHead};
use crate::fitted::{Fitted, LastTools};
use crate::framing::{FrameError, Framing};
use crate::joined::JoinedFrames;
use crate::limits::MAX_ANSWER_BYTES;
use crate::malformed::MalformedAnswer;
use crate::protocol::{Protocol, Stream};
use crate::reply::Reply;
use crate::timeouts::Timeouts;

/// The number of bytes between two checks of the size of an answer.
const LOOK_AFTER_BYTES: usize = 1024 * 1024;

/// A provider that calls one model at one endpoint that speaks `P`.
///
/// It makes one attempt: it never retries, never falls back, and never treats half a stream as an answer.
#[derive(Debug)]
pub struct HttpProvider<P> {
    endpoint: Endpoint,
    protocol: P,
    last_tools: LastTools,
}

impl<P: Protocol> HttpProvider<P> {
    pub(crate) fn new(endpoint: Endpoint, protocol: P) -> Self {
        Self { endpoint, protocol, last_tools: LastTools::default() }
    }

    /// Returns the timeout of each phase. The layer around applies `attempt`.
    #[must_use]
    pub const fn timeouts(&self) -> Timeouts {
        self.endpoint.timeouts()
    }

    /// Decodes a response body that was received before, such as a recorded one, exactly as
    /// [`stream`](Provider::stream) decodes one from the network: whole or as a stream, by its
    /// first bytes, or by the content type if they are inconclusive. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`ProviderError::StreamTruncated`] when the body ends early,
    /// [`ProviderError::InvalidResponse`] when it is not a response of this protocol or too large;
    /// the class of a failure in the body.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with a timer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the answer; it can be read again.
    pub async fn read(
        &self,
        content_type: &str,
        body: impl Into<Vec<u8>>,
    ) -> Result<ModelResponse, ProviderError> {
        let answer = HttpAnswer::from_recording(&self.endpoint, content_type, body.into());
        let read = self.decode(answer, &ResponseHead::default(), true, None).await;
        read.or_else(MalformedAnswer::answer)
    }

    async fn ask(
        &self,
        request: &ModelRequest,
        is_streamed: bool,
    ) -> Result<ModelResponse, ProviderError> {
        let sink = request.sink.as_deref();
        let accepts = self.protocol.accepts(&self.endpoint);
        let fitted = Fitted::new(request, accepts, &self.endpoint, &self.last_tools);
        let body = self.body(&fitted.request, is_streamed)?;
        let asked = async {
            let (response, head) = self.endpoint.post(body, is_streamed, sink).await?;
            let answer = HttpAnswer::new(&self.endpoint, response);
            self.decode(answer, &head, is_streamed, sink).await
        };
        let response = asked.await.or_else(MalformedAnswer::answer)?;
        Ok(fitted.restore(response))
    }

    fn body(&self, request: &ModelRequest, is_streamed: bool) -> Result<Vec<u8>, ProviderError> {
        self.endpoint.encode(&self.protocol.request(&self.endpoint, request, is_streamed)?)
    }

    async fn decode(
        &self,
        mut answer: HttpAnswer<'_>,
        head: &ResponseHead,
        is_streamed: bool,
        sink: Option<&dyn StreamSink>,
    ) -> Result<ModelResponse, ProviderError> {
        let reply = Reply::new(&self.endpoint, head, sink);
        let comes_in_frames = if P::Framing::IS_JSON {
            is_streamed && !answer.is_page().await?
        } else {
            answer.is_event_stream().await?
        };
        if comes_in_frames {
            return self.assemble(answer, &reply).await;
        }
        // An endpoint that cannot stream sends a whole response, and so does a failure.
        let body = answer.whole().await?;
        let whole = match P::Framing::IS_JSON && has_further_values(&body) {
            // Some servers stream although the request forbids it.
            true => {
                let answer = HttpAnswer::from_recording(&self.endpoint, "", body);
                self.assemble(answer, &reply.in_one_piece()).await?
            }
            false => self.protocol.response(reply.decode_last(&body)?, &reply.in_one_piece())?,
        };
        reply.tell_whole(&whole);
        Ok(whole)
    }

    /// Assembles the answer from the frames of a stream.
    async fn assemble(
        &self,
        mut answer: HttpAnswer<'_>,
        reply: &Reply<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let mut frames = JoinedFrames::<P::Framing>::new();
        let mut bound = HeldBound::default();
        let mut stream = self.protocol.stream();
        let unframed = |error| reply.frame_error(error);
        'pieces: loop {
            while let Some(frame) = frames.next().map_err(unframed)? {
                if stream.take(frame, reply)?.is_break() {
                    break 'pieces;
                }
            }
            let Some(chunk) = answer.piece().await? else {
                for frame in frames.rest().map_err(unframed)? {
                    if stream.take(frame, reply)?.is_break() {
                        break;
                    }
                }
                break;
            };
            frames.push(&chunk).map_err(unframed)?;
            if bound.is_due(chunk.len()) {
                refuse_large(&stream, reply)?;
            }
        }
        refuse_large(&stream, reply)?;
        stream.finish(reply)
    }
}

/// Returns whether a body has more than one JSON value.
fn has_further_values(body: &[u8]) -> bool {
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<IgnoredAny>();
    matches!(values.next(), Some(Ok(_))) && values.next().is_some()
}

/// Refuses an answer that holds too many bytes.
fn refuse_large(stream: &impl Stream, reply: &Reply<'_>) -> Result<(), ProviderError> {
    if stream.held_bytes() > MAX_ANSWER_BYTES {
        return Err(reply.frame_error(FrameError::too_large()));
    }
    Ok(())
}

/// The schedule of size checks: none before the limit was received, and few after that, as a check
/// takes time.
#[derive(Debug, Default)]
struct HeldBound {
    /// The number of bytes received.
    received: usize,
    /// The number of bytes received before the last check.
    looked_at: usize,
}

impl HeldBound {
    /// Adds received bytes; returns whether a check is due.
    const fn is_due(&mut self, bytes: usize) -> bool {
        self.received += bytes;
        let is_due =
            self.received > MAX_ANSWER_BYTES && self.received - self.looked_at >= LOOK_AFTER_BYTES;
        if is_due {
            self.looked_at = self.received;
        }
        is_due
    }
}

#[async_trait]
impl<P: Protocol> Provider for HttpProvider<P> {
    fn name(&self) -> &str {
        P::NAME
    }

    fn model(&self) -> &str {
        self.endpoint.model()
    }

    fn check_settings(&self, settings: &ModelSettings) -> Result<(), UnsupportedSetting> {
        self.protocol.settings(&self.endpoint).check(P::NAME, settings)
    }

    fn output_support(&self, request: &ModelRequest) -> OutputSupport {
        self.protocol.output_support(&self.endpoint, request)
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.ask(request, false).await
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.ask(request, true).await
    }
}
