//! Values of settings with names of secrets: `DB_PASS=…`, `"token": "…"`, `--api-key …`.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::quoted::Quotes;
use crate::ranges::RedactionRange;
use crate::steps;
use crate::values::{Hint, NameCertainty, is_placeholder, is_secret_bare, is_secret_quoted};

/// Endings of secrets' names, lower case.
const WORDS: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "passwort",
    "pass",
    "pwd",
    "secret",
    "token",
    "credentials",
    "credential",
    "key",
];

/// The words before `key` in the name of a secret.
const KEYS: [&str; 21] = [
    "access",
    "account",
    "admin",
    "api",
    "auth",
    "client",
    "crypto",
    "deploy",
    "encryption",
    "hmac",
    "license",
    "master",
    "private",
    "secret",
    "security",
    "service",
    "shared",
    "signing",
    "storage",
    "subscription",
    "webhook",
];

/// Endings that may follow the word.
const ENDINGS: [&str; 8] =
    ["_base64", "_b64", "_value", "_text", "_plain", "_raw", "-value", "value"];

/// The bytes of a value that are read to distinguish a secret from prose and from program text.
const MAX_JUDGED: usize = 256;

/// The longest type between a name and its value, in bytes.
const MAX_TYPE: usize = 60;

/// Names of headers that are secret.
const HEADERS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "set-cookie"];

static FINDER: LazyLock<AhoCorasick> = LazyLock::new(|| {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .match_kind(MatchKind::LeftmostLongest)
        .build(WORDS)
        .expect("the words above are few")
});

/// Returns whether this is the name of a secret: of a setting, an option or a header.
///
/// ```
/// assert!(backstop_redact::is_secret_name("x-api-key"));
/// assert!(!backstop_redact::is_secret_name("x-project"));
/// ```
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let name = name.trim_start_matches('-');
    let is_at_end = |found: aho_corasick::Match| {
        ending(name, found.end()) == name.len() && name_at(name, found.range()).is_some()
    };
    HEADERS.iter().any(|header| name.eq_ignore_ascii_case(header))
        || FINDER.find_iter(name).any(is_at_end)
}

/// Returns whether this is an option whose value is the next argument.
pub(crate) fn is_secret_option(argument: &str) -> bool {
    argument.starts_with('-') && !argument.contains(['=', ' ', ':']) && is_secret_name(argument)
}

/// Finds the values of secret settings.
pub(crate) fn find(text: &str, found: &mut Vec<RedactionRange>) {
    let mut reader = ValueReader { text, run: TextRun::default(), quotes: Quotes::default() };
    let mut behind = 0;
    for word in FINDER.find_iter(text) {
        if word.start() < behind {
            continue;
        }
        let Some(name) = name_at(text, word.range()) else { continue };
        let after = ending(text, word.end());
        if let Some(value) = reader.value(word.range(), after, name) {
            behind = value.range.end;
            found.push(value);
        }
    }
}

/// Returns the certainty of the name that ends with this word.
fn name_at(text: &str, word: Range<usize>) -> Option<NameCertainty> {
    let bytes = text.as_bytes();
    let before = &bytes[..word.start];
    let lower = text[word.clone()].to_ascii_lowercase();
    let is_camel = bytes[word.start].is_ascii_uppercase()
        && before.last().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_joined =
        matches!(before, [.., last, b'_' | b'-' | b'.'] if last.is_ascii_alphanumeric());
    let is_own_word =
        !before.last().is_some_and(u8::is_ascii_alphabetic) || is_camel || is_escape(before);
    match lower.as_str() {
        "key" => {
            let before = match before {
                [rest @ .., b'_' | b'-' | b'.' | b' '] => rest,
                _ => before,
            };
            let ends = |part: &&str| {
                let from = before.len().checked_sub(part.len());
                from.is_some_and(|from| before[from..].eq_ignore_ascii_case(part.as_bytes()))
            };
            KEYS.iter().any(ends).then_some(NameCertainty::Sure)
        }
        "pass" | "pwd" if !is_own_word => None,
        "pass" | "secret" | "token" | "credential" | "credentials" => {
            Some(if is_joined || is_camel { NameCertainty::Sure } else { NameCertainty::Likely })
        }
        _ => Some(NameCertainty::Sure),
    }
}

