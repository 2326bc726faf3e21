//! Content codings of bodies, such as compression. No request accepts any.

use reqwest::header::{CONTENT_ENCODING, HeaderMap};

/// Returns the content coding of a body, such as `gzip`; `None` for `identity`.
pub(crate) fn coding(headers: &HeaderMap) -> Option<&str> {
    let coding = headers.get(CONTENT_ENCODING)?.to_str().unwrap_or("an unknown coding").trim();
    Some(coding).filter(|it| !it.is_empty() && !it.eq_ignore_ascii_case("identity"))
}

/// Describes a body with a coding that was not requested.
pub(crate) fn describe_compression(what: &str, coding: &str) -> String {
    format!("{what} is compressed with `{coding}`, which was not asked for")
}
