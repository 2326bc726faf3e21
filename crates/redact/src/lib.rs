//! Takes secrets out of text before it is stored, logged or shown.
//!
//! Two kinds are found: secrets the process holds ([`Redactor::with_secret`]), wherever they stand,
//! and what looks like one (API keys of the usual makers, bearer tokens, passwords in URLs and
//! settings, private keys). Add your own with [`Redactor::with_pattern`].
//!
//! What is found is replaced by `[redacted]`; text around it stays byte for byte, and valid JSON
//! stays valid JSON, unless a secret seems to run on over the end of its string, as a private key
//! without an end does.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use regex::{Captures, Regex, Replacer};

/// What stands where a secret was.
pub const REDACTED: &str = "[redacted]";

/// Secrets shorter than this are not searched for: they would match by accident.
pub const MIN_SECRET_CHARS: usize = 8;

/// The usual shapes of secrets. In each, `keep` is what stays in front of the secret.
///
/// To a regular expression, the `n` of `\n` in JSON belongs to the word behind it. So what begins a
/// word is looked for behind escapes as well, in patterns of their own: one pattern for both finds no
/// literal to jump to and is twenty times slower.
const PATTERNS: &[&str] = &[
    // Private keys in PEM, also where newlines are escaped in JSON.
    r"(?P<keep>-----BEGIN [A-Z ]*PRIVATE KEY-----)[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
    // Keys that name their maker.
    r"(?P<keep>)\bMAKERS_KEY",
    r"(?P<keep>\\(?:[bfnrt]|u[0-9A-Fa-f]{4}))MAKERS_KEY",
    // Authorization headers.
    r"(?P<keep>(?i:\b(?:bearer|basic|token)\s+))[A-Za-z0-9._~+/=-]{12,}",
    r"(?P<keep>\\(?:[bfnrt]|u[0-9A-Fa-f]{4})(?i:(?:bearer|basic|token)\s+))[A-Za-z0-9._~+/=-]{12,}",
    // user:password@ in URLs, to the last `@` before the path.
    r#"(?P<keep>[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@"']*:)[^\s/"']+@"#,
    // Settings with a quoted value, also where the quotes are escaped in JSON: "password": "…"
    r#"(?P<keep>(?i:SECRET_NAME)\\?["']?\s*[:=]\s*\\?["'])[^"'\\\r\n]{4,}"#,
    // Settings with a bare value: DB_PASSWORD=…, x-api-key: …, "password": 123456
    r#"(?P<keep>(?i:SECRET_NAME)\\?["']?\s*[:=]\s*)[^\s"'\\,;&{}\[\]]{6,}"#,
];

/// Keys of OpenAI and Anthropic, AWS, Google, GitHub, GitLab and Slack, by the prefixes they document
/// for secret scanning.
const MAKERS_KEY: &str = r"(?:sk-[A-Za-z0-9_-]{16,}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}|gh[opsru]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abeprs]-[A-Za-z0-9-]{10,})";

/// How the names of settings that hold secrets end. What stands before, as in `MYAPP_API_KEY`, stays
/// anyway.
const SECRET_NAME: &str = r"(?:api[_-]?key|access[_-]?key|secret[_-]?key|client[_-]?secret|(?:access|refresh|auth|session|api|bearer)[_-]?token|[_-]token|passwd|password|passphrase|[_-]pwd|[_-]secret)";

/// How every [`SECRET_NAME`] ends. These few words are looked for many times faster.
const LAST_WORD: &str = "(?:key|token|secret|passwd|password|passphrase|pwd)";

static SHAPES: LazyLock<Vec<Shape>> =
    LazyLock::new(|| PATTERNS.iter().copied().map(Shape::new).collect());

/// What a secret looks like.
struct Shape {
    pattern: Regex,
    /// Matches wherever the pattern does, and elsewhere, but faster.
    hint: Option<Regex>,
}

impl Shape {
    fn new(pattern: &str) -> Self {
        let compile = |name| {
            let pattern = pattern.replace("SECRET_NAME", name).replace("MAKERS_KEY", MAKERS_KEY);
            Regex::new(&pattern).expect("the patterns above are valid")
        };
        let hint = pattern.contains("SECRET_NAME").then(|| compile(LAST_WORD));
        Self { pattern: compile(SECRET_NAME), hint }
    }

    fn is_possible_in(&self, text: &str) -> bool {
        self.hint.as_ref().is_none_or(|hint| hint.is_match(text))
    }
}

/// Finds and replaces secrets.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: Vec<String>,
    extra: Vec<Regex>,
}

impl Redactor {
    /// Makes a redactor that knows the usual shapes and no secret of the process.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a secret the process holds. Ones below [`MIN_SECRET_CHARS`] are not added.
    #[must_use]
    pub fn with_secret(mut self, secret: impl Into<String>) -> Self {
        let secret = secret.into();
        if secret.chars().count() >= MIN_SECRET_CHARS {
            self.secrets.push(secret);
        }
        self
    }

    /// Adds a shape of your own. A group named `keep` stays, the rest of the match goes.
    #[must_use]
    pub fn with_pattern(mut self, pattern: Regex) -> Self {
        self.extra.push(pattern);
        self
    }

    /// Replaces what the process holds and what looks like a secret.
    ///
    /// ```
    /// let redactor = redact::Redactor::new();
    /// let text = redactor.redact("GET https://ops:hunter22@db/ failed");
    /// assert_eq!(text, "GET https://ops:[redacted]@db/ failed");
    /// ```
    #[must_use]
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = self.redact_held(text);
        for shape in SHAPES.iter() {
            if shape.is_possible_in(&text) {
                text = replace(text, &shape.pattern);
            }
        }
        self.extra.iter().fold(text, replace)
    }

    /// Are there secrets the process holds?
    #[must_use]
    pub fn holds_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// Replaces only what the process holds; for text that is the model's own matter.
    #[must_use]
    pub fn redact_held<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = Cow::Owned(text.replace(secret.as_str(), REDACTED));
            }
        }
        text
    }
}

