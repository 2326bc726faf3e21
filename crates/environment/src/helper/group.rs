//! The control groups of a program: out of its reach, and read at its end.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Mode, OFlags, open, openat, unlinkat};
use rustix::process::Pid;

use crate::plan::{GroupPlan, KernelCounts};

/// A group and its home, kept open because neither exists in the program's view of the files.
pub(super) struct Group {
    folder: OwnedFd,
    home: OwnedFd,
    /// The file for adding processes to the group.
    processes: OwnedFd,
    name: PathBuf,
}

/// Opens the groups.
pub(super) fn open_all(groups: &[GroupPlan]) -> io::Result<Vec<Group>> {
    let folder = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let open = |group: &GroupPlan| {
        let opened = open(&group.folder, folder, Mode::empty())?;
        let writing = OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(Group {
            processes: openat(&opened, "cgroup.procs", writing, Mode::empty())?,
            folder: opened,
            home: open(&group.home, folder, Mode::empty())?,
            name: group.folder.file_name().unwrap_or_default().into(),
        })
    };
    groups.iter().map(open).collect()
}

/// Adds a process to the groups; its child processes are added with it.
pub(super) fn add_all(groups: &[Group], process: Pid) -> io::Result<()> {
    let id = process.as_raw_nonzero().to_string();
    groups.iter().try_for_each(|group| {
        rustix::io::write(&group.processes, id.as_bytes()).map(drop).map_err(io::Error::from)
    })
}

/// Reads the counters of the groups, and removes the groups.
pub(super) fn close(groups: &[Group]) -> KernelCounts {
    let mut counted = KernelCounts::default();
    for group in groups {
        counted.forks_refused += group.number("pids.events", "max");
        counted.killed_for_memory += group.number("memory.events", "oom_kill");
        counted.killed_for_memory += group.number("memory.oom_control", "oom_kill");
        // If this is not permitted, the parent removes the group after this process has ended.
        let _ = unlinkat(&group.home, &group.name, AtFlags::REMOVEDIR);
    }
    counted
}

impl Group {
    /// Reads a number from a file with lines of the form `name number`.
    fn number(&self, file: &str, name: &str) -> u64 {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut text = String::new();
        if let Ok(file) = openat(&self.folder, file, flags, Mode::empty()) {
            let _ = File::from(file).read_to_string(&mut text);
        }
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(key, _)| *key == name);
        found.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
    }
}
