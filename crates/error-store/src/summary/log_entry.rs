//! Entries of logs in JSON, one a line.

use layer0::read_value;
use serde_json::Value;

/// The fields of an entry of a log: its level, and its message.
const LEVEL_FIELDS: [&str; 3] = ["level", "severity", "lvl"];
const ENTRY_FIELDS: [&str; 3] = ["msg", "message", "error"];

/// Returns the message of an entry of a log that is a JSON object on a line, and whether it reports a failure.
pub(super) fn log_entry(line: &str) -> Option<(String, bool)> {
    if !line.starts_with('{') {
        return None;
    }
    let entry = read_value(line).ok()?;
    let level = LEVEL_FIELDS.iter().find_map(|name| entry.get(name))?;
    let message = ENTRY_FIELDS.iter().find_map(|name| entry.get(name)?.as_str())?;
    Some((message.to_owned(), is_failure(level)))
}

/// Returns whether a level is that of failures: a name, or a number as pino writes it (50 is `error`).
fn is_failure(level: &Value) -> bool {
    const ERROR: u64 = 50;
    let is_name = |name: &str| {
        let names = ["critical", "error", "fatal", "panic"];
        names.contains(&name.to_lowercase().as_str())
    };
    level.as_str().is_some_and(is_name) || level.as_u64().is_some_and(|level| level >= ERROR)
}
