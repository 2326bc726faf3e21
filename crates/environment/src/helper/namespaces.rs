//! User, process and network namespaces.

use std::fs;
use std::io;

use nix::sched::{CloneFlags, unshare};
use rustix::process::{getegid, geteuid};

/// Creates a user namespace in which this process keeps its ids, and can create the other namespaces.
pub(super) fn enter_user() -> Result<(), String> {
    // This fails in a process with several threads: then `enter` was not the first line of `main`.
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| match error {
        nix::errno::Errno::EINVAL => {
            format!("unshare: {error}: is `enter` the first line of a `main` without threads?")
        }
        error => format!("unshare: {error}"),
    })?;
    // The kernel requires this before the group map of a user without the right to set groups.
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{user} {user} 1"))?;
    write("/proc/self/gid_map", &format!("{group} {group} 1"))
}

/// Makes the next child process 1 of a new namespace, with its own queues and names.
pub(super) fn enter_process() -> Result<(), String> {
    let flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    unshare(flags).map_err(|error| format!("unshare: {error}"))
}

/// Creates a network that contains only its own loopback.
pub(super) fn enter_network() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| format!("unshare: {error}"))?;
    super::network::raise_loopback().map_err(|error| format!("loopback: {error}"))
}

fn write(path: &str, text: &str) -> Result<(), String> {
    let written: io::Result<()> = fs::write(path, text);
    written.map_err(|error| format!("{path}: {error}"))
}
