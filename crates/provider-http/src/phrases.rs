//! Phrases of all vendors for failures, as gateways repeat them.
//!
//! A proxy in front of a model uses its own protocol but keeps the text of the endpoint behind it:
//! an adapter that only knew its own vendor's phrases would take a context overflow for a malformed
//! request. So every adapter knows all of them. Each has a body in which it was seen.

use crate::class::Class;
use crate::error_body::ErrorBody;

mod lists;

pub use lists::{FILTERED, OVERFLOWS, Phrase, QUOTAS, UNKNOWN_MODELS};

/// Words of a temporary limit, which may mention tokens too.
const PASSING: &[&str] = &["rate limit", "rate_limit", "too many requests", "per min", "throttl"];

/// Classifies a failure by phrases that any provider may repeat; `None` if none matches.
///
/// A status for keys or rates outweighs phrases about tokens.
pub(crate) fn by_words(status: Option<u16>, said: &ErrorBody) -> Option<Class> {
    let words = said.words();
    let any = |phrases: &[Phrase]| phrases.iter().any(|phrase| phrase.is_in(&words));
    if any(QUOTAS) {
        return Some(Class::QuotaExhausted);
    }
    if any(FILTERED) {
        return Some(Class::ContentBlocked);
    }
    let may_be_unknown = matches!(status.or(said.status), None | Some(400 | 404 | 422));
    if may_be_unknown && any(UNKNOWN_MODELS) {
        return Some(Class::NotFound);
    }
    let is_other = matches!(status.or(said.status), Some(401..=404 | 408 | 409 | 429 | 499));
    let passes = PASSING.iter().any(|word| words.contains(word));
    (!is_other && !passes && any(OVERFLOWS)).then_some(Class::ContextOverflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: Option<u16>, body: &str, expected: Option<Class>) {
        assert_eq!(
            by_words(status, &ErrorBody::read(body.as_bytes())),
            expected,
            "{status:?} {body}"
        );
    }

    /// Spec: P6
    #[test]
    fn each_phrase_is_found_in_its_body() {
        for (phrases, class) in [
            (OVERFLOWS, Class::ContextOverflow),
            (QUOTAS, Class::QuotaExhausted),
            (FILTERED, Class::ContentBlocked),
            (UNKNOWN_MODELS, Class::NotFound),
        ] {
            for phrase in phrases {
                assert!(phrase.words.iter().all(|word| *word == word.to_ascii_lowercase()));
                let words = ErrorBody::read(phrase.body.as_bytes()).words();
                assert!(phrase.is_in(&words), "{}: {words}", phrase.from);
                check(Some(phrase.status), phrase.body, Some(class));
                check(None, phrase.body, Some(class));
            }
        }
    }

    /// Spec: P5, P6
    #[test]
    fn a_limit_that_passes_is_no_overflow() {
        for (status, message) in [
            (Some(429), "Too many input tokens, please wait before trying again"),
            (None, "ThrottlingException: Too many input tokens, please wait"),
            (Some(400), "Rate limit reached: 30000 tokens per min, the prompt is too long"),
            (Some(401), "prompt is too long"),
            (Some(400), "max_tokens is too large: 200000. It supports at most 16384 tokens"),
            (Some(400), "unknown parameter: content_filter"),
            (Some(429), "You exceeded your current quota, please check your plan"),
        ] {
            check(
                status,
                &serde_json::json!({ "error": { "message": message } }).to_string(),
                None,
            );
        }
    }
}
