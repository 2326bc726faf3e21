//! Text in the form of a secret: tokens, private keys, credentials in headers, URLs and settings.

use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use regex::{Captures, Regex};

use crate::ranges::{REDACTED, RedactionRange};
use crate::tokens::{TOKENS, begins_word};
use crate::values::is_placeholder;
use crate::{quoted, settings, steps};

/// A form of credentials.
struct CredentialForm {
    /// Words that select the texts to search: a text without any of them has no match.
    words: &'static [&'static str],
    pattern: &'static str,
    /// Selects the part of a match to redact.
    secret: fn(&str, &Captures<'_>) -> Option<Range<usize>>,
    regex: OnceLock<Regex>,
}

const fn form(
    words: &'static [&'static str],
    pattern: &'static str,
    secret: fn(&str, &Captures<'_>) -> Option<Range<usize>>,
) -> CredentialForm {
    CredentialForm { words, pattern, secret, regex: OnceLock::new() }
}

static FORMS: [CredentialForm; 13] = [
    // Authorization headers (RFC 9110, 11.6.2), of schemes with one token and of those with several
    // parameters, and as a pair in JSON.
    form(
        &["authorization"],
        r#"(?i)authorization(?:\\{0,7}["'])?\]?\s{0,4}[:=,]\s{0,4}(?:\\{0,7}["'])?(?:(?:api-?key|basic|bearer|key|negotiate|ntlm|splunk|token)\s{1,4})?(?P<secret>[^\s"'\\,;]+)"#,
        |_, found| credentials(found),
    ),
    form(
        &["authorization"],
        r#"(?i)authorization(?:\\{0,7}["'])?\]?\s{0,4}[:=,]\s{0,4}(?:\\{0,7}["'])?(?:aws4-hmac-sha256|digest|hawk|hmac|oauth|signature)\s(?P<secret>(?:[^\r\n\\]|\\["'/\\])+)"#,
        |text, found| parameters(text, found.name("secret")?.range()),
    ),
    // Bearer tokens (RFC 6750), Basic (RFC 7617) and the `Token` of many services, without a header's name.
    form(&["bearer"], r"(?i)bearer\s{1,4}(?P<secret>[A-Za-z0-9._~+/=-]{4,})", |text, found| {
        let token = found.name("secret")?;
        let is_token = has_digit(token.as_str()) || token.len() >= 16;
        let is_own_word = begins_word(text, found.get_match().start());
        (is_own_word && is_token && !is_placeholder(token.as_str())).then(|| token.range())
    }),
    form(&["basic "], r"(?i)basic\s{1,4}(?P<secret>[A-Za-z0-9+/_-]{8,}={0,2})", |text, found| {
        let pair = found.name("secret")?;
        (begins_word(text, found.get_match().start()) && is_basic(pair.as_str()))
            .then(|| pair.range())
    }),
    form(&["token "], r"(?i)token\s{1,4}(?P<secret>[A-Za-z0-9._~+/=-]{12,})", |text, found| {
        let token = found.name("secret")?;
        let is_token = has_digit(token.as_str()) && has_letter(token.as_str());
        (begins_word(text, found.get_match().start()) && is_token).then(|| token.range())
    }),
    // Cookies (RFC 6265): the value of the first, and all that follow it.
    form(
        &["cookie"],
        r#"(?i)cookie2?(?:\\{0,7}["'])?\]?\s{0,4}(?:[:=,]|\s)\s{0,4}(?:\\{0,7}["'])?[^\s=:;,"'\\]{1,100}=(?P<secret>[^\s;,"'\\]+(?:;\s{0,4}[^\s;,"'\\]+)*)"#,
        |_, found| Some(found.name("secret")?.range()),
    ),
    // user:password@ in URLs (RFC 3986, 3.2.1), to the last `@` before the path; or a token as user.
    form(
        &["://", r":\/\/"],
        r#":\\?/\\?/(?P<user>[^\s/:@"'\\<>]*):(?P<secret>[^\s/"'\\]*)@"#,
        |_, found| {
            let (user, password) = (found.name("user")?, found.name("secret")?);
            let is_token = user.len() >= 16 && has_digit(user.as_str());
            let is_shown = password.is_empty() || is_reference(password.as_str());
            match (is_token, is_shown) {
                (true, _) => Some(user.start()..password.end()),
                (false, true) => None,
                (false, false) => Some(password.range()),
            }
        },
    ),
    form(
        &["://", r":\/\/"],
        r#"(?i)(?:https?|wss?|ftps?|amqps?|rediss?|git):\\?/\\?/(?P<secret>[^\s/:@"'\\?#<>]{6,})@"#,
        |_, found| {
            let user = found.name("secret")?;
            let is_token = has_digit(user.as_str()) && has_letter(user.as_str());
            let is_secret = is_token || user.len() >= 20;
            (is_secret && !is_reference(user.as_str())).then(|| user.range())
        },
    ),
    // The same without a scheme, as database drivers accept it.
    form(
        &["@"],
        r#"[A-Za-z0-9_.-]{1,64}:(?P<secret>[^\s:/@"'\\]{4,128})@(?P<host>(?:tcp|unix)\(|[A-Za-z0-9.-]{1,255}[:/])"#,
        |_, found| {
            let (password, host) = (found.name("secret")?, found.name("host")?.as_str());
            let is_host = has_letter(host) && !host.starts_with("sha") && !is_version(host);
            (is_host && has_letter(password.as_str()) && !is_reference(password.as_str()))
                .then(|| password.range())
        },
    ),
    // Parameters of signed URLs and of keys in queries.
    form(
        &["key=", "sig=", "signature=", "code=", "auth="],
        r"(?i)[?&](?:x-amz-|x-goog-)?(?:auth|code|key|sig|signature)=(?P<secret>[A-Za-z0-9%._~+/=-]{16,})",
        |_, found| {
            let value = found.name("secret")?;
            has_digit(value.as_str()).then(|| value.range())
        },
    ),
    // SQL: CREATE USER … IDENTIFIED BY '…'.
    form(
        &["identified"],
        r#"(?i)identified\s{1,8}(?:with\s{1,8}[^\s]{1,64}\s{1,8})?(?:by|as)\s{1,8}["']"#,
        |text, found| Some(quoted::value(text, found.get_match().end() - 1)),
    ),
    // Arguments of curl and sshpass.
    form(
        &["-u", "--user"],
        r#"(?:^|[\s"'])(?:-u|--user)[\s=,"']{1,8}(?P<user>[^\s:"'\\]{1,64}):(?P<secret>[^\s"'\\]{3,})"#,
        |_, found| {
            let (user, password) = (found.name("user")?, found.name("secret")?);
            let is_password = has_letter(password.as_str()) && user.as_str() != password.as_str();
            (is_password && !is_reference(password.as_str())).then(|| password.range())
        },
    ),
    form(&["sshpass"], r#"sshpass\s{1,4}-p[\s"',]{0,8}(?P<secret>[^\s"'\\]{3,})"#, |_, found| {
        Some(found.name("secret")?.range())
    }),
];

