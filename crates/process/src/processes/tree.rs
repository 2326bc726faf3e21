//! Identification and killing of the processes of a program.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The variable that marks the processes of a program; their children inherit it.
pub const MARK: &str = "BACKSTOP_CALL";

/// Returns a new mark for a program. It begins with the mark of the call that this process serves,
/// if any, so that ending that call finds the processes of this program.
pub fn new_mark() -> String {
    let random = || RandomState::new().build_hasher().finish();
    let own = format!("{:016x}{:016x}", random(), random());
    match std::env::var(MARK) {
        Ok(outer) => format!("{outer}.{own}"),
        Err(_) => own,
    }
}

/// Kills everything that a program has started: the descendants of its process, and the processes
/// with its mark, in any group or session.
///
/// A process that has left the tree of processes and cleared its environment is not found. A cgroup
/// would contain it too, but few processes may create one, and a process cannot start in one
/// without `unsafe`.
#[cfg(target_os = "linux")]
pub(super) fn kill_all(root: Option<u32>, mark: &str) {
    use std::collections::BTreeSet;

    /// A bound for programs that start processes faster than they are found.
    const MAX_ROUNDS: u32 = 1_000;

    let mark = format!("{MARK}={mark}");
    let mut killed = BTreeSet::new();
    let mut quiet_rounds = 0;
    for _ in 0..MAX_ROUNDS {
        let fresh: Vec<Process> = find_processes(root, mark.as_bytes(), &killed)
            .into_iter()
            .filter(|process| !killed.contains(process))
            .collect();
        // A process that is being replaced by another program has no environment for a moment.
        quiet_rounds = if fresh.is_empty() { quiet_rounds + 1 } else { 0 };
        if quiet_rounds == 3 {
            return;
        }
        for process in fresh {
            if let Some(pid) = rustix::process::Pid::from_raw(process.pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            killed.insert(process);
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn kill_all(_root: Option<u32>, _mark: &str) {}

/// A process, which its id alone does not identify forever.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    pid: i32,
    /// The start time, in ticks since the start of the system.
    started: u64,
}

/// Finds the running processes of a program: its own, killed and marked ones, then their descendants.
#[cfg(target_os = "linux")]
fn find_processes(
    root: Option<u32>,
    mark: &[u8],
    killed: &std::collections::BTreeSet<Process>,
) -> Vec<Process> {
    let root = root.and_then(|root| i32::try_from(root).ok());
    let all = all_processes();
    let (mut found, mut others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(process, _)| {
        Some(process.pid) == root || killed.contains(process) || is_marked(process.pid, mark)
    });
    loop {
        let (children, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|(_, parent)| {
            found.iter().any(|(process, _): &(Process, i32)| process.pid == *parent)
        });
        if children.is_empty() {
            return found.into_iter().map(|(process, _)| process).collect();
        }
        found.extend(children);
        others = rest;
    }
}

/// Returns whether a process has the mark, or one that begins with it.
#[cfg(target_os = "linux")]
fn is_marked(pid: i32, mark: &[u8]) -> bool {
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|variables| {
        variables.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark))
    })
}

/// Returns all processes with their parents.
#[cfg(target_os = "linux")]
fn all_processes() -> Vec<(Process, i32)> {
    let Ok(folder) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| {
        // The name, in parentheses, may contain any byte.
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let fields = std::str::from_utf8(stat.get(end + 2..)?).ok()?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // Field numbers of proc(5) include the two fields before and count from one.
        let parent = fields.get(4 - 3)?.parse().ok()?;
        let started = fields.get(22 - 3)?.parse().ok()?;
        Some((Process { pid, started }, parent))
    })
    .collect()
}
