//! Advice to a person after a failed run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use backstop_config::AgentFile;
use layer0::code;
use layer0::event::{Event, EventKind};

use crate::assemble::key_variables;
use crate::output::{alert, note, quote_for_shell};

/// Facts about the agent of a run that advice needs.
#[derive(Default)]
pub(crate) struct Advice {
    /// The agent file.
    path: Option<PathBuf>,
    /// Variables that hold the keys of its models.
    keys: Vec<String>,
}

impl Advice {
    /// Collects the facts of an agent. `path` is the current path of the agent file, which a record does not have.
    pub(crate) fn new(file: &AgentFile, path: Option<&Path>) -> Self {
        Self { path: path.map(Path::to_owned), keys: key_variables(&file.model) }
    }

    /// Returns the agent file.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Prints a hint for the failure of a run; `hint` is the general hint for its code.
    pub(crate) fn print_failure_hint(&self, code: &str, hint: &str) {
        let hint = match (code, &self.keys[..]) {
            (code::PROVIDER_AUTH_FAILED, [_, ..]) => format!(
                "check the key in {}, and what the account may do; `api_key_env` in [model] names another variable",
                self.keys.join(" or ")
            ),
            _ => hint.to_owned(),
        };
        alert(&format!("  hint: {hint}"));
    }

    /// Prints the grants that denied calls of a run needed.
    pub(crate) fn print_missing_grants(&self, events: &[Event]) {
        let file = self.path().map_or("the agent file".into(), |path| {
            quote_for_shell(&path.to_string_lossy()).into_owned()
        });
        let denied: BTreeSet<(&str, &str)> = events.iter().filter_map(denied_call).collect();
        for (tool, needed) in denied {
            note(&format!(
                "`{tool}` was denied `{needed}`; if it may have it, add it to [agent.policy] of {file}: \
                 `grant = [\"{needed}\"]`"
            ));
        }
    }
}

/// Returns the tool of a denied call, and the capability that it needed.
fn denied_call(event: &Event) -> Option<(&str, &str)> {
    let EventKind::ToolResponded(answer) = &event.kind else { return None };
    let error = answer.error.as_ref().filter(|it| it.reason == code::TOOL_PERMISSION_DENIED)?;
    let needed = error.message.split_once("requires '")?.1.strip_suffix('\'')?;
    Some((&answer.tool, needed))
}