/// The begin and end marks of a private key: PEM (RFC 7468), OpenPGP (RFC 9580, 6.2), SSH (RFC 4716) and PuTTY.
static BEGIN: LazyLock<Regex> = LazyLock::new(|| {
    let begin =
        r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-Lines: {0,2}[0-9]+";
    Regex::new(begin).expect("the expression above is valid")
});
static END: LazyLock<Regex> = LazyLock::new(|| {
    let end = r"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-MAC:";
    Regex::new(end).expect("the expression above is valid")
});

/// A search that runs only in texts with one of its words.
#[derive(Clone, Copy)]
enum WordSearch {
    Form(usize),
    PrivateKeys,
    Settings,
    Token(usize),
}

/// The words, and the search that each starts.
static WORDS: LazyLock<(AhoCorasick, Vec<WordSearch>)> = LazyLock::new(|| {
    let mut words = vec![
        ("PRIVATE KEY", WordSearch::PrivateKeys),
        ("Private-Lines", WordSearch::PrivateKeys),
        ("pass", WordSearch::Settings),
        ("pwd", WordSearch::Settings),
        ("secret", WordSearch::Settings),
        ("token", WordSearch::Settings),
        ("credential", WordSearch::Settings),
        ("key", WordSearch::Settings),
    ];
    for (index, form) in FORMS.iter().enumerate() {
        words.extend(form.words.iter().map(|word| (*word, WordSearch::Form(index))));
    }
    words.extend(
        TOKENS.iter().enumerate().map(|(index, token)| (token.word, WordSearch::Token(index))),
    );
    let finder = AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .match_kind(MatchKind::Standard)
        .kind(Some(AhoCorasickKind::DFA))
        .build(words.iter().map(|(word, _)| *word))
        .expect("the words above are few");
    (finder, words.into_iter().map(|(_, search)| search).collect())
});

