use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clock::{Clock, SystemClock};
use layer0::error::BoxError;
use layer0::message::{ProviderState, StatePart, StopReason};
use provider::{ProviderError, StreamSink, TimeoutPhase};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::classify::classify;
use crate::extra::body_with;
use crate::wording::Wording;
use crate::{Answer, ApiKey, ConfigError, Row, Said, Sign, Timeouts, Unsigned, connection, hint};

/// The most bytes of a failure's body that are read.
const MAX_FAILURE_BYTES: usize = 64 * 1024;

static REAL_REQUESTS_DENIED: AtomicBool = AtomicBool::new(false);

/// Refuses, from now on and in the whole process, every request that would leave the machine.
/// Test suites call it first.
pub fn deny_real_requests() {
    REAL_REQUESTS_DENIED.store(true, Ordering::Relaxed);
}

/// What an [`Endpoint`] is opened with.
#[derive(Debug, Clone)]
pub struct EndpointSettings<'a> {
    /// The provider's name.
    pub provider: &'static str,
    /// The model that is asked.
    pub model: &'a str,
    /// Scheme, host and path prefix; a slash at its end makes no difference.
    pub base_url: &'a str,
    /// What is appended, such as `/chat/completions`.
    pub path: &'a str,
    /// The key, where one is sent.
    pub credential: Option<Credential<'a>>,
    /// Further headers.
    pub headers: &'a [(&'static str, &'static str)],
    /// How long each phase may take.
    pub timeouts: Timeouts,
    /// What the provider's failures are.
    pub rows: &'static [Row],
}

/// A key and the header that carries it.
#[derive(Debug, Clone)]
pub struct Credential<'a> {
    /// The header, such as `authorization`.
    pub header: &'static str,
    /// What stands before the key, such as `Bearer `.
    pub prefix: &'static str,
    /// The key.
    pub key: &'a ApiKey,
}

/// One URL that model calls are posted to, with its own connections, which clones share.
#[derive(Clone)]
pub struct Endpoint {
    provider: &'static str,
    model: Arc<str>,
    /// Scheme, host and port.
    origin: Arc<str>,
    /// The base URL without what may be a secret.
    base_url: Arc<str>,
    url: Url,
    headers: HeaderMap,
    client: Client,
    timeouts: Timeouts,
    rows: &'static [Row],
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
    /// [`ConfigError::InvalidBaseUrl`], [`ConfigError::InvalidKey`], [`ConfigError::Client`].
    pub fn open(settings: &EndpointSettings<'_>) -> Result<Self, ConfigError> {
        let key = settings.credential.as_ref().map(|credential| credential.key);
        let wording = Wording::hiding(key);
        let url = url_of(settings, &wording)?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in settings.headers {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        if let Some(credential) = &settings.credential {
            let text = format!("{}{}", credential.prefix, credential.key.reveal());
            let mut value = HeaderValue::from_str(&text).map_err(|_| ConfigError::InvalidKey)?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(credential.header), value);
        }
        let client = client(&url, settings.timeouts.connect)?;
        let (timeouts, rows) = (settings.timeouts, settings.rows);
        let base = url.as_str().strip_suffix(settings.path).unwrap_or(url.as_str());
        Ok(Self {
            provider: settings.provider,
            model: settings.model.into(),
            origin: url.origin().ascii_serialization().into(),
            base_url: connection::shown(base).into(),
            url,
            headers,
            client,
            timeouts,
            rows,
            wording,
            clock: Arc::new(SystemClock),
            kind_header: None,
            signer: None,
            extra_body: Map::new(),
        })
    }

    /// Adds these fields to every request. Objects are merged at every depth; another value takes
    /// the place of what the adapter would send.
    #[must_use]
    pub fn extra_body(mut self, fields: Map<String, Value>) -> Self {
        self.extra_body = fields;
        self
    }

    /// Signs every request, after everything else in it is settled.
    #[must_use]
    pub fn signed_by(mut self, signer: Arc<dyn Sign>) -> Self {
        self.signer = Some(signer);
        self
    }

