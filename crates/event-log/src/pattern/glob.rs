//! Text with `*` wildcards that match any text.

use std::fmt;

/// Text with wildcards: the parts between them, one more than there are wildcards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob(Vec<String>);

impl Glob {
    /// Returns the glob of the empty text.
    pub(crate) fn new() -> Self {
        Self(vec![String::new()])
    }

    pub(crate) fn push(&mut self, c: char) {
        if let Some(last) = self.0.last_mut() {
            last.push(c);
        }
    }

    /// Adds a wildcard; a wildcard after another one changes nothing.
    pub(crate) fn push_wildcard(&mut self) {
        if self.0.len() == 1 || self.0.last().is_some_and(|last| !last.is_empty()) {
            self.0.push(String::new());
        }
    }

    /// Returns the text if it has no wildcard.
    pub(crate) fn exact(&self) -> Option<&str> {
        match self.0.as_slice() {
            [text] => Some(text),
            _ => None,
        }
    }

    /// Returns whether it matches every text.
    pub(crate) fn is_any(&self) -> bool {
        matches!(self.0.as_slice(), [before, behind] if before.is_empty() && behind.is_empty())
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        let [first, middle @ .., last] = self.0.as_slice() else {
            return self.exact() == Some(text);
        };
        let inside = text.strip_prefix(first.as_str());
        let Some(mut inside) = inside.and_then(|text| text.strip_suffix(last.as_str())) else {
            return false;
        };
        middle.iter().all(|part| match inside.find(part.as_str()) {
            Some(at) => {
                inside = &inside[at + part.len()..];
                true
            }
            None => false,
        })
    }

    fn is_bare(&self) -> bool {
        let is_empty = self.exact() == Some("");
        let is_bare = |c: char| is_bare(c) && c != '*';
        !is_empty
            && self.exact() != Some(NULL)
            && self.0.iter().all(|part| part.chars().all(is_bare))
    }
}

/// JSON's word for a missing value, which no value is compared with.
pub(crate) const NULL: &str = "null";

/// Returns whether a character is allowed in a value without quotes.
pub(crate) fn is_bare(c: char) -> bool {
    !c.is_whitespace()
        && !c.is_control()
        && !matches!(c, '[' | ']' | ',' | '"' | '\\' | '=' | '!' | '<' | '>')
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_bare() {
            return f.write_str(&self.0.join("*"));
        }
        f.write_str("\"")?;
        for (place, part) in self.0.iter().enumerate() {
            f.write_str(if place > 0 { "*" } else { "" })?;
            for c in part.chars() {
                if c == '*' {
                    f.write_str("\\*")?;
                } else {
                    write_escaped(f, c)?;
                }
            }
        }
        f.write_str("\"")
    }
}

/// Writes a character as it is escaped between quotes.
pub(crate) fn write_escaped(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    match c {
        '"' | '\\' => write!(f, "\\{c}"),
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        c if c.is_control() => write!(f, "\\u{{{:x}}}", u32::from(c)),
        c => write!(f, "{c}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> Glob {
        let mut glob = Glob::new();
        for c in text.chars() {
            if c == '*' { glob.push_wildcard() } else { glob.push(c) }
        }
        glob
    }

    /// Spec: X1
    #[test]
    fn wildcards_stand_for_any_text() {
        for (wanted, text, is_match) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("*a", "ba", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*b*", "abc", true),
            ("a**b", "a-b", true),
            ("provider.*", "provider.timeout", true),
            ("*\u{e9}*", "caf\u{e9}s", true),
        ] {
            assert_eq!(glob(wanted).matches(text), is_match, "{wanted} {text}");
        }
        assert!(glob("**").is_any() && !glob("a*").is_any() && glob("").exact() == Some(""));
    }
}
