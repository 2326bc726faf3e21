mod client;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_process::{check_request, hints};
use backstop_provider::{ProviderError, StreamSink, TimeoutPhase};
use layer0::message::{ProviderState, StatePart, StopReason};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::class::Class;
use crate::classify::{FailureRule, classify};
use crate::coding::{coding, describe_compression};
use crate::config_error::ProviderConfigError;
use crate::error_body::ErrorBody;
use crate::extra::body_with;
use crate::header::ExtraHeader;
use crate::key::ApiKey;
use crate::malformed::MalformedAnswer;
use crate::sign::{Sign, Unsigned};
use crate::stop_words::is_failure_word;
use crate::timeouts::Timeouts;
use crate::wording::Wording;
use crate::{connection, header, hint, rate, span};
use client::{open_client, read_url};

/// The most bytes of a failure's body that are read. Some validation errors repeat the whole
/// request before their code.
const MAX_FAILURE_BYTES: usize = 1024 * 1024;

/// The longest time for the whole body of a failure. Its status is known before.
const MAX_FAILURE_TIME: Duration = Duration::from_secs(2);

/// The settings of an [`Endpoint`].
pub(crate) struct EndpointSettings<'a> {
    pub(crate) provider: &'static str,
    pub(crate) model: &'a str,
    /// Scheme, host and path prefix; a trailing slash makes no difference.
    pub(crate) base_url: &'a str,
    /// Whether this is the provider's own endpoint, with no other base URL set.
    pub(crate) is_own: bool,
    /// The paths of a whole response and of a stream.
    pub(crate) paths: [String; 2],
    /// The key, if one is sent, with its header and the prefix of its value.
    pub(crate) key: Option<((&'static str, &'static str), &'a ApiKey)>,
    /// Values to keep out of errors.
    pub(crate) secrets: Vec<&'a ApiKey>,
    /// The signer of every request, called after everything else is set.
    pub(crate) signer: Option<Arc<dyn Sign>>,
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// Headers added to those, or replacing them.
    pub(crate) further_headers: &'a [ExtraHeader],
    pub(crate) user_agent: Option<&'a str>,
    pub(crate) timeouts: Timeouts,
    pub(crate) rows: &'static [FailureRule],
    /// The response header that names the type of a failure.
    pub(crate) kind_header: Option<&'static str>,
    pub(crate) extra_body: Map<String, Value>,
}

/// Information from the head of a response besides its status.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResponseHead {
    /// The requested retry delay.
    pub(crate) retry_after: Option<Duration>,
    /// The provider's id of the request.
    pub(crate) request_id: Option<String>,
}

/// An endpoint for one model: the URLs of its calls, and its connections.
pub struct Endpoint {
    provider: &'static str,
    model: Arc<str>,
    is_own: bool,
    /// Scheme, host and port.
    origin: Arc<str>,
    /// The base URL without possible secrets.
    base_url: String,
    /// The URLs for a whole response and for a stream.
    urls: [Url; 2],
    headers: HeaderMap,
    client: Client,
    timeouts: Timeouts,
    rows: &'static [FailureRule],
    wording: Wording,
    clock: Arc<dyn Clock>,
    kind_header: Option<&'static str>,
    signer: Option<Arc<dyn Sign>>,
    extra_body: Map<String, Value>,
}

impl Endpoint {
    /// Opens an endpoint. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`ProviderConfigError::InvalidBaseUrl`], [`ProviderConfigError::InvalidHeader`], [`ProviderConfigError::InvalidKey`],
    /// [`ProviderConfigError::Client`].
    pub(crate) fn open(settings: EndpointSettings<'_>) -> Result<Self, ProviderConfigError> {
        let wording = Wording::hiding(settings.secrets);
        let [whole, streamed] = &settings.paths;
        let url = |path| read_url(settings.base_url, path, &wording);
        let urls = [url(whole)?, url(streamed)?];
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // Without the header, a server may choose any coding.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        for (name, value) in settings.headers {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        if let Some(((name, prefix), key)) = settings.key {
            let text = format!("{prefix}{}", key.reveal());
            let mut value =
                HeaderValue::from_str(&text).map_err(|_| ProviderConfigError::InvalidKey)?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        header::add(&mut headers, settings.further_headers, settings.user_agent)?;
        let [url, _] = &urls;
        let base = url.as_str().strip_suffix(whole.as_str()).unwrap_or(url.as_str());
        Ok(Self {
            provider: settings.provider,
            model: settings.model.into(),
            is_own: settings.is_own,
            origin: url.origin().ascii_serialization().into(),
            base_url: connection::redact_base_url(base),
            client: open_client(url, settings.timeouts.connect)?,
            urls,
            headers,
            timeouts: settings.timeouts,
            rows: settings.rows,
            wording,
            clock: Arc::new(SystemClock),
            kind_header: settings.kind_header,
            signer: settings.signer,
            extra_body: settings.extra_body,
        })
    }

