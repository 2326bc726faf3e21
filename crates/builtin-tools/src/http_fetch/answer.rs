//! Conversion of a response for the model.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_process::hints::retry_after;
use backstop_tool::{ToolContext, ToolError};
use encoding_rs::{Encoding, UTF_8};
use layer0::JsonText;
use reqwest::Response;
use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};

use super::failure::{not_sent, status_error};
use super::request::FetchRequest;

/// Headers that the model reads; the others are about the connection, or about browsers.
const SHOWN: [&str; 10] = [
    "content-disposition",
    "content-length",
    "content-range",
    "content-type",
    "etag",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "www-authenticate",
];
/// Time limit of reading the body of a failure, whose status is known without it.
const MAX_FAILURE_TIME: Duration = Duration::from_secs(2);
/// Maximum shown length of a header's value, in characters.
const MAX_HEADER_CHARS: usize = 1_000;

/// Reads a response up to the requested size.
pub(super) async fn read(
    mut response: Response,
    request: &FetchRequest,
    context: &ToolContext,
) -> Result<JsonText, ToolError> {
    let (status, url) = (response.status(), response.url().to_string());
    let headers = response.headers().clone();
    let total = response.content_length();
    let so_far = Arc::new(Mutex::new(Vec::new()));
    context.written.read_with({
        let so_far = Arc::clone(&so_far);
        move || {
            let bytes = so_far.lock().unwrap_or_else(PoisonError::into_inner);
            (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
        }
    });
    let is_failure = status.is_client_error() || status.is_server_error();
    let mut late = pin!(SystemClock.sleep(MAX_FAILURE_TIME));
    let mut is_cut = false;
    while !is_cut {
        let piece = tokio::select! {
            piece = response.chunk() => Some(piece),
            () = &mut late, if is_failure => None,
        };
        let piece = match piece {
            Some(Ok(Some(piece))) => piece,
            Some(Ok(None)) => break,
            Some(Err(error)) if !is_failure => return Err(not_sent(&error)),
            // The failure is known by its status.
            Some(Err(_)) | None => {
                is_cut = true;
                break;
            }
        };
        let mut bytes = so_far.lock().unwrap_or_else(PoisonError::into_inner);
        let room = request.max_bytes - bytes.len();
        bytes.extend_from_slice(&piece[..room.min(piece.len())]);
        is_cut = piece.len() > room;
    }
    let bytes = std::mem::take(&mut *so_far.lock().unwrap_or_else(PoisonError::into_inner));
    let text = text(&headers, &bytes, is_cut);
    if is_failure {
        let wait = retry_after(&headers, SystemClock.now());
        return Err(status_error(status, &text.unwrap_or_default(), wait));
    }
    let mut answer = json!({
        "status": status.as_u16(),
        "url": url,
        "headers": select_headers(&headers),
    });
    match text {
        _ if request.is_head() => {}
        Some(text) => answer["text"] = text.into(),
        None => answer["note"] = format!("{} bytes, which are no text", bytes.len()).into(),
    }
    if is_cut {
        let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
        let max = request.max_bytes;
        answer["note"] = format!("cut after {max}{of} bytes; max_bytes asks for more").into();
    }
    Ok(answer.into())
}

/// Returns a body as text, by its charset; `None` if it is not text.
fn text(headers: &HeaderMap, bytes: &[u8], is_cut: bool) -> Option<String> {
    let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().to_ascii_lowercase();
    let charset = kind.split(';').skip(1).find_map(|part| part.trim().strip_prefix("charset="));
    let charset = charset.and_then(|name| Encoding::for_label(name.trim_matches('"').as_bytes()));
    // A body with a declared charset is always treated as text.
    if charset.is_none() && Encoding::for_bom(bytes).is_none() && bytes.contains(&0) {
        return None;
    }
    let (text, _, has_errors) = charset.unwrap_or(UTF_8).decode(bytes);
    let text = match text.strip_suffix('\u{fffd}') {
        // The end of the read bytes is inside a character.
        Some(whole) if is_cut => whole.to_owned(),
        _ => text.into_owned(),
    };
    let is_text = ["text/", "json", "xml", "javascript", "x-www-form"];
    let says_so = charset.is_some() || is_text.iter().any(|part| kind.contains(part));
    (says_so || !has_errors || is_cut && !text.contains('\u{fffd}')).then_some(text)
}

fn select_headers(headers: &HeaderMap) -> Map<String, Value> {
    let shown = SHOWN.iter().filter_map(|name| {
        let value = String::from_utf8_lossy(headers.get(*name)?.as_bytes()).into_owned();
        let value: String = value.chars().take(MAX_HEADER_CHARS).collect();
        Some(((*name).to_owned(), value.into()))
    });
    shown.collect()
}
