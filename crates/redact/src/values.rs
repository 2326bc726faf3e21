//! Values of settings: secrets, and words of prose and program text instead.

/// The certainty that a name belongs to a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameCertainty {
    /// `password`, `client_secret`: the value is a secret.
    Sure,
    /// `token`, `pass`: the value may also be a word of a grammar, or a number.
    Likely,
}

/// Facts about a value from the text before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hint {
    pub(crate) name: NameCertainty,
    /// Whether there is `=` without a blank, as in the environment or a query.
    pub(crate) is_tight: bool,
    /// Whether the name is in quotes, as in JSON.
    pub(crate) is_json: bool,
    /// Whether the name is `PWD`, which is the current folder in a shell.
    pub(crate) is_folder: bool,
}

/// Words that may replace a secret, in lower case.
const PLACEHOLDERS: &[&str] = &[
    "and",
    "any",
    "are",
    "auth",
    "authentication",
    "authorization",
    "bool",
    "boolean",
    "bytes",
    "cannot",
    "credentials",
    "denied",
    "disabled",
    "does",
    "empty",
    "enabled",
    "expected",
    "expired",
    "failed",
    "false",
    "field",
    "forbidden",
    "format",
    "found",
    "from",
    "has",
    "header",
    "hidden",
    "identifier",
    "incorrect",
    "int",
    "integer",
    "invalid",
    "is",
    "key",
    "length",
    "masked",
    "missing",
    "must",
    "nil",
    "none",
    "not",
    "null",
    "number",
    "object",
    "omitted",
    "optional",
    "password",
    "prompt",
    "redacted",
    "rejected",
    "required",
    "scheme",
    "secret",
    "secretstr",
    "should",
    "str",
    "string",
    "text",
    "the",
    "token",
    "true",
    "unauthorized",
    "undefined",
    "unexpected",
    "unknown",
    "unset",
    "value",
    "varchar",
    "verification",
    "was",
    "with",
    "wrong",
];

/// Words of sentences about a setting.
const PROSE: &[&str] = &[
    "cannot",
    "characters",
    "expired",
    "incorrect",
    "invalid",
    "match",
    "missing",
    "must",
    "required",
    "should",
    "too",
    "unexpected",
    "wrong",
];

/// Beginnings of references to a secret.
const REFERENCES: &[&str] = &[
    "${",
    "$(",
    "{{",
    "%(",
    "#{",
    "[redacted",
    "env:",
    "file:",
    "command:",
    "vault:",
    "op://",
    "ssm:",
    "arn:aws:",
    "process.env",
    "os.environ",
    "os.getenv",
    "secrets.",
];

/// Returns whether this is not a secret, whatever precedes it.
pub(crate) fn is_placeholder(value: &str) -> bool {
    let value = value.trim();
    let is_mark = |char: char| matches!(char, '*' | 'x' | 'X' | '.' | '-' | '_' | '•' | '…' | '?');
    value.is_empty()
        || value.chars().all(is_mark)
        || PLACEHOLDERS.iter().any(|word| value.eq_ignore_ascii_case(word))
        || REFERENCES.iter().any(|prefix| value.starts_with(prefix))
        || (value.starts_with('<') && value.ends_with('>'))
        || value.strip_prefix('$').is_some_and(is_variable)
}

fn is_variable(name: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
    let name = name.trim_end_matches(|char: char| char.is_ascii_digit());
    !name.is_empty()
        && (name.bytes().all(is_name) || name.bytes().all(|byte| byte.is_ascii_lowercase()))
}

pub(crate) fn is_secret_quoted(value: &str, hint: Hint) -> bool {
    let is_prose = || {
        let words = value.split_ascii_whitespace().map(|word| word.trim_matches(['.', ',', ':']));
        value.contains(' ') && words.clone().any(|word| PROSE.contains(&word))
    };
    let is_long = match hint.name {
        NameCertainty::Sure => value.len() >= 4,
        NameCertainty::Likely => value.len() >= 6 && !value.contains(char::is_whitespace),
    };
    is_long && !is_placeholder(value) && !is_prose()
}

/// Returns whether a bare value is a secret. `is_last` is whether it ends its line.
pub(crate) fn is_secret_bare(value: &str, hint: Hint, is_last: bool) -> bool {
    if value.len() < 4 || is_placeholder(value) || is_program_text(value) || is_path(value, hint) {
        return false;
    }
    let has_digit = value.bytes().any(|byte| byte.is_ascii_digit());
    let has_letter = value.bytes().any(|byte| byte.is_ascii_alphabetic());
    let is_word =
        value.bytes().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-' | b'.'));
    match (hint.name, has_digit, has_letter) {
        (NameCertainty::Sure, ..) if hint.is_tight => true,
        (NameCertainty::Sure, true, false) => hint.is_json || value.len() >= 6,
        (NameCertainty::Sure, true, true) => true,
        (NameCertainty::Sure, ..) if !is_word => value.len() >= 6,
        (NameCertainty::Sure, ..) => value.len() >= 16 || (is_last && value.len() >= 6),
        (NameCertainty::Likely, true, false) => value.len() >= 9,
        (NameCertainty::Likely, true, true) => value.len() >= 6,
        (NameCertainty::Likely, ..) if hint.is_tight => value.len() >= 8,
        (NameCertainty::Likely, ..) => value.len() >= 20,
    }
}

/// Returns whether this is a name or a call, such as `self.token` and `read_secret()`.
fn is_program_text(value: &str) -> bool {
    let (path, is_call) = match value.split_once('(') {
        Some((path, rest)) => (path, rest.ends_with(')') || !rest.contains(')')),
        None => (value, false),
    };
    let is_name = |name: &str| {
        name.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let names = || path.split(['.', ':']).filter(|name| !name.is_empty());
    let is_path = path.contains('.') && !path.bytes().any(|byte| byte.is_ascii_digit());
    value.starts_with('&') || ((is_call || is_path) && names().all(is_name))
}

fn is_path(value: &str, hint: Hint) -> bool {
    hint.is_folder && (value.starts_with(['/', '~']) || value.get(1..3) == Some(":\\"))
}
