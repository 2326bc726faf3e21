//! The current agent file of a recorded run.

use std::collections::BTreeSet;
use std::path::PathBuf;

use backstop_config::AgentFile;
use layer0::id::RunId;
use serde_json::{Map, Value};

use crate::assemble;
use crate::exit::CliError;
use crate::output::{self, note};
use crate::recorded::RecordedAgentFile;
use crate::store::Chosen;

/// The agent file that a run was most likely started from.
pub(crate) struct CurrentFile {
    /// Part of the file that the command uses.
    taken: &'static str,
    /// Command that continues with the file.
    command: String,
    path: PathBuf,
    /// Keys whose values changed since the record.
    changed: Vec<String>,
}

impl CurrentFile {
    /// Looks for the file in the recorded folder, under the usual names. Returns `None` if there is no file of this
    /// agent.
    pub(crate) fn find(
        recorded: &RecordedAgentFile,
        run: &RunId,
        reopens: bool,
        chosen: &Chosen,
    ) -> Option<Self> {
        let folder = assemble::parent_folder(&recorded.path);
        let name = recorded.file.agent.name.as_deref()?;
        let usual = [folder.join(format!("{name}.toml")), recorded.path.clone()];
        let (path, file) = usual.into_iter().find_map(|path| {
            let file = AgentFile::read(&path).ok()?;
            (assemble::name(&file, &path) == name).then_some((path, file))
        })?;
        let changed =
            list_changed_keys(&assemble::definition(&recorded.file), &assemble::definition(&file));
        let here = std::env::current_dir().ok();
        let path = match here.and_then(|here| Some(path.strip_prefix(here).ok()?.to_owned())) {
            Some(below) => below,
            None => path,
        };
        let typed = output::quote_for_shell(&path.to_string_lossy()).into_owned();
        // A reopened run keeps its definition.
        let (reopen, taken) = match reopens {
            true => (" --reopen", "with its model and tools"),
            false => ("", "with the file as it is"),
        };
        let resume = format!("resume {run}{reopen} --agent {typed}{}", chosen.flag());
        Some(Self { taken, command: output::command(&resume), path, changed })
    }

    /// Prints a note that the run continues as recorded, if the file changed since.
    pub(crate) fn note(&self) {
        if self.changed.is_empty() {
            return;
        }
        let keys: Vec<String> = self.changed.iter().map(|key| format!("`{key}`")).collect();
        note(&format!(
            "{} was changed since ({}): the run goes on as it was recorded; to go on {}:",
            self.path.display(),
            keys.join(", "),
            self.taken
        ));
        note(&format!("  {}", self.command));
    }

    /// Adds a hint that names the file to an error of a run that cannot continue as recorded.
    pub(crate) fn offer(&self, error: CliError) -> CliError {
        error.with_hint(format!(
            "what {} names was changed since; to go on {}: `{}`",
            self.path.display(),
            self.taken,
            self.command
        ))
    }
}

/// Returns the keys with different values in two files, such as `agent.instructions` or `tools`.
fn list_changed_keys(was: &Value, is: &Value) -> Vec<String> {
    let of = |file: &Value| file.as_object().cloned().unwrap_or_default();
    let mut changed = Vec::new();
    for (table, was, is) in differing(&of(was), &of(is)) {
        match (was, is) {
            (Value::Object(was), Value::Object(is)) => {
                let keys = differing(&was, &is).into_iter();
                changed.extend(keys.map(|(key, ..)| format!("{table}.{key}")));
            }
            _ => changed.push(table),
        }
    }
    changed
}

/// Returns the entries of two tables that differ; `null` for an absent value.
fn differing(was: &Map<String, Value>, is: &Map<String, Value>) -> Vec<(String, Value, Value)> {
    let keys: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    let value = |table: &Map<String, Value>, key: &str| table.get(key).cloned().unwrap_or_default();
    let pairs = keys.into_iter().map(|key| (key.clone(), value(was, key), value(is, key)));
    pairs.filter(|(_, was, is)| was != is).collect()
}
