//! Codings of bodies, such as compression, none of which is asked for.

use reqwest::header::{CONTENT_ENCODING, HeaderMap};

/// Returns the coding of a body, such as `gzip`, unless it is none.
pub(crate) fn coding(headers: &HeaderMap) -> Option<&str> {
    let coding = headers.get(CONTENT_ENCODING)?.to_str().unwrap_or("an unknown coding").trim();
    Some(coding).filter(|it| !it.is_empty() && !it.eq_ignore_ascii_case("identity"))
}

/// Names a coding that was not asked for.
pub(crate) fn compressed(what: &str, coding: &str) -> String {
    format!("{what} is compressed with `{coding}`, which was not asked for")
}