    /// Keeps a further secret out of errors, such as the key of a signer.
    #[must_use]
    pub fn hiding(mut self, secret: &ApiKey) -> Self {
        self.wording = self.wording.also_hiding(secret);
        self
    }

    /// Reads the type of a failure from this header of the answer too, in front of the body's.
    #[must_use]
    pub const fn kind_header(mut self, name: &'static str) -> Self {
        self.kind_header = Some(name);
        self
    }

    /// Opens a further path of the same base URL, over the same connections. Only base URL and path
    /// of the settings count.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidBaseUrl`].
    pub fn beside(&self, settings: &EndpointSettings<'_>) -> Result<Self, ConfigError> {
        let url = url_of(settings, &self.wording)?;
        let origin = url.origin().ascii_serialization().into();
        Ok(Self { url, origin, ..self.clone() })
    }

    /// Returns the model that is asked.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Makes what an answer of this provider and model wants back; `None` of no parts.
    #[must_use]
    pub fn state_of(&self, parts: Vec<StatePart>) -> Option<ProviderState> {
        (!parts.is_empty()).then(|| ProviderState {
            provider: self.provider.into(),
            model: Arc::clone(&self.model),
            endpoint: Arc::clone(&self.origin),
            parts: parts.into(),
        })
    }

    /// Returns what this provider and model wants back with an answer; nothing of another's.
    #[must_use]
    pub fn parts_of<'s>(&self, state: Option<&'s ProviderState>) -> &'s [StatePart] {
        state.map_or(&[], |state| state.parts_for(self.provider, &self.model, &self.origin))
    }

    /// Returns how long each phase may take.
    #[must_use]
    pub const fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Posts a request and waits for the head of the answer. A status other than 2xx is an error.
    ///
    /// # Errors
    ///
    /// What the rows and the status say; [`ProviderError::Timeout`] while connecting or waiting
    /// for the first byte; [`ProviderError::TransientError`] when the connection fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn post(
        &self,
        body: &(impl Serialize + Sync),
        sink: Option<&dyn StreamSink>,
    ) -> Result<Answer<'_>, ProviderError> {
        if REAL_REQUESTS_DENIED.load(Ordering::Relaxed) && !is_loopback(&self.url) {
            return Err(ProviderError::Other("real requests are denied in this process".into()));
        }
        let body = body_with(body, &self.extra_body).map_err(|error| {
            ProviderError::invalid_request(format!("request is no JSON: {error}"), None)
        })?;
        let headers = self.headers_for(&body)?;
        let request = self.client.post(self.url.clone()).headers(headers).body(body).send();
        let response = self
            .within(self.timeouts.first_byte, TimeoutPhase::FirstByte, request)
            .await?
            .map_err(|error| self.not_sent(error))?;
        if let Some(sink) = sink {
            sink.status(response.status().as_u16());
            if let Some(id) = hint::request_id(response.headers()) {
                sink.request_id(&self.wording.clean(id));
            }
        }
        let retry_after = hint::retry_after(response.headers(), self.clock.now());
        if response.status().is_success() {
            return Ok(Answer::new(self, response, retry_after));
        }
        Err(self.refused(response, retry_after).await)
    }

    /// Makes an answer of bytes that are here already, such as a recorded one. Its head says
    /// success and this content type; one that no header can carry is left out.
    #[must_use]
    pub fn recorded(&self, content_type: &str, body: impl Into<Vec<u8>>) -> Answer<'_> {
        let mut response = http::Response::new(body.into());
        if let Ok(value) = HeaderValue::from_str(content_type) {
            response.headers_mut().insert(CONTENT_TYPE, value);
        }
        Answer::new(self, response.into(), None)
    }

    /// Says what a failure inside a 200 is.
    #[must_use]
    pub fn failure(&self, body: Value, retry_after: Option<Duration>) -> ProviderError {
        self.classified(None, &Said::read_json(body), retry_after)
    }

    /// Makes [`ProviderError::InvalidResponse`], with words that may come from outside.
    #[must_use]
    pub fn invalid_response(&self, why: &str) -> ProviderError {
        ProviderError::InvalidResponse(self.wording.clean(why))
    }

    /// Makes [`StopReason::Unknown`] of a provider's word for why it stopped; the reason itself,
    /// where the word is one of ours.
    #[must_use]
    pub fn unknown_stop(&self, word: &str) -> StopReason {
        StopReason::named(&self.wording.clean(word))
    }

    /// Waits for `future`, and no longer than `limit`.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        phase: TimeoutPhase,
        future: impl Future<Output = T>,
    ) -> Result<T, ProviderError> {
        tokio::select! {
            biased;
            done = future => Ok(done),
            // Polled only when it has to be waited for: a chunk that is here needs no timer.
            () = async { self.clock.sleep(limit).await } => {
                Err(ProviderError::timeout(phase, Some(limit)))
            }
        }
    }

    /// Returns the headers of a request: those of all requests, and its signature.
    fn headers_for(&self, body: &[u8]) -> Result<HeaderMap, ProviderError> {
        let mut headers = self.headers.clone();
        if let Some(signer) = &self.signer {
            let url = self.url.as_str();
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
        let host = self.url.host_str().unwrap_or_default();
        let place = match self.url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        connection::failed(error, &place, &self.base_url)
    }

    /// Classifies an answer whose status is no success. A body that breaks off or hangs takes
    /// nothing from what the status says.
    async fn refused(
        &self,
        mut response: Response,
        retry_after: Option<Duration>,
    ) -> ProviderError {
        let status = response.status().as_u16();
        let kind = self.kind_header.and_then(|name| response.headers().get(name));
        let kind = kind.and_then(|kind| Some(kind.to_str().ok()?.to_owned()));
        let should_retry = hint::should_retry(response.headers());
        let mut body = Vec::new();
        while body.len() < MAX_FAILURE_BYTES
            && let Ok(Ok(Some(chunk))) =
                self.within(self.timeouts.idle, TimeoutPhase::Idle, response.chunk()).await
        {
            body.extend_from_slice(&chunk);
        }
        if body.len() >= MAX_FAILURE_BYTES {
            // What was cut may be half a secret, which nobody would find.
            let word = body.iter().rposition(u8::is_ascii_whitespace);
            body.truncate(word.unwrap_or(0));
        }
        let mut said = Said { should_retry, ..Said::read(&body) };
        if let Some(kind) = kind {
            said.add_kind(&kind);
        }
        self.classified(Some(status), &said, retry_after)
    }

    fn classified(
        &self,
        status: Option<u16>,
        said: &Said,
        retry_after: Option<Duration>,
    ) -> ProviderError {
        let (class, status) = classify(self.rows, status, said);
        let retry_after = retry_after.or(said.retry_after);
        class.into_error(status, &self.wording.clean(&said.message), retry_after)
    }
}