/// Returns the quotes that keep valid JSON valid where a bare number stood behind the name of a
/// setting, also where that JSON is a string in JSON itself.
fn quote_behind(keep: &str) -> &'static str {
    let name = keep.trim_end().strip_suffix(':').map_or("", str::trim_end);
    if name.ends_with("\\\"") {
        "\\\""
    } else if name.ends_with('"') {
        "\""
    } else {
        ""
    }
}

fn replace<'t>(text: Cow<'t, str>, pattern: &Regex) -> Cow<'t, str> {
    match pattern.replace_all(&text, Redacted) {
        Cow::Borrowed(_) => text,
        Cow::Owned(replaced) => Cow::Owned(replaced),
    }
}

/// Writes what stands in front of a secret, and the mark in its place.
struct Redacted;

impl Replacer for Redacted {
    fn replace_append(&mut self, found: &Captures<'_>, text: &mut String) {
        let keep = found.name("keep").map_or("", |keep| keep.as_str());
        text.push_str(keep);
        let quote = quote_behind(keep);
        text.extend([quote, REDACTED, quote]);
        // The URL pattern's match ends with the `@` that is no part of the password.
        if found[0].ends_with('@') {
            text.push('@');
        }
    }
}

/// Prints how many secrets there are, never one of them.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("secrets", &self.secrets.len())
            .field("extra", &self.extra.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: S9
    #[test]
    fn the_usual_shapes_are_taken_out() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            assert_eq!(Redactor::new().redact(text), expected);
        }
        check("key sk-ant-api03-abcdefghijklmnop used", "key [redacted] used");
        check("key sk-proj-abcdefghijklmnop1234", "key [redacted]");
        check("AKIAIOSFODNN7EXAMPLE", "[redacted]");
        check("Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer [redacted]");
        check("postgres://app:s3cret@db:5432/x", "postgres://app:[redacted]@db:5432/x");
        check(r#"{"password": "hunter22", "a": 1}"#, r#"{"password": "[redacted]", "a": 1}"#);
        check(
            r#"{"m": "{\"api_key\": \"abcdef1234\"}"}"#,
            r#"{"m": "{\"api_key\": \"[redacted]\"}"}"#,
        );
        check("api_key=abcdef123456&x=1", "api_key=[redacted]&x=1");
        check("DB_PASSWORD=hunter2hunter2", "DB_PASSWORD=[redacted]");
        check("OPENAI_API_KEY=abcdef0123", "OPENAI_API_KEY=[redacted]");
        check("AWS_SECRET_ACCESS_KEY=wJalrXUtn/x", "AWS_SECRET_ACCESS_KEY=[redacted]");
        check("export MYAPP_TOKEN=abc123def456", "export MYAPP_TOKEN=[redacted]");
        check("PGPASSWORD=hunter22 psql", "PGPASSWORD=[redacted] psql");
        check("MYSQL_PWD=hunter22 mysql", "MYSQL_PWD=[redacted] mysql");
        check("passwd: hunter22", "passwd: [redacted]");
        check("ssh.passphrase=opensesame", "ssh.passphrase=[redacted]");
        check("app_secret: abcdef1, x", "app_secret: [redacted], x");
        check(r#"{"refreshToken": "abcdef1"}"#, r#"{"refreshToken": "[redacted]"}"#);
        check(r#"password="my dog is called rex""#, r#"password="[redacted]""#);
        check("Authorization: Token abcdef0123456789", "Authorization: Token [redacted]");
        check("postgres://app:p@ss@db/x", "postgres://app:[redacted]@db/x");
        check(
            r#"{"error":"bad","password":123456789}"#,
            r#"{"error":"bad","password":"[redacted]"}"#,
        );
        check(r#"{"password" : 123456789}"#, r#"{"password" : "[redacted]"}"#);
        check(
            r#"{"m": "{\"password\": 123456789}"}"#,
            r#"{"m": "{\"password\": \"[redacted]\"}"}"#,
        );
        check(r#"{"m": "key:\nsk-abcdefghijklmnop"}"#, r#"{"m": "key:\n[redacted]"}"#);
        check(r#"{"m": "\u001bAKIAIOSFODNN7EXAMPLE"}"#, r#"{"m": "\u001b[redacted]"}"#);
        check(r#"{"m": "\r\nBearer abcdefghijklmnop"}"#, r#"{"m": "\r\nBearer [redacted]"}"#);
        check(
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- end",
            "-----BEGIN RSA PRIVATE KEY-----[redacted] end",
        );
    }

    #[test]
    fn ordinary_text_stays_as_it_is() {
        for text in [
            "syntax error near 'FROM'",
            "token budget 2000000 used up",
            "see https://example.com/a:b@c",
            "password is required",
            "task-1234567890123456789",
        ] {
            assert!(matches!(Redactor::new().redact(text), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn held_secrets_go_wherever_they_stand() {
        let redactor = Redactor::new().with_secret("plain-but-secret").with_secret("short");
        assert_eq!(redactor.redact("xplain-but-secretx short"), "x[redacted]x short");
        assert_eq!(redactor.redact_held("a plain-but-secret"), "a [redacted]");
        assert!(!format!("{redactor:?}").contains("plain"));
    }
}
