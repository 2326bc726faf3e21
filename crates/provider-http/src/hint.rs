use reqwest::header::HeaderMap;

/// The headers that carry the provider's id of a request.
const REQUEST_IDS: [&str; 4] =
    ["request-id", "x-request-id", "x-amzn-requestid", "apim-request-id"];

/// Returns the provider's id of a request: at most 128 visible characters.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<&str> {
    let id = REQUEST_IDS.iter().find_map(|name| headers.get(*name))?.to_str().ok()?.trim();
    let is_seen = |byte: u8| byte.is_ascii_graphic();
    ((1..=128).contains(&id.len()) && id.bytes().all(is_seen)).then_some(id)
}

/// Reads the provider's advice on whether to retry.
pub(crate) fn should_retry(headers: &HeaderMap) -> Option<bool> {
    match headers.get("x-should-retry")?.as_bytes().trim_ascii() {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}
