//! Parser of patterns; each part has its column.

use std::str::Chars;

use crate::pattern::condition::{Comparison, Operand, PatternCondition};
use crate::pattern::error::{PatternError, shorten};
use crate::pattern::glob::{Glob, NULL, is_bare};
use crate::pattern::path::{DATA, EnvelopeField, Path, is_name};
use crate::pattern::wanted::EventTypePattern;

/// Maximum characters of a [`Pattern`](crate::Pattern), without white space between its parts.
pub const MAX_PATTERN_CHARS: usize = 1024;

/// Maximum number of conditions in a [`Pattern`](crate::Pattern).
pub const MAX_CONDITIONS: usize = 16;

/// A parsed pattern.
pub(crate) struct ParsedPattern {
    /// Column of its start.
    pub(crate) column: usize,
    pub(crate) wanted: EventTypePattern,
    pub(crate) conditions: Vec<ParsedCondition>,
}

/// A condition with its columns.
pub(crate) struct ParsedCondition {
    pub(crate) condition: PatternCondition,
    /// Column of the field.
    pub(crate) column: usize,
    /// Column of the value.
    pub(crate) value_column: usize,
}

/// Parser that reads patterns from left to right.
pub(crate) struct PatternReader<'t> {
    rest: Chars<'t>,
    /// Column of the rest.
    column: usize,
    /// Number of characters skipped between parts.
    spaces: usize,
}

