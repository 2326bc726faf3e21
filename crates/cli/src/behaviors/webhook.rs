//! The behaviour of a server.

use std::borrow::Cow;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_process::hints::retry_after;
use backstop_process::{RequestDenied, check_request, is_loopback};
use backstop_redact::Redactor;
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Response, StatusCode, Url};
use thiserror::Error;

use super::failure_text::format_beginning;
use super::signature::SigningKey;
use crate::exit::CliError;

/// Timeout of the connection; the behaviour's timeout limits the whole delivery.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Size of the part of a response body that is read, in bytes, and the time limit of reading it: the status is known
/// without it.
const MAX_BODY_BYTES: usize = 16 * 1024;
const MAX_BODY_TIME: Duration = Duration::from_secs(2);
/// User agent of the command.
const USER_AGENT: &str = concat!("backstop/", env!("CARGO_PKG_VERSION"));

/// A server that gets each delivery by POST.
pub(super) struct Webhook {
    url: Url,
    client: Client,
    headers: HeaderMap,
    key: Option<SigningKey>,
    redactor: Redactor,
}

/// An error of the delivery to a server.
#[derive(Debug, Error)]
pub(super) enum WebhookError {
    /// It is on another machine, and this process sends nothing there.
    ///
    /// Retry: never. Effect: none.
    #[error("nothing was sent")]
    Denied(#[source] RequestDenied),
    /// It refused what was sent.
    ///
    /// Retry: never. Effect: unknown.
    #[error("the server answered {status}{said}")]
    Refused { status: StatusCode, said: String },
    /// It answered with a redirect, which is not followed.
    ///
    /// Retry: never. Effect: none.
    #[error("the server answered {status} and points to {to}; redirects are not followed")]
    Redirected { status: StatusCode, to: String },
    /// It answered 408, 429 or 5xx.
    ///
    /// Retry: after the hint, else with backoff. Effect: unknown.
    #[error("the server answered {status}{said}")]
    Unavailable { status: StatusCode, wait: Option<Duration>, said: String },
    /// There was no connection, or none that held.
    ///
    /// Retry: with backoff. Effect: unknown, none if there was no connection.
    #[error("the server did not answer")]
    Unreachable(#[source] reqwest::Error),
}

impl Failure for WebhookError {
    fn facts(&self) -> Facts {
        match self {
            Self::Denied(_) => Facts::never(code::BEHAVIOR_FAILED, Effect::None),
            Self::Refused { .. } => Facts::never(code::BEHAVIOR_FAILED, Effect::Unknown),
            Self::Redirected { .. } => Facts::never(code::BEHAVIOR_FAILED, Effect::None),
            Self::Unavailable { wait, .. } => {
                Facts::from_hint(code::BEHAVIOR_FAILED, *wait, Effect::Unknown)
            }
            Self::Unreachable(error) if error.is_connect() => {
                Facts::backoff(code::BEHAVIOR_FAILED, Effect::None)
            }
            Self::Unreachable(_) => Facts::backoff(code::BEHAVIOR_FAILED, Effect::Unknown),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Redirected { .. } => Some("give its `url` as it answers itself".into()),
            _ => None,
        }
    }
}

impl Webhook {
    /// Returns the webhook of a URL, which is `http` or `https` and has a host.
    pub(super) fn new(url: Url, redactor: Redactor) -> Result<Self, CliError> {
        let builder = Client::builder()
            .tls_backend_rustls()
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .no_hickory_dns()
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT_TIMEOUT)
            .referer(false)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never());
        // A proxy is only for requests that leave the machine.
        let builder =
            if url.host_str().is_some_and(is_loopback) { builder.no_proxy() } else { builder };
        let client = builder.build();
        let client = client.map_err(|error| CliError::internal("making an HTTP client", error))?;
        Ok(Self { url, client, headers: HeaderMap::new(), key: None, redactor })
    }

    /// Adds a header to each request; returns `None` for an invalid header.
    pub(super) fn header(mut self, name: &str, value: &str) -> Option<Self> {
        let mut value = HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        self.headers.append(HeaderName::from_bytes(name.as_bytes()).ok()?, value);
        Some(self)
    }

    /// Sets the key that signs each request.
    pub(super) fn signed_with(mut self, key: SigningKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Sends a delivery.
    pub(super) async fn tell(&self, id: &str, json: String) -> Result<(), WebhookError> {
        check_request(self.url.host_str().unwrap_or_default()).map_err(WebhookError::Denied)?;
        let id = key(id);
        let request = self.client.post(self.url.clone()).headers(self.headers.clone());
        let mut request =
            request.header(CONTENT_TYPE, "application/json").header("idempotency-key", &id);
        if let Some(key) = &self.key {
            for (name, value) in key.headers(&id, &json, SystemClock.now()) {
                request = request.header(name, value);
            }
        }
        let sent = request.body(json).send().await;
        let response = sent.map_err(|error| WebhookError::Unreachable(error.without_url()))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let wait = retry_after(response.headers(), SystemClock.now());
        if status.is_redirection() {
            let to =
                response.headers().get(LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes()));
            let to = self.redactor.redact(to.as_deref().unwrap_or("nowhere")).into_owned();
            return Err(WebhookError::Redirected { status, to });
        }
        let said = format_beginning(&self.redactor.redact(&body(response).await));
        let is_temporary = matches!(status.as_u16(), 408 | 429) || status.is_server_error();
        Err(match is_temporary {
            true => WebhookError::Unavailable { status, wait, said },
            false => WebhookError::Refused { status, said },
        })
    }
}

/// Returns the id of a delivery in a form for a header: bytes that are not printable ASCII, and `%`, are
/// percent-encoded.
fn key(id: &str) -> String {
    let is_plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic() && byte != b'%';
    let encoded = |byte: u8| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    id.bytes().map(encoded).collect()
}

/// Reads the beginning of a response body, as far as it comes in time.
async fn body(mut response: Response) -> String {
    let mut read = Vec::new();
    let reading = async {
        while read.len() < MAX_BODY_BYTES
            && let Ok(Some(piece)) = response.chunk().await
        {
            read.extend_from_slice(&piece);
        }
    };
    tokio::select! {
        () = reading => {}
        () = SystemClock.sleep(MAX_BODY_TIME) => {}
    }
    read.truncate(MAX_BODY_BYTES);
    String::from_utf8_lossy(&read).into_owned()
}

#[cfg(test)]
mod tests {
    use backstop_testkit::{Ending, Loopback, Reply};
    use layer0::failure::chain;

    use super::*;

    /// Spec: X8
    #[test]
    fn key_is_the_id_as_ascii() {
        for (id, expected) in [
            ("tell ops/run_1/7", "tell ops/run_1/7"),
            ("tell ops/zähl 5%/7", "tell ops/z%C3%A4hl 5%25/7"),
        ] {
            assert_eq!(key(id), expected);
        }
    }

    /// Spec: X8, P8
    #[tokio::test]
    async fn status_outlives_a_body_that_hangs() {
        let refusal = Reply::new(422, "text/plain", "no such field, said slowly");
        let server = Loopback::replying([refusal.ending(Ending::HangAt(13))]);
        let url = format!("http://127.0.0.1:{}/", server.address().port());
        let Ok(webhook) = Webhook::new(url.parse().unwrap(), Redactor::new()) else {
            panic!("it is made")
        };
        let told = webhook.tell("tell/run_1/7", "{}".to_owned()).await;
        let text = chain(&told.unwrap_err()).join(": ");
        assert_eq!(text, "the server answered 422 Unprocessable Entity: no such field");
    }
}
