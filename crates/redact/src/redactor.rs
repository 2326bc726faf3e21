//! The redactor.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use regex::Regex;

use crate::colour::Plain;
use crate::held::{SecretSearch, is_searched};
use crate::json_tokens;
use crate::patterns;
use crate::ranges::{REDACTED, RedactionRange, merge, replace};
use crate::shared::{SearchCache, SharedSecrets};
use crate::stream::StreamRedactor;

/// A redactor, which finds and replaces secrets.
///
/// A secret of the process is found unchanged; escaped as in JSON or program text, percent-encoded
/// or as HTML entities, in whole or in part, also twice; folded over lines; and in Base64 (standard
/// and URL-safe, at any place in the encoded text), hexadecimal and UTF-16.
///
/// Clones are cheap, and share the search.
#[derive(Clone, Default)]
pub struct Redactor(Option<Arc<RedactorInner>>);

#[derive(Default)]
struct RedactorInner {
    secrets: Vec<String>,
    shared: Option<SharedSecrets>,
    extra: Vec<Regex>,
    search: SearchCache,
}

/// Leaves the search to the first use, because the copy is about to be changed.
impl Clone for RedactorInner {
    fn clone(&self) -> Self {
        let Self { secrets, shared, extra, search: _ } = self;
        let (secrets, shared, extra) = (secrets.clone(), shared.clone(), extra.clone());
        Self { secrets, shared, extra, search: SearchCache::default() }
    }
}

impl Redactor {
    /// Makes a redactor with the usual patterns and without secrets of the process.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// Adds a secret of the process. Secrets below [`MIN_SECRET_CHARS`](crate::MIN_SECRET_CHARS) are ignored.
    #[must_use]
    pub fn with_secret(mut self, secret: impl Into<String>) -> Self {
        let secret = secret.into();
        if is_searched(&secret) {
            let inner = self.inner_mut();
            inner.secrets.push(secret);
            inner.search = SearchCache::default();
        }
        self
    }

    /// Adds the secrets of a set that may grow; they take the place of another set's.
    #[must_use]
    pub fn with_shared_secrets(mut self, secrets: &SharedSecrets) -> Self {
        let inner = self.inner_mut();
        inner.shared = Some(secrets.clone());
        inner.search = SearchCache::default();
        self
    }

    /// Adds a secret that was obtained for a time, such as the token of a login, to the shared secrets
    /// of this redactor. Without shared secrets, nothing is added.
    pub fn obtain(&self, secret: &str) {
        if let Some(shared) = self.shared() {
            shared.obtain(secret);
        }
    }