impl<'t> PatternReader<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let mut reader = Self { rest: text.chars(), column: 1, spaces: 0 };
        reader.skip_spaces();
        reader
    }

    /// Reads one pattern and the white space after it.
    pub(crate) fn pattern(&mut self) -> Result<ParsedPattern, PatternError> {
        let (column, spaces) = (self.column, self.spaces);
        let wanted = self.read_event_type()?;
        self.skip_spaces();
        let conditions = if self.take('[') { self.conditions()? } else { Vec::new() };
        let chars = (self.column - column) - (self.spaces - spaces);
        if chars > MAX_PATTERN_CHARS {
            let found = format!("{chars}");
            let expected = format!("at most {MAX_PATTERN_CHARS} characters");
            return Err(PatternError::Syntax { column, expected, found, hint: None });
        }
        Ok(ParsedPattern { column, wanted, conditions })
    }

    /// Reads the `or` between two patterns; returns `false` at the end.
    pub(crate) fn or(&mut self) -> Result<bool, PatternError> {
        if self.peek().is_none() {
            return Ok(false);
        }
        let mut ahead = self.rest.clone();
        let is_or = ahead.next() == Some('o') && ahead.next() == Some('r');
        if !is_or || ahead.next().is_some_and(|c| !c.is_whitespace()) {
            return Err(self.syntax_error("`or` or the end"));
        }
        self.bump();
        self.bump();
        self.skip_spaces();
        Ok(true)
    }

    /// Checks that nothing follows.
    pub(crate) fn end(&self) -> Result<(), PatternError> {
        match self.peek() {
            None => Ok(()),
            Some('o') => {
                Err(self
                    .syntax_error_with_hint("the end", "give several patterns as a list of texts"))
            }
            Some(_) => Err(self.syntax_error("the end")),
        }
    }

    fn read_event_type(&mut self) -> Result<EventTypePattern, PatternError> {
        let every = "write `*.*` for every type of two segments";
        let mut text = self.segment("an event type, such as `run.failed`")?;
        if self.peek() == Some('.') {
            self.bump();
            text.push('.');
            text.push_str(&self.segment("the second segment of a type, or `*`")?);
        } else if text == "*" {
            return Err(self.syntax_error_with_hint("`.`", every));
        }
        match self.peek() {
            Some('*') => Err(self.syntax_error_with_hint(
                "`[` or the end",
                "in a type, `*` stands for a whole segment, as in `tool.*`",
            )),
            Some('.') => {
                Err(self
                    .syntax_error_with_hint("`[` or the end", "a type has at most two segments"))
            }
            Some(c) if is_name(c) => Err(self.syntax_error_with_hint("`.`", every)),
            _ => Ok(EventTypePattern::new(text)),
        }
    }

    fn segment(&mut self, expected: &str) -> Result<String, PatternError> {
        if self.take('*') {
            return Ok("*".to_owned());
        }
        let name = self.take_while(is_name);
        if name.is_empty() { Err(self.syntax_error(expected)) } else { Ok(name) }
    }

    /// Reads the text in brackets after the opening bracket.
    fn conditions(&mut self) -> Result<Vec<ParsedCondition>, PatternError> {
        let mut conditions = Vec::new();
        loop {
            self.skip_spaces();
            if conditions.len() == MAX_CONDITIONS {
                let expected = format!("at most {MAX_CONDITIONS} conditions");
                return Err(self.syntax_error(&expected));
            }
            conditions.push(self.condition()?);
            self.skip_spaces();
            match self.peek() {
                Some(',') => self.bump(),
                Some(']') => break,
                Some(c) if is_bare(c) || c == '"' => {
                    let hint = "write a value with spaces or punctuation in double quotes";
                    return Err(self.syntax_error_with_hint("`,` or `]`", hint));
                }
                _ => return Err(self.syntax_error("`,` or `]`")),
            }
        }
        self.bump();
        self.skip_spaces();
        Ok(conditions)
    }

    fn condition(&mut self) -> Result<ParsedCondition, PatternError> {
        let column = self.column;
        let path = self.path()?;
        self.skip_spaces();
        let operator = self.operator()?;
        self.skip_spaces();
        let value_column = self.column;
        let operand = Operand::new(self.value(&path)?);
        Ok(ParsedCondition {
            condition: PatternCondition { path, operator, operand },
            column,
            value_column,
        })
    }

    fn path(&mut self) -> Result<Path, PatternError> {
        let mut names = vec![self.name("a field, such as `reason`")?];
        while self.take('.') {
            names.push(self.name("a field inside of the one before")?);
        }
        let first = names.first().map(String::as_str);
        match first.map(|name| (name, EnvelopeField::find(name))) {
            Some((_, Some(field))) if names.len() == 1 => Ok(Path::Envelope(field)),
            Some((name, Some(_))) => {
                let hint = format!("write `{DATA}.{name}` for a field of this name in the payload");
                Err(self
                    .syntax_error_with_hint("an operator behind a field of the envelope", &hint))
            }
            Some((DATA, None)) if names.len() == 1 => Err(self.syntax_error_with_hint(
                "`.` and a field of `data`",
                "name what it is to be held against",
            )),
            Some((DATA, None)) => {
                names.remove(0);
                Ok(Path::Data(names))
            }
            _ => Ok(Path::Data(names)),
        }
    }

    fn name(&mut self, expected: &str) -> Result<String, PatternError> {
        if self.take('"') {
            let mut name = String::new();
            while let Some((c, _)) = self.read_quoted_char()? {
                name.push(c);
            }
            return Ok(name);
        }
        let name = self.take_while(is_name);
        if name.is_empty() { Err(self.syntax_error(expected)) } else { Ok(name) }
    }

    fn operator(&mut self) -> Result<Comparison, PatternError> {
        let expected = "`=`, `!=`, `<`, `<=`, `>` or `>=`";
        let Some(first) = self.peek().filter(|c| matches!(c, '=' | '!' | '<' | '>')) else {
            return Err(self.syntax_error(expected));
        };
        self.bump();
        let has_equals = first != '=' && self.take('=');
        match (first, has_equals) {
            ('=', _) if self.peek() == Some('=') => {
                Err(self.syntax_error_with_hint("a value", "write one `=` to compare"))
            }
            ('=', _) => Ok(Comparison::Equal),
            ('<', false) => Ok(Comparison::Less),
            ('<', true) => Ok(Comparison::LessOrEqual),
            ('>', false) => Ok(Comparison::Greater),
            ('>', true) => Ok(Comparison::GreaterOrEqual),
            (_, true) => Ok(Comparison::NotEqual),
            (_, false) => Err(self.syntax_error("`=` behind `!`")),
        }
    }

    fn value(&mut self, path: &Path) -> Result<Glob, PatternError> {
        let mut glob = Glob::new();
        if self.take('"') {
            while let Some((c, is_escaped)) = self.read_quoted_char()? {
                if c == '*' && !is_escaped { glob.push_wildcard() } else { glob.push(c) }
            }
            return Ok(glob);
        }
        let begin = (self.rest.clone(), self.column);
        for c in self.take_while(is_bare).chars() {
            if c == '*' { glob.push_wildcard() } else { glob.push(c) }
        }
        match glob.exact() {
            Some("") => {
                Err(self.syntax_error_with_hint("a value", "write `\"\"` for the empty text"))
            }
            Some(NULL) => {
                (self.rest, self.column) = begin;
                let hint = format!(
                    "write `{}!=*` for a field that is null or missing",
                    shorten(&path.to_string())
                );
                Err(self.syntax_error_with_hint("a value", &hint))
            }
            _ => Ok(glob),
        }
    }

    /// Reads a character between quotes, and whether it was escaped; `None` at the closing quote.
    fn read_quoted_char(&mut self) -> Result<Option<(char, bool)>, PatternError> {
        match self.peek() {
            None => Err(self.syntax_error("`\"` at the end of a quoted text")),
            Some('"') => {
                self.bump();
                Ok(None)
            }
            Some('\\') => {
                self.bump();
                self.read_escape().map(|c| Some((c, true)))
            }
            Some(c) if c.is_control() => {
                let hint = "write `\\n`, `\\r`, `\\t`, or `\\u{…}` with its number";
                Err(self.syntax_error_with_hint("no control character", hint))
            }
            Some(c) => {
                self.bump();
                Ok(Some((c, false)))
            }
        }
    }

    /// Reads the rest of an escape, after the backslash.
    fn read_escape(&mut self) -> Result<char, PatternError> {
        let c = match self.peek() {
            Some(c @ ('"' | '\\' | '*')) => c,
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                self.bump();
                return self.read_code_point();
            }
            _ => return Err(self.syntax_error("`\"`, `\\`, `*`, `n`, `r`, `t` or `u` behind `\\`")),
        };
        self.bump();
        Ok(c)
    }

    /// Reads the code point of an escape: `{1f600}`.
    fn read_code_point(&mut self) -> Result<char, PatternError> {
        let column = self.column;
        let found = self.describe_next();
        let is_open = self.take('{');
        let digits = self.take_while(|c| c.is_ascii_hexdigit());
        let number = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
        match number.filter(|_| is_open && self.take('}')) {
            Some(c) => Ok(c),
            None => Err(PatternError::Syntax {
                column,
                expected: "the number of a character, such as `{1f600}`".to_owned(),
                found,
                hint: None,
            }),
        }
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn bump(&mut self) {
        if self.rest.next().is_some() {
            self.column += 1;
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.bump();
        }
        is_there
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> String {
        let taken: String = self.rest.clone().take_while(|c| fits(*c)).collect();
        taken.chars().for_each(|_| self.bump());
        taken
    }

    fn skip_spaces(&mut self) {
        self.spaces += self.take_while(char::is_whitespace).chars().count();
    }

    fn syntax_error(&self, expected: &str) -> PatternError {
        let (expected, found) = (expected.to_owned(), self.describe_next());
        PatternError::Syntax { column: self.column, expected, found, hint: None }
    }

    fn syntax_error_with_hint(&self, expected: &str, advice: &str) -> PatternError {
        let (expected, found) = (expected.to_owned(), self.describe_next());
        PatternError::Syntax { column: self.column, expected, found, hint: Some(advice.to_owned()) }
    }

    /// Returns the text at this position for an error message.
    fn describe_next(&self) -> String {
        let word: String = self.rest.clone().take_while(|c| is_bare(*c)).collect();
        match (self.peek(), word.is_empty()) {
            (None, _) => "the end".to_owned(),
            (Some(c), true) if c.is_control() => "a control character".to_owned(),
            (Some(c), true) if c.is_whitespace() => "a space".to_owned(),
            (Some(c), true) => format!("`{c}`"),
            (Some(_), false) => format!("`{}`", shorten(&word)),
        }
    }
}
