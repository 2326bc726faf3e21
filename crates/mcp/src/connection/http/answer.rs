//! Responses of a server to one message.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_process::hints::retry_after;
use futures_util::StreamExt;
use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, LOCATION};
use layer0::failure::Chain;
use layer0::read_value;
use layer0::text::replace_lone_surrogates;
use reqwest::Response;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::StreamableHttpPostResponse;
use serde_json::value::{RawValue, to_raw_value};

use super::events;
use crate::MAX_MESSAGE_BYTES;
use crate::connection::wire::{self, SHOWN_CHARS, Wire};
use crate::fault::McpFault;
use crate::secrets::Secrets;

/// Maximum size of a response that is no message of the protocol, in bytes.
const MAX_FAILURE_BYTES: usize = 64 * 1024;
/// Time limit of reading such a response. Its status is known before.
const MAX_FAILURE_TIME: Duration = Duration::from_secs(2);
/// Maximum length of a shown content coding, in characters.
const SHOWN_CODING_CHARS: usize = 20;

/// Context for reading a response.
#[derive(Clone, Copy)]
pub(super) struct ResponseContext<'a> {
    pub(super) wire: &'a Arc<Wire>,
    pub(super) secrets: &'a Secrets,
    pub(super) clock: &'a dyn Clock,
}

impl ResponseContext<'_> {
    /// Returns the wait that a server asks for.
    fn retry_after(&self, response: &Response) -> Option<Duration> {
        // time of day: a date in the header refers to it, where the server does not tell its own.
        retry_after(response.headers(), self.clock.now())
    }
}

/// Reads the response to a message.
pub(super) async fn read(
    response: Response,
    message: &ClientJsonRpcMessage,
    has_session: bool,
    reading: &ResponseContext<'_>,
) -> Result<StreamableHttpPostResponse, McpFault> {
    let wire = reading.wire;
    let status = response.status();
    let ClientJsonRpcMessage::Request(request) = message else {
        // The message is no request, so the body of the response is ignored.
        return match status.is_success() {
            true => Ok(StreamableHttpPostResponse::Accepted),
            false => Err(read_fault(response, reading).await),
        };
    };
    if !status.is_success() {
        let is_probe = matches!(request.request, ClientRequest::DiscoverRequest(_));
        return read_failure(response, &request.id, is_probe, has_session, reading).await;
    }
    if let Some(fault) = compression_fault(&response) {
        return Err(fault);
    }
    let session = response.headers().get(HEADER_SESSION_ID);
    let session = session.and_then(|session| session.to_str().ok()).map(str::to_owned);
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    if is(&response, EVENT_STREAM_MIME_TYPE) {
        let events = events::read(response, Some(request.id.clone()), Arc::clone(wire));
        return Ok(StreamableHttpPostResponse::Sse(events, session));
    }
    if !is(&response, JSON_MIME_TYPE) {
        let kind = response.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes());
        let kind = kind.map(String::from_utf8_lossy).unwrap_or_default().into_owned();
        let came = excerpt_body(&beginning(response, reading).await, reading.secrets);
        let came = if came.is_empty() { came } else { format!(": {came}") };
        return Err(McpFault::Unreadable(format!("the answer has content type `{kind}`{came}")));
    }
    let body = whole(response).await?;
    let text = String::from_utf8_lossy(&body);
    let text = replace_lone_surrogates(&text);
    let written: &RawValue = serde_json::from_str(&text).map_err(|_| wire.not_json(&text))?;
    Ok(match wire.read(wire::only_answer(written, Some(&request.id)), Some(&request.id)) {
        Some(message) => StreamableHttpPostResponse::Json(message, session),
        // The answer to another request; the answer to this one may still arrive.
        None => StreamableHttpPostResponse::Accepted,
    })
}

/// Returns whether a response has this content type.
pub(super) fn is(response: &Response, kind: &str) -> bool {
    let found = response.headers().get(CONTENT_TYPE).and_then(|found| found.to_str().ok());
    let found = found.and_then(|found| found.split(';').next()).unwrap_or_default();
    found.trim().eq_ignore_ascii_case(kind)
}

/// Returns a fault if the response is compressed, which each request forbids.
pub(super) fn compression_fault(response: &Response) -> Option<McpFault> {
    let coding = coding(response)?;
    Some(McpFault::Unreadable(format!(
        "the answer is compressed (`{coding}`), which was not asked for"
    )))
}

fn coding(response: &Response) -> Option<String> {
    let coding = response.headers().get(CONTENT_ENCODING)?;
    let coding = String::from_utf8_lossy(coding.as_bytes()).trim().to_ascii_lowercase();
    let coding: String = coding.chars().take(SHOWN_CODING_CHARS).collect();
    (!matches!(&*coding, "" | "identity")).then_some(coding)
}

