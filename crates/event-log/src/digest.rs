use layer0::operator::Task;
use layer0::push_hex;
use layer0::text::plain;
use serde_json::json;
use sha2::{Digest, Sha256};

/// Returns the SHA-256 (FIPS 180-4) of a text in the form that records use: 64 lower-case hex digits.
///
/// ```
/// let digest = backstop_event_log::text_digest("hello");
/// assert!(digest.starts_with("2cf24dba"));
/// ```
#[must_use]
pub fn text_digest(text: &str) -> String {
    let mut digits = String::with_capacity(64);
    push_hex(&mut digits, &Sha256::digest(text));
    digits
}

/// Returns the [`text_digest`] of a dispatched task: of its input, and of its images, its output schema and its use of
/// the session's messages if it has any.
///
/// ```
/// use backstop_event_log::{task_digest, text_digest};
/// use layer0::operator::Task;
///
/// assert_eq!(task_digest(&Task::text("hello")), text_digest("hello"));
/// assert_ne!(task_digest(&Task::text("hello").with_history()), text_digest("hello"));
/// ```
#[must_use]
pub fn task_digest(task: &Task) -> String {
    let input = plain(&task.input);
    if task.images.is_empty() && task.output_schema.is_none() && !task.history {
        return text_digest(&input);
    }
    let parts = json!([input, task.images, task.output_schema, task.history]);
    text_digest(&parts.to_string())
}