    /// Adds your own pattern for texts passed to [`Redactor::redact`]. A group named `keep` is
    /// kept, the rest of the match is redacted.
    ///
    /// ```
    /// # fn main() -> Result<(), regex::Error> {
    /// let redactor = backstop_redact::Redactor::new().with_pattern(regex::Regex::new("CUST-[0-9]{8}")?);
    /// assert_eq!(redactor.redact("no customer CUST-12345678"), "no customer [redacted]");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_pattern(mut self, pattern: Regex) -> Self {
        self.inner_mut().extra.push(pattern);
        self
    }

    /// Replaces secrets of the process and likely secrets.
    ///
    /// ```
    /// let redactor = backstop_redact::Redactor::new();
    /// let text = redactor.redact("GET https://ops:hunter22@db/ failed");
    /// assert_eq!(text, "GET https://ops:[redacted]@db/ failed");
    /// ```
    #[must_use]
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        replace(text, self.find(text))
    }

    /// Returns whether there are secrets of the process.
    #[must_use]
    pub fn holds_secrets(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| !inner.secrets.is_empty())
            || self.shared().is_some_and(|shared| !shared.is_empty())
    }

    /// Replaces only the secrets of the process, for text that a model reads or writes. A secret
    /// number is replaced like text; [`Redactor::redact_held_json`] keeps JSON valid.
    #[must_use]
    pub fn redact_held<'t>(&self, text: &'t str) -> Cow<'t, str> {
        replace(text, self.find_held(text))
    }

    /// Begins a text that arrives in pieces; the secrets of the process are replaced in it.
    #[must_use]
    pub fn stream(&self) -> StreamRedactor {
        StreamRedactor::new(self.held_search())
    }

    /// Replaces secrets like [`Redactor::redact`], in bytes that need not be text. Bytes that are
    /// not text are unchanged.
    ///
    /// Pass bytes to this before they are encoded: likely secrets are not found in Base64.
    ///
    /// ```
    /// let redactor = backstop_redact::Redactor::new();
    /// assert_eq!(&*redactor.redact_bytes(b"\xff PGPASSWORD=hunter22"), b"\xff PGPASSWORD=[redacted]");
    /// ```
    #[must_use]
    pub fn redact_bytes<'b>(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return match self.redact(text) {
                Cow::Borrowed(_) => Cow::Borrowed(bytes),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            };
        }
        // A byte that is not text is searched as a character, so that the text around it stays connected.
        let mut text = String::with_capacity(bytes.len());
        let mut stand_ins = Vec::new();
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            for _ in chunk.invalid() {
                stand_ins.push(text.len());
                text.push(STAND_IN);
            }
        }
        let in_bytes = |place: usize| {
            let before = stand_ins.partition_point(|stand_in| *stand_in < place);
            place - before * (STAND_IN.len_utf8() - 1)
        };
        let found = merge(self.find(&text));
        if found.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut redacted = Vec::with_capacity(bytes.len());
        let mut at = 0;
        for RedactionRange { range, quote, .. } in found {
            redacted.extend_from_slice(&bytes[at..in_bytes(range.start)]);
            redacted.extend([quote, REDACTED, quote].into_iter().flat_map(str::bytes));
            at = in_bytes(range.end);
        }
        redacted.extend_from_slice(&bytes[at..]);
        Cow::Owned(redacted)
    }

    fn inner_mut(&mut self) -> &mut RedactorInner {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    fn shared(&self) -> Option<&SharedSecrets> {
        self.0.as_ref()?.shared.as_ref()
    }

    fn held_search(&self) -> Option<Arc<SecretSearch>> {
        let inner = self.0.as_ref()?;
        inner.search.search(&inner.secrets, inner.shared.as_ref())
    }

    fn find(&self, text: &str) -> Vec<RedactionRange> {
        let (mut secrets, mut shapes) = (self.find_held(text), Vec::new());
        patterns::find(text, &mut shapes);
        self.find_extra(text, &mut secrets);
        // A token may contain colours, which a terminal does not show as text.
        if let Some(plain) = Plain::without_colours(text) {
            let (mut own, mut within) = (Vec::new(), Vec::new());
            patterns::find(&plain.text, &mut within);
            self.find_extra(&plain.text, &mut own);
            let in_source = |found: RedactionRange| RedactionRange {
                range: plain.to_source(&found.range),
                ..found
            };
            shapes.extend(within.into_iter().map(in_source));
            secrets.extend(own.into_iter().map(in_source));
        }
        if !(secrets.is_empty() && shapes.is_empty()) && json_tokens::is_json(text) {
            json_tokens::fit_secrets(text, &mut secrets);
            json_tokens::fit_shapes(text, &mut shapes);
        }
        secrets.append(&mut shapes);
        secrets
    }

    /// Finds matches of the added patterns.
    fn find_extra(&self, text: &str, found: &mut Vec<RedactionRange>) {
        for pattern in self.0.iter().flat_map(|inner| &inner.extra) {
            for captures in pattern.captures_iter(text) {
                let whole = captures.get_match().range();
                let start = captures.name("keep").map_or(whole.start, |keep| keep.end());
                found.push(RedactionRange::at(start..whole.end));
            }
        }
    }

    fn find_held(&self, text: &str) -> Vec<RedactionRange> {
        self.held_search().map_or_else(Vec::new, |held| held.scan(text, true).found)
    }
}

/// A substitute for a byte that is not text. It is a private-use character, so that no pattern contains it.
const STAND_IN: char = '\u{10ff00}';

/// Prints the number of secrets, never a secret.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.as_ref().map(|inner| (inner.secrets.len(), inner.extra.len()));
        let (secrets, extra) = counts.unwrap_or_default();
        f.debug_struct("Redactor").field("secrets", &secrets).field("extra", &extra).finish()
    }
}
