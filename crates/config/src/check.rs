//! Collection of all mistakes of an agent file.
//!
//! A reader stops at the first mistake. Here the mistake is repaired in a copy of the text, and the copy is read again
//! until there is no further mistake. A repair keeps the line numbers.

mod text;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use toml::de::DeTable;

use self::text::{Header, Text};
use crate::parse::of_toml;
use crate::read::read_text;
use crate::{AgentFile, ConfigError};

/// Number of mistakes after which the search ends.
const MOST: usize = 200;

/// The result of a check of an agent file.
#[derive(Debug)]
#[non_exhaustive]
pub struct CheckedFile {
    /// The file without its mistakes; `None` if it cannot be read.
    pub file: Option<AgentFile>,
    /// The mistakes, by line.
    pub mistakes: Vec<ConfigError>,
    headers: Vec<Header>,
    stand_ins: Vec<StandIn>,
}

/// A repair with which parsing continued after a mistake.
#[derive(Debug)]
struct StandIn {
    line: usize,
    /// The keys whose values were replaced.
    keys: Vec<String>,
    /// A generated name, with the original one.
    name: Option<(String, String)>,
}

impl CheckedFile {
    /// Returns the line of the `index`-th table of a name, such as `tools` or `model.fallback`, counted from 0.
    #[must_use]
    pub fn find_table_line(&self, table: &str, index: usize) -> Option<usize> {
        let named = self.headers.iter().filter(|header| header.name == table && !header.is_gone);
        named.map(|header| header.line).nth(index)
    }

    /// Returns whether a repair in the `index`-th table of a name can be the cause of a further mistake there.
    #[must_use]
    pub fn may_explain(&self, table: &str, index: usize, what: &str) -> bool {
        let Some(lines) = self.line_range(table, index) else { return false };
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let words: BTreeSet<&str> = what.split(|c| !is_word(c)).collect();
        let mut keys = self.stand_ins.iter().filter(|it| lines.contains(&it.line));
        keys.any(|it| {
            it.keys.iter().any(|key| match key.as_str() {
                // The kind of a tool decides what else applies to it.
                "kind" => true,
                // The original name is restored.
                "name" => false,
                "provider" => words.contains("script") || words.contains("provider"),
                key => words.contains(key),
            })
        })
    }

    /// Returns a text about the file with the original names in place of generated ones.
    #[must_use]
    pub fn as_written(&self, text: &str) -> String {
        let names = self.stand_ins.iter().filter_map(|it| it.name.as_ref());
        names.fold(text.to_owned(), |text, (name, written)| text.replace(name, written))
    }

    /// Returns the lines of a table and of the tables inside it.
    fn line_range(&self, table: &str, index: usize) -> Option<Range<usize>> {
        let begin = self.find_table_line(table, index)?;
        let is_inside = |name: &str| {
            name.strip_prefix(table).is_some_and(|rest| rest.starts_with('.')) && index == 0
        };
        let behind = self.headers.iter().filter(|header| header.line > begin);
        let end = behind.filter(|header| !is_inside(&header.name)).map(|header| header.line).min();
        Some(begin..end.unwrap_or(usize::MAX))
    }
}

impl AgentFile {
    /// Reads an agent file and reports every mistake in it, each with its line and a hint.
    ///
    /// Mistakes that only show when the agent is built, such as a missing command, are not found.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the file itself cannot be read.
    pub fn check(path: &Path) -> Result<CheckedFile, ConfigError> {
        let written = read_text(path)?;
        let (_, broken) = DeTable::parse_recoverable(&written);
        if !broken.is_empty() {
            // In a text that is no TOML, checks of keys would only guess.
            let broken = broken.iter().map(|error| of_toml(path, &written, error));
            let mut mistakes: Vec<ConfigError> = broken.collect();
            mistakes.sort_by_key(ConfigError::line);
            return Ok(CheckedFile {
                file: None,
                mistakes,
                headers: Vec::new(),
                stand_ins: Vec::new(),
            });
        }
        let mut text = Text::new(&written);
        let mut headers = text.headers();
        let mut mistakes = Vec::new();
        let mut stand_ins = Vec::new();
        let mut said = BTreeSet::new();
        let file = loop {
            let error = match Self::of_text(path, &text.now) {
                Ok(file) => break Some(file),
                Err(error) => error,
            };
            let line = error.line().and_then(|line| text.lines.get(line - 1).copied());
            let span = error.span().cloned();
            let is_new = said.insert((line, error.to_string()));
            let mended = is_new && mistakes.len() < MOST && text.mend(&error, span);
            if let (Some(line), Some(change)) = (line, text.change.take()) {
                let gone = headers.iter_mut().filter(|header| Some(header.line) == change.gone);
                gone.for_each(|header| header.is_gone = true);
                stand_ins.push(StandIn { line, keys: change.keys, name: change.name });
            }
            mistakes.push(match line {
                Some(line) => error.in_line(line),
                None => error,
            });
            if !mended {
                break None;
            }
        };
        mistakes.sort_by_key(ConfigError::line);
        let mut checked = CheckedFile { file, mistakes: Vec::new(), headers, stand_ins };
        let named =
            mistakes.into_iter().map(|error| error.reworded(|text| checked.as_written(text)));
        checked.mistakes = named.collect();
        Ok(checked)
    }
}
