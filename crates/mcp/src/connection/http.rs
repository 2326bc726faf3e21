//! Messages over streamable HTTP.

mod answer;
mod common;
mod events;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_process::check_request;
use futures_util::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use layer0::failure::Chain;
use reqwest::{Client, RequestBuilder, Response};
use rmcp::model::{ClientJsonRpcMessage, RequestId};
use rmcp::transport::common::client_side_sse::FixedInterval;
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransport,
    StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio::sync::Notify;

use super::said;
use super::wire::{self, Wire};
use crate::MAX_MESSAGE_BYTES;
use crate::fault::McpFault;
use crate::oauth::{Login, LoginError};
use crate::secrets::Secrets;

/// Maximum number of concurrent requests.
const MAX_POSTS: usize = 64;
/// Maximum number of attempts to resume the stream of a response.
const MAX_RESUMES: usize = 3;

type HttpError = StreamableHttpError<HttpFault>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// HTTP client of a server.
///
/// This client is based on `reqwest`. The one of `rmcp` returns statuses as text, and guesses the kinds of results.
/// Sessions, streams and their order are handled by `rmcp`.
#[derive(Clone)]
pub(super) struct Http {
    pub(super) client: Client,
    pub(super) wire: Arc<Wire>,
    pub(super) login: Option<Arc<Login>>,
    pub(super) secrets: Arc<Secrets>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) probe_timeout: Duration,
    /// Notified when changes of the server's tools may have been missed.
    pub(super) changed: Arc<Notify>,
}

/// Fault that kept a message from being answered.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct HttpFault(pub(super) McpFault);

/// Builds the transport to a server.
pub(super) fn transport(
    url: &str,
    headers: Headers,
    http: Http,
) -> StreamableHttpClientTransport<Http> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(headers)
        // That would send requests again that may have acted.
        .reinit_on_expired_session(false)
        .max_concurrent_requests(MAX_POSTS)
        .max_sse_event_size(MAX_MESSAGE_BYTES)
        .max_json_response_size(MAX_MESSAGE_BYTES);
    // A stream resumes after the last received event; no request is repeated.
    let mut resume = FixedInterval::default();
    resume.max_times = Some(MAX_RESUMES);
    config.retry_config = Arc::new(resume);
    StreamableHttpClientTransport::with_client(http, config)
}

impl Http {
    /// Returns the context for reading a response.
    fn reading(&self) -> answer::ResponseContext<'_> {
        answer::ResponseContext { wire: &self.wire, secrets: &self.secrets, clock: &*self.clock }
    }

    /// Sends a request, and logs in if the server requires it.
    async fn send(
        &self,
        request: RequestBuilder,
        id: Option<&RequestId>,
    ) -> Result<Response, HttpError> {
        let Some((login, again)) = self.login.as_ref().zip(request.try_clone()) else {
            return self.send_once(request, id).await;
        };
        let token = login.token().await;
        let first = match &token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let response = self.send_once(first, id).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        // A request that was refused for its credentials has had no effect, so it is sent again.
        let challenge = response.headers().get(WWW_AUTHENTICATE);
        let challenge = challenge.and_then(|challenge| challenge.to_str().ok());
        match login.renew(token.as_deref(), challenge).await {
            Ok(token) => self.send_once(again.bearer_auth(token), id).await,
            Err(LoginError::AddressDenied { host, address }) => {
                Err(fault(McpFault::AddressDenied { host, address }))
            }
            Err(LoginError::Failed(why)) => {
                let text = format!("logging in failed: {why}");
                Err(fault(McpFault::Status { status: 401, retry_after: None, text }))
            }
        }
    }

    /// Sends a request, and records whether the server may have received it.
    async fn send_once(
        &self,
        request: RequestBuilder,
        id: Option<&RequestId>,
    ) -> Result<Response, HttpError> {
        let (client, request) = request.build_split();
        let request = request.map_err(|error| {
            fault(McpFault::NotSent(format!("cannot be asked: {}", Chain(&error.without_url()))))
        })?;
        check_request(request.url().host_str().unwrap_or_default())
            .map_err(|denied| fault(McpFault::NotSent(format!("is not asked: {denied}"))))?;
        if let Some(id) = id {
            self.wire.mark_left(id);
        }
        client.execute(request).await.map_err(|error| {
            let error = error.without_url();
            let is_unsent = error.is_connect();
            let why = Chain(&error);
            if !is_unsent {
                return fault(McpFault::Lost(format!("went away: {why}")));
            }
            if let Some(id) = id {
                self.wire.never_left(id);
            }
            fault(McpFault::NotSent(format!("cannot be reached: {why}")))
        })
    }

    /// Adds the headers of a request for a stream.
    fn with_stream_headers(
        request: RequestBuilder,
        session: Option<&str>,
        last_event: Option<&str>,
        headers: Headers,
    ) -> RequestBuilder {
        let request = Self::with_headers(request, session, headers);
        match last_event {
            Some(last_event) => request.header(HEADER_LAST_EVENT_ID, last_event),
            None => request,
        }
    }

    /// Adds the headers of every request.
    fn with_headers(
        request: RequestBuilder,
        session: Option<&str>,
        headers: Headers,
    ) -> RequestBuilder {
        let request = request.header(ACCEPT, [JSON_MIME_TYPE, EVENT_STREAM_MIME_TYPE].join(", "));
        let request = match session {
            Some(session) => request.header(HEADER_SESSION_ID, session),
            None => request,
        };
        headers.into_iter().fold(request, |request, (name, value)| request.header(name, value))
    }
}

impl StreamableHttpClient for Http {
    type Error = HttpFault;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let id = self.wire.begin(&message);
        if session.is_some() {
            self.wire.in_session();
        }
        let body = said::write_message(&message)?;
        let request = self.client.post(&*uri).header(CONTENT_TYPE, JSON_MIME_TYPE).body(body);
        let request = Self::with_headers(request, session.as_deref(), headers);
        let answered = async {
            let response = self.send(request, id.as_ref()).await?;
            answer::read(response, &message, session.is_some(), &self.reading())
                .await
                .map_err(fault)
        };
        match (&message, &id) {
            (ClientJsonRpcMessage::Request(asked), Some(id)) if wire::is_probe(&asked.request) => {
                tokio::select! {
                    answered = answered => answered,
                    () = self.clock.sleep(self.probe_timeout) => {
                        let unknown = self.wire.unknown(id);
                        Ok(StreamableHttpPostResponse::Json(unknown, None))
                    }
                }
            }
            _ => answered.await,
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), HttpError> {
        let request = Self::with_headers(self.client.delete(&*uri), Some(&session), headers);
        // The session is forgotten, whatever the server answers.
        self.send(request, None).await.map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        // The stream of a response resumes after an event; the common stream begins without one.
        let (session, last_event) = match (session, last_event) {
            (Some(session), None) => {
                return self.clone().open_common(uri, session, headers).await;
            }
            other => other,
        };
        let (session, last_event) = (session.as_deref(), last_event.as_deref());
        let request =
            Self::with_stream_headers(self.client.get(&*uri), session, last_event, headers);
        let response = self.send(request, None).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status if status.is_success() && answer::is(&response, EVENT_STREAM_MIME_TYPE) => {
                Ok(events::read(response, None, Arc::clone(&self.wire)))
            }
            // A response that is no stream cannot carry unrequested messages.
            status if status.is_success() => Err(StreamableHttpError::ServerDoesNotSupportSse),
            _ => Err(fault(answer::read_fault(response, &self.reading()).await)),
        }
    }
}

fn fault(fault: McpFault) -> HttpError {
    StreamableHttpError::Client(HttpFault(fault))
}
