//! Failures of a request, as the model reads them.

use std::error::Error;
use std::io;
use std::time::Duration;

use backstop_tool::ToolError;
use layer0::failure::Retry;
use reqwest::StatusCode;

/// Creates the failure of a request, with its cause.
pub(super) fn request_error(cause: impl AsRef<str>) -> ToolError {
    ToolError::ExecutionFailed(format!("HTTP request failed: {}", cause.as_ref()))
}

/// Creates the failure of a request without a response.
pub(super) fn not_sent(error: &reqwest::Error) -> ToolError {
    request_error(cause(error))
}

/// Creates the failure for an error status.
pub(super) fn status_error(status: StatusCode, body: &str, wait: Option<Duration>) -> ToolError {
    let number = status.as_u16();
    let reason = status.canonical_reason().map(|reason| format!(" {reason}")).unwrap_or_default();
    let text = match body.trim() {
        "" => format!("{number}{reason}"),
        body => format!("{number}{reason}\n{body}"),
    };
    let error = request_error(text).with_code(format!("http_{number}"));
    match (number, wait) {
        (429 | 503, Some(wait)) => error.with_retry(Retry::After(wait)),
        (408 | 425 | 429 | 500 | 502..=504, _) => error.with_retry(Retry::Backoff),
        _ => error,
    }
}

/// Returns the first cause, in its shortest form.
fn cause(error: &reqwest::Error) -> String {
    let mut last: &dyn Error = error;
    let mut kind = None;
    while let Some(source) = last.source() {
        last = source;
        kind = source.downcast_ref().map(io::Error::kind).or(kind);
    }
    match kind {
        Some(
            kind @ (io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::UnexpectedEof),
        ) => kind.to_string(),
        _ if error.is_timeout() && error.is_connect() => "connecting took too long".to_owned(),
        _ => last.to_string(),
    }
}