/// Returns whether a text ends with the letter of an escape, as in `\nPWD=…` in JSON, which belongs to no word.
fn is_escape(before: &[u8]) -> bool {
    matches!(before, [.., b'\\', b'b' | b'f' | b'n' | b'r' | b't'])
}

/// Returns the end of a name whose word ends here.
fn ending(text: &str, at: usize) -> usize {
    let rest = &text.as_bytes()[at..];
    let long = ENDINGS.iter().find(|ending| {
        rest.get(..ending.len()).is_some_and(|rest| rest.eq_ignore_ascii_case(ending.as_bytes()))
    });
    if let Some(ending) = long {
        return at + ending.len();
    }
    let underscore = usize::from(rest.first() == Some(&b'_'));
    let digits = rest[underscore..].iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
    if digits > 0 { at + underscore + digits } else { at }
}

/// A reader of the values of one text. Many names may have values that end at the same place, which
/// is searched for once.
struct ValueReader<'t> {
    text: &'t str,
    run: TextRun,
    quotes: Quotes,
}

impl ValueReader<'_> {
    /// Reads the value after a name.
    fn value(
        &mut self,
        word: Range<usize>,
        after: usize,
        name: NameCertainty,
    ) -> Option<RedactionRange> {
        let text = self.text;
        let bytes = text.as_bytes();
        let quoted_name =
            after + count(&bytes[after..], |byte| matches!(byte, b'\\' | b'"' | b'\'' | b'`'));
        let closed = quoted_name + count(&bytes[quoted_name..], |byte| byte == b']');
        let gap = count(&bytes[closed..], is_blank);
        let at = closed + gap;
        let is_option = is_option(bytes, word.start);
        let rest = &bytes[at..];
        let (name, width, is_tight) = match rest {
            [b'=', b'=', ..] | [b':', b':', ..] => return None,
            [b'=' | b':', b'>' | b'=', ..] => (name, 2, false),
            [b'=', ..] => (name, 1, gap == 0),
            [b'%', b'3', b'd' | b'D', ..] => (name, 3, true),
            [b':', ..] => (name, 1, false),
            // Arguments in a list: "--api-key", "…"
            [b',', ..] if is_option && quoted_name > after => (NameCertainty::Sure, 1, false),
            // Arguments in a line: --api-key …
            [_, ..] if is_option && gap > 0 && closed == after => (NameCertainty::Sure, 0, false),
            // SQL: PASSWORD '…'
            [b'\'', ..] if gap > 0 && text[word.clone()].eq_ignore_ascii_case("password") => {
                (name, 0, false)
            }
            _ => return None,
        };
        let blanks = count(&bytes[at + width..], is_blank);
        let begin = at + width + blanks;
        let hint = Hint {
            name,
            is_tight: is_tight && blanks == 0,
            is_json: quoted_name > after,
            is_folder: text[word].eq_ignore_ascii_case("pwd"),
        };
        let prefix = match &bytes[begin..] {
            [b'b' | b'B' | b'f' | b'F' | b'r' | b'R' | b'u' | b'U', b'"' | b'\'', ..] => 1,
            _ => 0,
        };
        let escapes = count(&bytes[begin + prefix..], |byte| byte == b'\\');
        let open = begin + prefix + escapes;
        if let Some(b'"' | b'\'' | b'`') = bytes.get(open) {
            return self.read_quoted(open, hint);
        }
        if !self.run.range.contains(&begin) {
            self.run = TextRun::at(bytes, begin);
        }
        let (range, is_last) = self.run.value_from(begin);
        if is_secret_bare(head(&text[range.clone()]), hint, is_last) {
            let quote = if hint.is_json { quote_behind(&text[after..quoted_name]) } else { "" };
            return Some(RedactionRange { quote, ..RedactionRange::at(range) });
        }
        // A type between name and value: `password: &str = "…"`.
        let is_type =
            |byte: u8| !matches!(byte, b'=' | b'"' | b'\'' | b'\n' | b',' | b';' | b')' | b'}');
        let next = begin + count(&bytes[begin..bytes.len().min(begin + MAX_TYPE)], is_type);
        if rest[0] == b':' && width == 1 && bytes.get(next) == Some(&b'=') {
            let begin = next + 1 + count(&bytes[next + 1..], is_blank);
            if let Some(b'"' | b'\'') = bytes.get(begin) {
                return self.read_quoted(begin, hint);
            }
        }
        None
    }

    /// Reads the value whose opening quote is at `open`.
    fn read_quoted(&mut self, open: usize, hint: Hint) -> Option<RedactionRange> {
        let range = self.quotes.value(self.text, open);
        is_secret_quoted(head(&self.text[range.clone()]), hint).then(|| RedactionRange::at(range))
    }
}