    /// Returns the name of the model.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the name or address of the host.
    #[must_use]
    pub fn host(&self) -> &str {
        self.urls[0].host_str().unwrap_or_default()
    }

    /// Returns whether this is the provider's own endpoint, with no other base URL set.
    #[must_use]
    pub const fn is_own(&self) -> bool {
        self.is_own
    }

    /// Makes the provider state of an answer of this provider and model; `None` without parts.
    pub(crate) fn make_provider_state(&self, parts: Vec<StatePart>) -> Option<ProviderState> {
        (!parts.is_empty()).then(|| {
            ProviderState::new(
                self.provider,
                Arc::clone(&self.model),
                Arc::clone(&self.origin),
                parts,
            )
        })
    }

    /// Returns the provider state of an answer; empty if it belongs to another provider, model or endpoint.
    #[must_use]
    pub fn state_parts<'s>(&self, state: Option<&'s ProviderState>) -> &'s [StatePart] {
        state.map_or(&[], |state| state.parts_for(self.provider, &self.model, &self.origin))
    }

    pub(crate) const fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Encodes the body of a request, with the extra fields.
    pub(crate) fn encode(&self, body: &impl Serialize) -> Result<Vec<u8>, ProviderError> {
        body_with(body, &self.extra_body).map_err(|error| {
            ProviderError::invalid_request(format!("the request cannot be written: {error}"), None)
        })
    }

    /// Posts a request, waits for the head of the response, and returns it with the requested retry
    /// delay. A status other than 2xx is an error.
    ///
    /// # Errors
    ///
    /// The class by rows and status; [`ProviderError::Timeout`] while connecting or waiting for the
    /// first byte; [`ProviderError::TransientError`] when the connection fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub(crate) async fn post(
        &self,
        body: Vec<u8>,
        is_streamed: bool,
        sink: Option<&dyn StreamSink>,
    ) -> Result<(Response, ResponseHead), ProviderError> {
        let url = &self.urls[usize::from(is_streamed)];
        check_request(url.host_str().unwrap_or_default())
            .map_err(|denied| ProviderError::Other(denied.into()))?;
        let headers = self.headers_for(url, &body)?;
        let request = self.client.post(url.clone()).headers(headers).body(body).send();
        let response = self
            .within(self.timeouts.first_byte, TimeoutPhase::FirstByte, request)
            .await?
            .map_err(|error| self.not_sent(error))?;
        let head = ResponseHead {
            retry_after: hints::retry_after(response.headers(), self.clock.now()),
            request_id: hint::request_id(response.headers()).map(|id| self.wording.clean(id)),
        };
        if let Some(sink) = sink {
            sink.status(response.status().as_u16());
            if let Some(id) = &head.request_id {
                sink.request_id(id);
            }
            let [requests, tokens] = rate::levels(response.headers(), self.clock.now());
            if requests.is_some() || tokens.is_some() {
                sink.rate(requests, tokens);
            }
        }
        if !response.status().is_success() {
            return Err(self.classify_response(response, &head).await);
        }
        match coding(response.headers()) {
            Some(coding) => Err(self.invalid_response(&describe_compression("the answer", coding))),
            None => Ok((response, head)),
        }
    }

    /// Classifies a failure inside a 200.
    pub(crate) fn failure(&self, body: Value, head: &ResponseHead) -> ProviderError {
        self.classify_body(None, &ErrorBody::read_json(body), head)
    }

    /// Makes [`ProviderError::InvalidResponse`] with text that may come from outside.
    pub(crate) fn invalid_response(&self, why: &str) -> ProviderError {
        ProviderError::InvalidResponse(self.wording.clean(why))
    }

    /// Maps a provider's own stop word: to [`StopReason::Unknown`], to the reason it names if it is
    /// one of ours, and to an error if it means that the provider failed.
    pub(crate) fn unknown_stop(&self, word: &str) -> Result<StopReason, ProviderError> {
        let shown = self.wording.clean(word);
        if is_failure_word(word) {
            let message = format!("provider broke the answer off: `{shown}`");
            return Err(ProviderError::transient(message, None));
        }
        Ok(StopReason::from_word(&shown))
    }

    /// Waits for `future`, but no longer than `limit`.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        phase: TimeoutPhase,
        future: impl Future<Output = T>,
    ) -> Result<T, ProviderError> {
        tokio::select! {
            biased;
            done = future => Ok(done),
            // Polled only if the future is pending: a chunk that is available needs no timer.
            () = async { self.clock.sleep(limit).await } => {
                Err(ProviderError::timeout(phase, Some(limit)))
            }
        }
    }

    /// Returns the headers of a request: the common ones and its signature.
    fn headers_for(&self, url: &Url, body: &[u8]) -> Result<HeaderMap, ProviderError> {
        let mut headers = self.headers.clone();
        if let Some(signer) = &self.signer {
            let url = url.as_str();
            let at = self.clock.now();
            let request = Unsigned { method: "POST", url, headers: &headers, body, at };
            let mut signature = signer.sign(&request)?;
            signature.values_mut().for_each(|value| value.set_sensitive(true));
            headers.extend(signature);
        }
        Ok(headers)
    }

    fn not_sent(&self, error: reqwest::Error) -> ProviderError {
        let error = error.without_url();
        if error.is_connect() && error.is_timeout() {
            return ProviderError::timeout(TimeoutPhase::Connect, Some(self.timeouts.connect))
                .with_hint(connection::unreachable_hint(&self.base_url));
        }
        let [url, _] = &self.urls;
        let host = url.host_str().unwrap_or_default();
        let place = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        connection::transport_error(error, &place, &self.base_url)
    }

    /// Classifies a response without a success status. A body that breaks off, hangs or drips
    /// leaves the status to decide.
    async fn classify_response(&self, response: Response, head: &ResponseHead) -> ProviderError {
        let status = response.status().as_u16();
        let kind = self.kind_header.and_then(|name| response.headers().get(name));
        let kind = kind.and_then(|kind| Some(kind.to_str().ok()?.to_owned()));
        let should_retry = hint::should_retry(response.headers());
        let said = match coding(response.headers()) {
            Some(coding) => ErrorBody::with_message(describe_compression("what it says", coding)),
            None => ErrorBody::read(&self.read_failure(response).await),
        };
        let mut said = ErrorBody { should_retry, ..said };
        if let Some(kind) = kind {
            said.add_kind(&kind);
        }
        self.classify_body(Some(status), &said, head)
    }

    /// Reads the body of a failure, as far as it arrives in time.
    async fn read_failure(&self, mut response: Response) -> Vec<u8> {
        let mut body = Vec::new();
        let limit = self.timeouts.idle.min(MAX_FAILURE_TIME);
        let read = async {
            while body.len() < MAX_FAILURE_BYTES
                && let Ok(Some(chunk)) = response.chunk().await
            {
                body.extend_from_slice(&chunk);
            }
        };
        // A slower body is used as far as it was read.
        let _ = self.within(limit, TimeoutPhase::Idle, read).await;
        if body.len() >= MAX_FAILURE_BYTES {
            // The last word may be half a secret, which redaction would not find.
            let word = body.iter().rposition(u8::is_ascii_whitespace);
            body.truncate(word.unwrap_or(0));
        }
        body
    }

    fn classify_body(
        &self,
        status: Option<u16>,
        said: &ErrorBody,
        head: &ResponseHead,
    ) -> ProviderError {
        let (class, status) = classify(self.rows, status, said);
        let in_words = || span::wait_in_words(&said.message);
        let retry_after = head.retry_after.or(said.retry_after).or_else(in_words);
        let mut message = self.wording.clean(&said.message);
        // The provider's support asks for the id.
        if let Some(id) = &head.request_id {
            let gap = if message.is_empty() { "" } else { " " };
            message.push_str(&format!("{gap}(request `{id}`)"));
        }
        if class == Class::Malformed {
            return MalformedAnswer::read(&said.body).into_error();
        }
        let error = class.into_error(status, &message, retry_after);
        match class {
            Class::NotFound => error.with_hint(self.not_found_hint()),
            _ => error,
        }
    }

    fn not_found_hint(&self) -> String {
        let base_url = &self.base_url;
        let [url, _] = &self.urls;
        match connection::repeated_path(url) {
            Some(path) => format!(
                "`/{path}` is twice in the path that was asked: take it from the end of base_url, \
                 which is `{base_url}`"
            ),
            None => format!("is there a model `{}`? base_url is `{base_url}`", self.model),
        }
    }
}

/// Prints the base URL, never the credentials.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("base_url", &self.base_url)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
