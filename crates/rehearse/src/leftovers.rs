//! Scripted answers and calls that a run did not use.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use backstop_config::ScriptedTool;

/// The executions of the tools of one run. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ToolCalls(Arc<Mutex<Vec<(String, usize, Executions)>>>);

/// The number of executions of one tool in one run.
pub(crate) type Executions = Arc<AtomicUsize>;

impl ToolCalls {
    /// Adds a tool and returns the counter of its executions.
    pub(crate) fn of_tool(&self, tool: &ScriptedTool) -> Executions {
        let made = Executions::default();
        let mut tools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tools.push((tool.name.clone(), tool.calls.len(), Arc::clone(&made)));
        made
    }

    /// Returns the tools that have scripted calls left, formatted for the report.
    pub(crate) fn list_remaining(&self, owner: &str) -> Vec<String> {
        let tools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = tools.iter().filter_map(|(name, scripted, made)| {
            let left = scripted.saturating_sub(made.load(Ordering::Relaxed));
            (left > 0).then(|| format!("{} of tool `{name}`{owner}", count_text(left, "call")))
        });
        left.collect()
    }
}

/// Returns the unused answers of a model, formatted for the report.
pub(crate) fn answers_left(scripted: usize, asked: usize, owner: &str) -> Option<String> {
    let left = scripted.saturating_sub(asked);
    (left > 0).then(|| format!("{} of the model{owner}", count_text(left, "answer")))
}

fn count_text(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}