/// Returns the part of a value that decides whether it is a secret.
fn head(value: &str) -> &str {
    let head = &value[..value.floor_char_boundary(MAX_JUDGED)];
    steps::count(head.len());
    head
}

/// A run of text up to the end of a bare value.
#[derive(Debug, Default)]
struct TextRun {
    range: Range<usize>,
    /// The end without closing parentheses.
    trimmed: usize,
    last_parenthesis: Option<usize>,
    ends_line: bool,
}

impl TextRun {
    fn at(bytes: &[u8], begin: usize) -> Self {
        let range = begin..bare_end(bytes, begin);
        steps::count(range.len());
        let run = &bytes[range.clone()];
        let closing = run.iter().rev().take_while(|byte| **byte == b')').count();
        let last_parenthesis = run.iter().rposition(|byte| *byte == b'(').map(|at| begin + at);
        let ends_line = is_line_end(bytes, range.end);
        Self { trimmed: range.end - closing, range, last_parenthesis, ends_line }
    }

    /// Returns the value that begins within the run, and whether it ends its line.
    fn value_from(&self, begin: usize) -> (Range<usize>, bool) {
        let has_parenthesis = self.last_parenthesis.is_some_and(|at| at >= begin);
        let end = if has_parenthesis { self.range.end } else { self.trimmed.max(begin) };
        (begin..end, self.ends_line && end == self.range.end)
    }
}

/// Returns the quotes that keep valid JSON valid after a bare number is replaced behind the name of
/// a setting, also in JSON within a JSON string.
fn quote_behind(name_end: &str) -> &'static str {
    match name_end {
        "\\\"" => "\\\"",
        "\"" => "\"",
        _ => "",
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn count(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    let count = bytes.iter().take_while(|byte| belongs(**byte)).count();
    steps::count(count);
    count
}

/// Returns whether the word's name begins with dashes.
fn is_option(bytes: &[u8], word: usize) -> bool {
    let before = bytes[..word].iter().rev().take(40);
    let length = before.take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-').count();
    bytes[word - length..].starts_with(b"-")
}

/// Returns the end of a bare value: white space, a separator of values, or an escape of either.
fn bare_end(bytes: &[u8], begin: usize) -> usize {
    let mut at = begin;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => match bytes.get(at + 1) {
                Some(b'\\') => at += 1,
                Some(b'b' | b'f' | b'n' | b'r' | b't' | b'u' | b'"' | b'\'' | b'/') | None => break,
                Some(_) => {}
            },
            b',' | b';' | b'&' | b'"' | b'\'' | b'`' | b'{' | b'}' | b'[' | b']' | b'<' | b'>' => {
                break;
            }
            byte if byte.is_ascii_whitespace() || byte.is_ascii_control() => break,
            _ => {}
        }
        at += 1;
    }
    at
}

fn is_line_end(bytes: &[u8], at: usize) -> bool {
    let at = at + count(&bytes[at..], is_blank);
    matches!(
        &bytes[at..],
        [] | [b'\n' | b'\r' | b'"' | b'\'' | b'}' | b',', ..] | [b'\\', b'n' | b'r', ..]
    )
}

/// Returns whether a value under the name of a secret is a secret.
pub(crate) fn is_secret_value(value: &str) -> bool {
    !value.is_empty() && !is_placeholder(value)
}
