//! Cross-origin requests (CORS): answers to preflights, and the headers that let a page read an answer.
//!
//! A page's request has an `Origin`. Before its first request, the browser asks by `OPTIONS` whether the page may send
//! it, without the token. Answers must name the origin, or the browser keeps them from the page
//! (<https://fetch.spec.whatwg.org/#http-cors-protocol>).

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
    VARY,
};
use http::{HeaderMap, HeaderValue, Method};

use crate::origin;

/// Headers that a client of the protocol sends.
const SENT: &str = "authorization, content-type, last-event-id, mcp-method, mcp-name, \
    mcp-protocol-version, mcp-session-id";
/// Headers of answers that a client of the protocol reads.
const READ: &str = "mcp-session-id, mcp-protocol-version, www-authenticate, retry-after";
/// Time for which a browser keeps an answer, in seconds.
const KEPT: &str = "600";

/// Returns the origin of a request, if its pages are allowed.
pub(crate) fn allowed_page(headers: &HeaderMap, allowed: &[String]) -> Option<HeaderValue> {
    let page = headers.get(ORIGIN)?;
    page.to_str().is_ok_and(|page| origin::is_allowed(page, allowed)).then(|| page.clone())
}

/// Returns whether a browser asks what a page may send.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Adds what a page of this origin may send.
pub(crate) fn allow_requests(headers: &mut HeaderMap, page: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(SENT));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(KEPT));
    show_answer(headers, page);
}

/// Adds that a page of this origin may read the answer.
pub(crate) fn show_answer(headers: &mut HeaderMap, page: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, page);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(READ));
    headers.append(VARY, HeaderValue::from_static("origin"));
}