/// Returns the fault of an unexpected response.
pub(super) async fn read_fault(response: Response, reading: &ResponseContext<'_>) -> McpFault {
    let status = response.status().as_u16();
    let retry_after = reading.retry_after(&response);
    let text = match response.status().is_redirection() {
        true => leads_to(&response),
        false => excerpt_body(&beginning(response, reading).await, reading.secrets),
    };
    McpFault::Status { status, retry_after, text }
}

/// Reads a response without success: a protocol error or another body.
async fn read_failure(
    response: Response,
    id: &RequestId,
    is_probe: bool,
    has_session: bool,
    reading: &ResponseContext<'_>,
) -> Result<StreamableHttpPostResponse, McpFault> {
    let ResponseContext { wire, secrets, .. } = reading;
    let status = response.status();
    let retry_after = reading.retry_after(&response);
    let means_itself =
        [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];
    if means_itself.contains(&status) || status.is_redirection() {
        return Err(read_fault(response, reading).await);
    }
    let is_json = is(&response, JSON_MIME_TYPE);
    let body = beginning(response, reading).await;
    let said = String::from_utf8_lossy(&body);
    let said = read_value(&replace_lone_surrogates(&said)).ok();
    let said = said.filter(|_| is_json).unwrap_or_default();
    // Gateways answer with JSON of their own; if they fail, the status determines whether the request was run.
    let is_protocol = said["jsonrpc"] == "2.0" && said["error"].is_object();
    // Without the id of the request, the answer is that of the transport: there is no such session.
    let is_own = is_protocol && said["id"] == id.clone().into_json_value();
    if status == StatusCode::NOT_FOUND && has_session && !is_own {
        let text = "the session is over".to_owned();
        return Err(McpFault::Status { status: status.as_u16(), retry_after, text });
    }
    let is_failure = status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT;
    if is_protocol && (is_probe || !is_failure) {
        let mut error = said;
        // A server that could not read the request does not know its id.
        error["id"] = id.clone().into_json_value();
        wire.record_status(id, status.as_u16());
        let error = to_raw_value(&error).ok();
        if let Some(message) = error.and_then(|error| wire.read(&error, None)) {
            return Ok(StreamableHttpPostResponse::Json(message, None));
        }
        return Err(McpFault::Status { status: status.as_u16(), retry_after, text: String::new() });
    }
    let text = match said["error"]["message"].as_str() {
        Some(message) => excerpt_body(message.as_bytes(), secrets),
        None => excerpt_body(&body, secrets),
    };
    let is_unknown =
        matches!(status, StatusCode::INTERNAL_SERVER_ERROR | StatusCode::NOT_IMPLEMENTED);
    if is_probe && (status.is_client_error() || is_unknown) {
        // A server that does not know the request has an earlier revision.
        let error = ErrorData::invalid_request(format!("HTTP {status}: {text}"), None);
        let message = ServerJsonRpcMessage::error(error, Some(id.clone()));
        return Ok(StreamableHttpPostResponse::Json(message, None));
    }
    Err(McpFault::Status { status: status.as_u16(), retry_after, text })
}

/// Reads a whole response of bounded size.
async fn whole(response: Response) -> Result<Vec<u8>, McpFault> {
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| {
            McpFault::Lost(format!("cut its answer: {}", Chain(&error.without_url())))
        })?;
        if body.len() + piece.len() > MAX_MESSAGE_BYTES {
            let why = format!("the answer is larger than {MAX_MESSAGE_BYTES} bytes");
            return Err(McpFault::Unreadable(why));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// Reads the beginning of a response, within a time limit.
async fn beginning(response: Response, reading: &ResponseContext<'_>) -> Vec<u8> {
    if let Some(coding) = coding(&response) {
        return format!("its text is compressed (`{coding}`)").into_bytes();
    }
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    let all = async {
        while let Some(Ok(piece)) = pieces.next().await {
            body.extend_from_slice(&piece);
            if body.len() >= MAX_FAILURE_BYTES {
                body.truncate(MAX_FAILURE_BYTES);
                break;
            }
        }
    };
    tokio::select! {
        () = all => {}
        () = reading.clock.sleep(MAX_FAILURE_TIME) => {}
    }
    body
}

/// Returns the beginning of a text, without a partial secret.
fn excerpt_body(body: &[u8], secrets: &Secrets) -> String {
    secrets.redact(&String::from_utf8_lossy(body)).trim().chars().take(SHOWN_CHARS).collect()
}

/// Returns the target of a redirect, as far as it may be shown.
fn leads_to(response: &Response) -> String {
    let location = response.headers().get(LOCATION).map(|value| value.as_bytes());
    let location = location.map(String::from_utf8_lossy).unwrap_or_default();
    match response.url().join(&location) {
        Ok(url) => {
            format!("a redirect to `{}` is not followed", url.origin().ascii_serialization())
        }
        Err(_) => "a redirect to no URL".to_owned(),
    }
}
