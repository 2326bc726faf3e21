//! The outer helper: creates namespaces, starts the inner helper, and ends all remaining processes.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open,
    set_child_subreaper, set_dumpable_behavior, wait,
};

use super::channel::{HelperChannel, let_go_of_outputs};
use super::group::{self, Group};
use super::names::{INNER, THIS_PROGRAM};
use super::{mounts, namespaces, network, probe};
use crate::plan::{IsolationPlan, Outer, Report};

/// Runs the outer helper, and returns its exit code.
pub(super) fn run() -> i32 {
    // The program must not get files that this process inherited.
    close_inherited();
    let Ok(channel) = HelperChannel::take() else { return 1 };
    let Ok((order, _)) = channel.receive() else { return 1 };
    match order {
        Outer::Probe => {
            channel.report(&Report::Probed(probe::run()));
            0
        }
        Outer::Run(surroundings) => {
            let groups = group::open_all(&surroundings.groups);
            let (ended, mut counted) = match &groups {
                Ok(groups) => {
                    let ended = provide(&channel, &surroundings, groups);
                    (ended, group::close(groups))
                }
                Err(error) => (Err(("cgroup", error.to_string())), group::close(&[])),
            };
            if let Err((mechanism, detail)) = ended {
                channel.report(&Report::Failed { mechanism: mechanism.to_owned(), detail });
                return 1;
            }
            if surroundings.network {
                counted.unrouted = network::count_unrouted();
            }
            channel.report(&Report::Closed(counted));
            0
        }
    }
}

type SetupFailure = (&'static str, String);

/// Sets up the surroundings, and waits until all processes have ended or the parent closes the channel.
fn provide(
    channel: &HelperChannel,
    surroundings: &IsolationPlan,
    groups: &[Group],
) -> Result<(), SetupFailure> {
    let failed = |mechanism: &'static str| move |detail: String| (mechanism, detail);
    if surroundings.namespaces {
        namespaces::enter_user().map_err(failed("user namespace"))?;
        namespaces::enter_process().map_err(failed("pid namespace"))?;
        mount_view(surroundings).map_err(failed("mount namespace"))?;
    } else {
        let this = Some(rustix::process::getpid());
        set_child_subreaper(this).map_err(|error| ("subreaper", error.to_string()))?;
    }
    if surroundings.network {
        namespaces::enter_network().map_err(failed("network namespace"))?;
    }
    // Processes within the walls cannot read or change this process, even as the same user.
    let dumpable = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    dumpable.map_err(|error| ("dumpable", error.to_string()))?;
    let listener = if surroundings.listens { Some(listen()) } else { None };
    let listener = listener.transpose().map_err(|error| ("proxy", error.to_string()))?;
    let inner = start_inner(channel).map_err(|error| ("helper", error.to_string()))?;
    let watched = watch(channel, inner, groups, listener);
    // This also runs after a failure.
    end_all(inner);
    watched
}

/// Lets the inner helper start, and waits until it has ended.
fn watch(
    channel: &HelperChannel,
    inner: Pid,
    groups: &[Group],
    listener: Option<TcpListener>,
) -> Result<(), SetupFailure> {
    let failed = |error: io::Error| ("helper", error.to_string());
    // This process remains outside the groups, to report processes killed for lack of memory.
    group::add_all(groups, inner).map_err(|error| ("cgroup", error.to_string()))?;
    channel.send(&Report::Ready, listener.as_ref().map(AsFd::as_fd)).map_err(failed)?;
    drop(listener);
    let_go_of_outputs().and_then(|()| wait_for_end(channel, inner)).map_err(failed)
}

fn mount_view(surroundings: &IsolationPlan) -> Result<(), String> {
    let has_groups = !surroundings.groups.is_empty();
    if has_groups || surroundings.written.is_some() {
        mounts::enter()?;
    }
    if let Some(written) = &surroundings.written {
        mounts::protect(written)?;
    }
    if has_groups { mounts::cover_groups() } else { Ok(()) }
}

/// Creates the socket of the program's network on which the proxy accepts from outside; it is the only way out.
fn listen() -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn start_inner(channel: &HelperChannel) -> io::Result<Pid> {
    let channel = channel.as_fd().try_clone_to_owned()?;
    let inner =
        Command::new(THIS_PROGRAM).arg0(INNER).env_clear().stdin(Stdio::from(channel)).spawn()?;
    let id = i32::try_from(inner.id()).ok().and_then(Pid::from_raw);
    id.ok_or_else(|| io::Error::other("process without an id"))
}

/// Waits until the inner helper has ended, or the parent has closed the channel.
fn wait_for_end(channel: &HelperChannel, inner: Pid) -> io::Result<()> {
    let inner = pidfd_open(inner, PidfdFlags::empty())?;
    let mut polled = [
        PollFd::new(&inner, PollFlags::IN),
        PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::RDHUP),
    ];
    loop {
        match poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map(|_| ()).map_err(io::Error::from),
        }
    }
}

/// Kills the inner helper and all its descendants, until none is left.
fn end_all(inner: Pid) {
    // The namespace ends with process 1, whose end is reported after all others.
    let _ = kill_process(inner, Signal::KILL);
    loop {
        // Without a namespace, orphaned processes become children of this process.
        for child in children() {
            let _ = kill_process(child, Signal::KILL);
        }
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn children() -> Vec<Pid> {
    let id = std::process::id();
    let text = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect()
}

/// Closes all files except the standard ones.
fn close_inherited() {
    let Ok(folder) = fs::read_dir("/proc/self/fd") else { return };
    let open = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // The folder's own file is closed here before the loop closes it again.
    let open: Vec<i32> = open.filter(|file| *file > 2).collect();
    for file in open {
        let _ = nix::unistd::close(file);
    }
}
