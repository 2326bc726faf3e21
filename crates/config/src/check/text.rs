//! The text of a file, repaired at its mistakes so that parsing can continue.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::ConfigError;
use crate::line::line_number;

/// An address that no check refuses.
const LOOPBACK: &str = "\"http://127.0.0.1\"";

/// The header of a table in the text.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) line: usize,
    pub(super) name: String,
    /// Whether the table could not be repaired, and is missing from the file.
    pub(super) is_gone: bool,
}

/// A repaired text, with the original line of each of its lines.
pub(super) struct Text {
    pub(super) now: String,
    pub(super) lines: Vec<usize>,
    /// The last change.
    pub(super) change: Option<Change>,
}

/// A change of a text.
#[derive(Default)]
pub(super) struct Change {
    pub(super) keys: Vec<String>,
    /// The line of the table that was removed.
    pub(super) gone: Option<usize>,
    /// A generated name, with the original one.
    pub(super) name: Option<(String, String)>,
}

impl Change {
    /// Makes the change of a key. An unknown key may be a misspelling.
    fn for_key(key: &str, hint: Option<&str>) -> Self {
        let meant = hint.and_then(|hint| hint.strip_prefix("did you mean `"));
        let meant = meant.and_then(|rest| rest.split('`').next());
        let keys = std::iter::once(key).chain(meant);
        Self {
            keys: keys.map(|key| key.trim_matches(['"', '\'']).to_owned()).collect(),
            ..Self::default()
        }
    }
}

/// A key with its value.
struct Entry {
    key: Range<usize>,
    value: Range<usize>,
}

impl Text {
    pub(super) fn new(written: &str) -> Self {
        Self {
            now: written.to_owned(),
            lines: (1..=written.lines().count() + 1).collect(),
            change: None,
        }
    }

    /// Returns the tables with a header, by line.
    pub(super) fn headers(&self) -> Vec<Header> {
        let header = |(index, line): (usize, &str)| {
            let name = line.trim_start().strip_prefix('[')?;
            let name = name.strip_prefix('[').unwrap_or(name);
            let name = name.split(']').next().unwrap_or_default();
            let name = name.split_whitespace().collect();
            Some(Header { line: index + 1, name, is_gone: false })
        };
        self.now.lines().enumerate().filter_map(header).collect()
    }

    /// Repairs a mistake. Returns `false` if no repair is known.
    pub(super) fn mend(&mut self, error: &ConfigError, span: Option<Range<usize>>) -> bool {
        let what = error.what().to_owned();
        if let Some(field) = what.strip_prefix("missing field `") {
            let field = field.split('`').next().unwrap_or_default();
            self.change = Some(Change::for_key(field, None));
            return self.add(field, span);
        }
        let Some(span) = span else { return false };
        if error.hint().is_some_and(|hint| hint.starts_with("write `["))
            && self.change_header(span.start)
        {
            return true;
        }
        let Ok(table) = DeTable::parse(&self.now) else { return false };
        let Some(entry) = entry_at(table.get_ref(), span.start) else { return false };
        let written = self.now.get(entry.value.clone()).unwrap_or_default();
        let key = self.now.get(entry.key.clone()).unwrap_or_default();
        let mut change = Change::for_key(key, error.hint());
        if key == "command" && what.starts_with("behavior `") {
            // A loopback address needs no grant.
            self.change = Some(change);
            self.replace(entry.key.start..entry.value.end, &format!("url = {LOOPBACK}"));
            return true;
        }
        let instead = match key {
            "name" => self.required(key),
            "url" => Some(LOOPBACK.to_owned()),
            _ if what.starts_with("`on`: ") => self.required("on"),
            _ if what.starts_with("grant `") => meant_value(&what, error.hint(), written),
            _ => valid_value(&what, error.hint(), written).or_else(|| self.required(key)),
        };
        let instead = instead.filter(|instead| instead != written);
        match instead {
            Some(instead) if entry.value.contains(&span.start) => {
                if key == "name" {
                    let bare = |text: &str| text.trim_matches(['"', '\'']).to_owned();
                    change.name = Some((bare(&instead), bare(written)));
                }
                self.replace(entry.value, &instead);
            }
            _ => {
                let whole = self.whole(&entry);
                if self.now[whole.clone()].trim_start().starts_with('[') {
                    let line = line_number(&self.now, &(whole.start..whole.start));
                    change.gone = self.lines.get(line - 1).copied();
                }
                self.blank(whole);
            }
        }
        self.change = Some(change);
        true
    }

    /// Adds a field to the table at a place. Returns whether that was possible.
    fn add(&mut self, field: &str, span: Option<Range<usize>>) -> bool {
        let value = match field {
            "model" => "{ provider = \"script\" }".to_owned(),
            "max_cost_usd" => "1.0".to_owned(),
            "per" => "\"day\"".to_owned(),
            "scope" => "\"agent\"".to_owned(),
            field => match self.required(field) {
                Some(value) => value,
                None => return false,
            },
        };
        let line = format!("{field} = {value}\n");
        // The table without a header is the file itself.
        let header = span.filter(|span| span.start < self.now.len()).and_then(|span| {
            let begin = self.now[..span.start].rfind('\n').map_or(0, |at| at + 1);
            self.now[begin..].trim_start().starts_with('[').then_some(begin)
        });
        let (at, from) = match header {
            Some(begin) if field != "model" => {
                let end = self.now[begin..].find('\n').map_or(self.now.len(), |at| begin + at + 1);
                (end, line_number(&self.now, &(begin..begin)))
            }
            None if field == "model" => (0, 0),
            _ => return false,
        };
        if at > 0 && !self.now[..at].ends_with('\n') {
            self.now.push('\n');
            let last = self.lines.last().copied().unwrap_or(1);
            self.lines.push(last);
            return self.add(field, Some(at.saturating_sub(1)..at));
        }
        let of = self.lines.get(from.saturating_sub(1)).copied().unwrap_or(1);
        self.now.insert_str(at, &line);
        self.lines.insert(from, of);
        true
    }

