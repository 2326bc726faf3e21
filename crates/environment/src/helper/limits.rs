//! Resource limits and privileges of a process.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs,
};

use crate::plan::LimitsPlan;

/// Sets limits that child processes inherit and cannot raise.
pub(super) fn set(limits: &LimitsPlan) -> io::Result<()> {
    set_one(Resource::Core, 0, 0)?;
    if let Some(seconds) = limits.cpu_seconds {
        // At the first limit a catchable signal is sent, at the second the process is killed.
        set_one(Resource::Cpu, seconds, seconds.saturating_add(1))?;
    }
    if let Some(bytes) = limits.address_space_bytes {
        set_one(Resource::As, bytes, bytes)?;
    }
    if let Some(bytes) = limits.file_bytes {
        set_one(Resource::Fsize, bytes, bytes)?;
    }
    if let Some(processes) = limits.processes {
        set_one(Resource::Nproc, processes, processes)?;
    }
    Ok(())
}

fn set_one(resource: Resource, current: u64, maximum: u64) -> io::Result<()> {
    // A lower existing limit is kept.
    let held = rustix::process::getrlimit(resource).maximum;
    let least = |limit: u64| held.map_or(limit, |held| held.min(limit));
    let limit = Rlimit { current: Some(least(current)), maximum: Some(least(maximum)) };
    Ok(setrlimit(resource, limit)?)
}

/// Drops all capabilities; no started program gains any, not even as user 0.
pub(super) fn let_go_of_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    let _ = clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets)?;
    let left = capabilities(None)?;
    if left.permitted.is_empty() && left.effective.is_empty() {
        Ok(())
    } else {
        Err(io::Error::other("some are left"))
    }
}
