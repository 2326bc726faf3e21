use std::borrow::Cow;
use std::sync::Arc;

use backstop_redact::Redactor;
use layer0::Code;
use sha2::{Digest, Sha256};

use crate::{Origin, Summary, raw_json};

/// Maximum characters of an author's code.
const MAX_CODE_CHARS: usize = 100;

/// An error to store: redacted, valid JSON, with its one-line summary.
///
/// [`NewError::new`] is the only constructor, so that every store has only such errors, also if the store is used
/// alone.
///
/// ```
/// use backstop_error_store::{NewError, Origin};
/// use layer0::{Code, Timestamp, code};
/// use backstop_redact::Redactor;
///
/// let origin = Origin::new(Timestamp::default(), "s-1", "run_1", "c1", "sql");
/// let text = "no such table at postgres://ann:secret@db/\n  at line 3";
/// let reason = Code::new(code::TOOL_EXECUTION_FAILED);
/// let error = NewError::new(origin, reason, Some("SQL_ERROR"), text, &Redactor::new());
/// assert!(error.summary().text.starts_with("Code SQL_ERROR: no such table"));
/// assert!(!error.raw().contains("secret"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewError {
    origin: Origin,
    reason: Code,
    code: Option<Arc<str>>,
    raw: Arc<str>,
    summary: Summary,
    chars_kept: u64,
}

impl NewError {
    /// Creates an error from its whole text, which may be JSON, and the tool author's own code.
    ///
    /// Secrets are removed from both. Text that is not JSON is wrapped as `{"message": text}`.
    #[must_use]
    pub fn new(
        origin: Origin,
        reason: Code,
        code: Option<&str>,
        text: &str,
        redactor: &Redactor,
    ) -> Self {
        let text = redactor.redact(text);
        let code = code.filter(|code| !code.is_empty()).map(|code| author_code(code, redactor));
        let summary = Summary::from_error(&text, code.as_deref());
        let shown = if summary.cut { summary.own_chars } else { usize::MAX };
        let kept = text.chars().count().saturating_sub(shown);
        Self {
            origin,
            reason,
            raw: raw_json(&text).into(),
            code,
            summary,
            chars_kept: u64::try_from(kept).unwrap_or(u64::MAX),
        }
    }

    /// Returns the tool call that failed.
    #[must_use]
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the code of the catalogue.
    #[must_use]
    pub const fn reason(&self) -> &Code {
        &self.reason
    }

    /// Returns the tool author's code, cut to 100 characters.
    #[must_use]
    pub const fn code(&self) -> Option<&Arc<str>> {
        self.code.as_ref()
    }

    /// Returns the whole error as JSON text.
    #[must_use]
    pub const fn raw(&self) -> &Arc<str> {
        &self.raw
    }

    /// Returns the error's one-line summary.
    #[must_use]
    pub const fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Returns the number of characters that the summary saves the model each time.
    #[must_use]
    pub const fn chars_kept(&self) -> u64 {
        self.chars_kept
    }

    /// Returns a fingerprint, which is equal for equal errors: the first 16 hex digits of the SHA-256 of the tool, the
    /// codes and the whole raw text.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let code = self.code.as_deref().unwrap_or_default();
        fingerprint([&*self.origin.tool, self.reason.as_str(), code, &self.raw])
    }

    pub(crate) fn into_parts(self) -> (Origin, Code, Option<Arc<str>>, Arc<str>, Summary, u64) {
        (self.origin, self.reason, self.code, self.raw, self.summary, self.chars_kept)
    }
}

/// An author's code is untrusted text like the rest of the error.
fn author_code(code: &str, redactor: &Redactor) -> Arc<str> {
    let redacted = redactor.redact(code);
    match redacted.char_indices().nth(MAX_CODE_CHARS) {
        Some((end, _)) => redacted[..end].into(),
        None => match redacted {
            Cow::Borrowed(code) => code.into(),
            Cow::Owned(code) => code.into(),
        },
    }
}

pub(crate) fn fingerprint(parts: [&str; 4]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use layer0::{Timestamp, code};
    use proptest::prelude::*;

    fn new_error(text: &str, code: Option<&str>) -> NewError {
        let origin = Origin::new(Timestamp::default(), "s", "run", "c", "sql");
        let redactor = Redactor::new().with_secret("held-secret-key");
        NewError::new(origin, Code::new(code::TOOL_EXECUTION_FAILED), code, text, &redactor)
    }

    proptest! {
        /// Spec: S3, S4
        #[test]
        fn any_text_becomes_valid_data(text in any::<String>(), code in proptest::option::of(".{0,200}")) {
            let error = new_error(&text, code.as_deref());
            prop_assert!(serde_json::from_str::<serde_json::Value>(error.raw()).is_ok());
            prop_assert!(error.summary().text.chars().count() <= 100);
            prop_assert!(error.code().is_none_or(|code| code.chars().count() <= 100));
            prop_assert!(error.chars_kept() <= u64::try_from(text.chars().count()).unwrap());
        }
    }

    /// Spec: S9
    #[test]
    fn secrets_are_in_no_part_of_an_error() {
        let text = r#"{"message": "key held-secret-key", "url": "https://ann:pw123456@host/"}"#;
        let error = new_error(text, Some("held-secret-key"));
        let all = format!("{error:?}");
        assert!(!all.contains("held-secret-key") && !all.contains("pw123456"), "{all}");
        assert!(serde_json::from_str::<serde_json::Value>(error.raw()).is_ok());
    }

    /// Spec: S14
    #[test]
    fn escapes_are_no_characters_kept() {
        let text = format!("first\n{}", "\u{1b}\"".repeat(1_000));
        let error = new_error(&text, None);
        assert_eq!(error.chars_kept(), 2_001);
        assert_eq!(new_error("Short error", None).chars_kept(), 0);
    }
}