    /// Returns a value for a required field.
    fn required(&self, field: &str) -> Option<String> {
        Some(match field {
            "name" => format!("\"{}\"", self.fresh_name()),
            "kind" => "\"command\"".to_owned(),
            "description" => "\"text\"".to_owned(),
            "on" => "\"run.failed\"".to_owned(),
            "provider" => "\"script\"".to_owned(),
            "input_per_mtok" | "output_per_mtok" => "1.0".to_owned(),
            _ => return None,
        })
    }

    /// Turns the table whose header is in a line into a list, or a list into its first table. Returns `false` if there
    /// is no header.
    fn change_header(&mut self, at: usize) -> bool {
        let begin = self.now[..at].rfind('\n').map_or(0, |at| at + 1);
        let line = self.now[begin..].lines().next().unwrap_or_default();
        let Some((name, _)) = line.trim_start().split_once(']') else { return false };
        let end = begin + line.len();
        let Some(list) = name.strip_prefix("[[") else {
            let Some(name) = name.strip_prefix('[') else { return false };
            let instead = format!("[[{name}]]");
            self.now.replace_range(begin..end, &instead);
            return true;
        };
        let (instead, header) = (format!("[{list}]"), format!("[[{list}]]"));
        self.now.replace_range(begin..end, &instead);
        while let Some(further) = self.now.find(&header) {
            let further = Entry { key: further + 1..further + 2, value: further..further };
            self.blank(self.whole(&further));
        }
        true
    }

    /// Returns the place of an entry; of a header, with its whole table.
    fn whole(&self, entry: &Entry) -> Range<usize> {
        let begin = self.now[..entry.key.start].rfind('\n').map_or(0, |at| at + 1);
        if !self.now[begin..entry.key.start].trim_start().starts_with('[') {
            return entry.key.start..entry.value.end.max(entry.key.end);
        }
        let mut at = begin;
        for line in self.now[begin..].split_inclusive('\n') {
            if at > begin && line.trim_start().starts_with('[') {
                break;
            }
            at += line.len();
        }
        begin..at
    }

    /// Returns a name that is not in the text.
    fn fresh_name(&self) -> String {
        let mut names = (0_u32..).map(|number| format!("name-{number}"));
        names.find(|name| !self.now.contains(name.as_str())).unwrap_or_default()
    }

    fn blank(&mut self, range: Range<usize>) {
        let Some(text) = self.now.get(range.clone()) else { return };
        let blank: String = text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        // In a list or a table on one line, the comma is removed too.
        let behind = self.now[range.end..].find(|c: char| c != ' ').map(|at| range.end + at);
        let before = self.now[..range.start].trim_end().len();
        let comma = match behind {
            Some(at) if self.now[at..].starts_with(',') => Some(at),
            _ if self.now[..before].ends_with(',') => Some(before - 1),
            _ => None,
        };
        self.now.replace_range(range, &blank);
        if let Some(comma) = comma {
            self.now.replace_range(comma..=comma, " ");
        }
    }

    /// Replaces a value; the number of lines stays the same.
    fn replace(&mut self, range: Range<usize>, instead: &str) {
        let lines = self.now[range.clone()].matches('\n').count();
        if lines > 0 {
            self.blank(range.start..range.end);
            self.now.insert_str(range.start, instead);
        } else {
            self.now.replace_range(range, instead);
        }
    }
}

/// Returns a valid value in place of an invalid one, if the message or the hint tell its type.
fn valid_value(what: &str, hint: Option<&str>, written: &str) -> Option<String> {
    if what.contains("unknown variant") {
        // The hint offers one variant, or lists all of them.
        let hint = hint?;
        let known = hint.split('`').nth(1).or_else(|| hint.strip_prefix("known here: "))?;
        return Some(format!("\"{}\"", known.split(", ").next()?));
    }
    if what.contains("must be an amount above 0") {
        return Some("1.0".to_owned());
    }
    let (_, expected) = what.split_once("expected ")?;
    let instead = match expected {
        "a boolean" => "false",
        "a list" => "[]",
        "a number" => "1.0",
        "a string" => "\"text\"",
        "a table" => "{}",
        whole if whole.starts_with("a whole number") => "1",
        _ => return None,
    };
    (instead != written).then(|| instead.to_owned())
}

/// Returns a value with the word that the hint offers in place of the unknown one.
fn meant_value(what: &str, hint: Option<&str>, written: &str) -> Option<String> {
    let unknown = what.rsplit('`').nth(1)?;
    let meant = hint?.strip_prefix("did you mean `")?.split('`').next()?;
    Some(written.replacen(unknown, meant, 1))
}

/// Finds the innermost entry whose key or value contains a place.
fn entry_at(table: &DeTable<'_>, at: usize) -> Option<Entry> {
    table.iter().find_map(|(key, value)| {
        let entry = || Entry { key: key.span(), value: value.span() };
        in_value(value.get_ref(), at)
            .or_else(|| (key.span().contains(&at) || value.span().contains(&at)).then(entry))
    })
}

fn in_value(value: &DeValue<'_>, at: usize) -> Option<Entry> {
    match value {
        DeValue::Array(values) => values.iter().find_map(|value| {
            let is_it = !value.get_ref().is_table() && value.span().contains(&at);
            let element = || Entry { key: value.span(), value: value.span() };
            in_value(value.get_ref(), at).or_else(|| is_it.then(element))
        }),
        DeValue::Table(table) => entry_at(table, at),
        _ => None,
    }
}
