//! HTTP client for servers and their logins.

use std::net::SocketAddr;
use std::time::Duration;

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::Client;
use reqwest::redirect::{Attempt, Policy};

/// Time limit of connecting to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of redirects within the server.
const MAX_REDIRECTS: usize = 5;

/// Builds the client of a server; if addresses are given for a host, it connects only to them.
pub(crate) fn http_client(
    is_loopback: bool,
    at: Option<(&str, &[SocketAddr])>,
) -> reqwest::Result<Client> {
    // Features of reqwest that other parts of the process use are turned off here: each is on for every client as soon
    // as any crate enables it.
    // Some servers compress responses unless the request forbids it.
    let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
    let builder = Client::builder()
        .tls_backend_rustls()
        .default_headers(headers)
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(Policy::custom(redirect))
        .retry(reqwest::retry::never());
    // A proxy is only for connections that leave the machine.
    let builder = if is_loopback { builder.no_proxy() } else { builder };
    let builder = match at {
        Some((host, addresses)) => builder.resolve_to_addrs(host, addresses),
        None => builder,
    };
    builder.build()
}

/// Follows redirects to other paths of the server that keep the message. Another server would receive the credentials
/// of this one.
fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let keeps_message =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let is_same =
        attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    match keeps_message && is_same && attempt.previous().len() <= MAX_REDIRECTS {
        true => attempt.follow(),
        false => attempt.stop(),
    }
}