/// Finds likely secrets.
pub(crate) fn find(text: &str, found: &mut Vec<RedactionRange>) {
    steps::count(text.len());
    let (finder, searches) = &*WORDS;
    let mut seen = vec![false; searches.len()];
    for word in finder.find_overlapping_iter(text) {
        seen[word.pattern().as_usize()] = true;
    }
    let mut settings_searched = false;
    let mut keys_searched = false;
    let mut forms_searched = [false; FORMS.len()];
    for search in seen.iter().zip(searches).filter_map(|(seen, search)| seen.then_some(search)) {
        match search {
            WordSearch::Form(index) if !std::mem::replace(&mut forms_searched[*index], true) => {
                FORMS[*index].find(text, found);
            }
            WordSearch::PrivateKeys if !std::mem::replace(&mut keys_searched, true) => {
                private_keys(text, found);
            }
            WordSearch::Settings if !std::mem::replace(&mut settings_searched, true) => {
                settings::find(text, found);
            }
            WordSearch::Token(index) => TOKENS[*index].find(text, found),
            WordSearch::Form(_) | WordSearch::PrivateKeys | WordSearch::Settings => {}
        }
    }
}

impl CredentialForm {
    fn find(&self, text: &str, found: &mut Vec<RedactionRange>) {
        let regex = self.regex.get_or_init(|| {
            Regex::new(self.pattern).expect("the rows above are valid expressions")
        });
        for captures in regex.captures_iter(text) {
            if let Some(range) = (self.secret)(text, &captures) {
                found.push(RedactionRange::at(range));
            }
        }
    }
}

/// Finds private keys. A key without an end mark extends to the end of its string, or of the text.
fn private_keys(text: &str, found: &mut Vec<RedactionRange>) {
    let mut ends = END.find_iter(text).peekable();
    let mut from = 0;
    while let Some(begin) = BEGIN.find_at(text, from) {
        from = begin.end();
        if text[from..].starts_with(REDACTED) {
            continue;
        }
        steps::count(begin.len());
        while ends.next_if(|end| end.start() < begin.end()).is_some() {}
        let end = match ends.peek() {
            Some(end) => end.end(),
            None => {
                let rest = &text[begin.end()..];
                let quote = rest.find('"').unwrap_or(rest.len());
                steps::count(quote);
                begin.end() + rest[..quote].trim_end_matches('\\').len()
            }
        };
        lines_of_key(text, begin.end()..end, found);
        from = end;
    }
}

