//! The control groups of a program, at its end.

use std::fs;
use std::path::Path;

use crate::plan::{GroupPlan, Report};

/// Reads what the groups have held, leaves them and removes them.
pub(super) fn close(groups: &[GroupPlan]) -> Report {
    let (mut forks_refused, mut killed_for_memory) = (0, 0);
    for group in groups {
        forks_refused += number(&group.folder.join("pids.events"), "max");
        killed_for_memory += number(&group.folder.join("memory.events"), "oom_kill");
        killed_for_memory += number(&group.folder.join("memory.oom_control"), "oom_kill");
        // Where this is not allowed, the parent removes the group after this process.
        let _ = fs::write(group.home.join("cgroup.procs"), "0");
        let _ = fs::remove_dir(&group.folder);
    }
    Report::Closed { forks_refused, killed_for_memory }
}

/// Reads a number from a file of lines `name number`.
fn number(path: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(key, _)| *key == name);
    found.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
}