/// Prints where it posts to, never what it authenticates with.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("base_url", &self.base_url)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

fn url_of(settings: &EndpointSettings<'_>, wording: &Wording) -> Result<Url, ConfigError> {
    let invalid = |reason: &str| ConfigError::InvalidBaseUrl {
        url: wording.clean(&connection::shown(settings.base_url)),
        reason: reason.to_owned(),
    };
    let base = settings.base_url.trim().trim_end_matches('/');
    let parsed = Url::parse(base).map_err(|error| invalid(&error.to_string()))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(invalid("the scheme is neither `http` nor `https`"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(invalid("it carries a user name or a password"));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(invalid("a path is appended to it, so it cannot end in `?…` or `#…`"));
    }
    Url::parse(&format!("{base}{}", settings.path)).map_err(|error| invalid(&error.to_string()))
}

fn client(url: &Url, connect: Duration) -> Result<Client, ConfigError> {
    // What other parts of the process have reqwest do is not asked for here: each of these is on
    // for every client as soon as any crate enables its feature.
    let builder = Client::builder()
        .tls_backend_rustls()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .no_hickory_dns()
        .dns_resolver(connection::SystemResolver)
        .connect_timeout(connect)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never());
    // A proxy is for what leaves the machine.
    let builder = if is_loopback(url) { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| ConfigError::Client(BoxError::from(error)))
}

pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests;