/// Finds the lines of a key. It may be a list of strings, one for each line; the quotes are kept.
fn lines_of_key(text: &str, key: Range<usize>, found: &mut Vec<RedactionRange>) {
    // A quote in strings within strings has 1, 3, 7 backslashes. A backslash of the text itself has
    // twice as many as the quote that closes its string, and belongs to the key.
    let escapes = |quote: usize| {
        let before = text[key.start..quote].bytes().rev();
        let backslashes = before.take_while(|byte| *byte == b'\\').count();
        steps::count(backslashes);
        (1 << backslashes.trailing_ones()) - 1
    };
    let quotes = text[key.clone()].match_indices('"').map(|(at, _)| key.start + at);
    let quotes: Vec<(usize, usize)> = quotes.map(|quote| (quote, escapes(quote))).collect();
    // Quotes with more backslashes than others are inside strings.
    let least = quotes.iter().map(|(_, escapes)| *escapes).min().unwrap_or_default();
    let mut start = Some(key.start);
    for (quote, _) in quotes.into_iter().filter(|(_, escapes)| *escapes == least) {
        start = match start {
            Some(start) => {
                found.push(RedactionRange::at(start..quote - least));
                None
            }
            None => Some(quote + 1),
        };
    }
    found.extend(start.map(|start| RedactionRange::at(start..key.end)));
}

/// Returns the text after `Authorization:`, unless it is a word of prose.
fn credentials(found: &Captures<'_>) -> Option<Range<usize>> {
    let value = found.name("secret")?;
    let has_scheme = found.get_match().as_str().len() - value.len() > "authorization: \"".len();
    let text = value.as_str();
    let is_credential = match has_scheme {
        true => text.len() >= 3,
        false => has_digit(text) || text.len() >= 16,
    };
    let is_scheme = ["aws4-hmac-sha256", "digest", "hawk", "hmac", "oauth", "signature"].iter();
    let is_scheme = is_scheme.clone().any(|scheme| text.eq_ignore_ascii_case(scheme));
    (is_credential && !is_scheme && !is_placeholder(text)).then(|| value.range())
}

/// Returns the range of parameters, up to the end of the line or of the string around it.
fn parameters(text: &str, line: Range<usize>) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    // In a JSON string, the header's own quotes are escaped.
    let mut at = line.start;
    let mut last = line.start;
    while at < line.end {
        match bytes[at] {
            b'\\' => at += 1,
            b'"' if opens_value(&bytes[line.start..line.end], at - line.start) => {
                at = quoted::value(text, at).end.min(line.end);
            }
            b'"' => break,
            _ => {}
        }
        at += 1;
        last = at.min(line.end);
    }
    Some(line.start..last)
}

/// Returns whether this quote opens the value of a parameter, as in `realm="`. One after the padding of Base64, or
/// before the sign that follows a string in JSON, closes the string around the header.
fn opens_value(line: &[u8], quote: usize) -> bool {
    let Some(before) = line[..quote].strip_suffix(b"=") else { return false };
    let ends = |byte: &u8| matches!(byte, b',' | b' ' | b'=');
    let begin = before.iter().rposition(ends);
    steps::count(quote - begin.unwrap_or(0));
    let is_named = begin.is_none_or(|at| before[at] != b'=');
    let mut behind = line[quote + 1..].iter();
    let next = behind.find(|byte| !byte.is_ascii_whitespace());
    is_named && next.is_some_and(|byte| !matches!(byte, b',' | b']' | b'}' | b':'))
}

fn has_digit(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

fn has_letter(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Returns whether this is `user:password` in Base64.
fn is_basic(pair: &str) -> bool {
    let pair = pair.trim_end_matches('=').replace('-', "+").replace('_', "/");
    STANDARD_NO_PAD
        .decode(&pair)
        .is_ok_and(|pair| pair.contains(&b':') && pair.iter().all(|byte| !byte.is_ascii_control()))
}

/// Returns whether a text only refers to the location of a secret.
fn is_reference(text: &str) -> bool {
    is_placeholder(text) && !text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Returns whether this is the version of a package after its `@`: `4.17.21/`.
fn is_version(host: &str) -> bool {
    let host = host.trim_start_matches('v').trim_end_matches([':', '/']);
    host.split('.')
        .next()
        .is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
        && !host.split('.').all(|part| part.parse::<u8>().is_ok())
}
