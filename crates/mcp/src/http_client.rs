//! The client of HTTP that servers and their logins are asked with.

use std::net::SocketAddr;
use std::time::Duration;

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::Client;
use reqwest::redirect::{Attempt, Policy};

/// How long connecting to a server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How many redirects within the server are followed.
const MAX_REDIRECTS: usize = 5;

/// Makes the client of a server, which looks for a host nowhere but at these addresses where there are some.
pub(crate) fn http_client(
    is_loopback: bool,
    at: Option<(&str, &[SocketAddr])>,
) -> reqwest::Result<Client> {
    // What other parts of the process have reqwest do is not asked for here: each of these is on
    // for every client as soon as any crate enables its feature.
    // Some servers compress what does not say that it must not be.
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
    // A proxy is for what leaves the machine.
    let builder = if is_loopback { builder.no_proxy() } else { builder };
    let builder = match at {
        Some((host, addresses)) => builder.resolve_to_addrs(host, addresses),
        None => builder,
    };
    builder.build()
}

/// Follows what leads to another path of the server and keeps the message. Another server would get the
/// credentials of this one.
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
