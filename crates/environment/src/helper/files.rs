//! Landlock: accessible files, and the reach of signals.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus,
    Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use rustix::io::Errno;

use crate::plan::{FilesPlan, LandlockPlan};
use crate::rules::DEVICES;

/// Builds the ruleset, and opens the listed paths.
pub(super) fn ruleset(plan: &LandlockPlan) -> io::Result<RulesetCreated> {
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    if let Some(files) = &plan.files {
        ruleset = ruleset.handle_access(AccessFs::from_all(abi(files))).map_err(other)?;
    }
    if plan.scopes {
        ruleset = ruleset.scope(Scope::from_all(ABI::V6)).map_err(other)?;
    }
    if plan.only_port.is_some() {
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4)).map_err(other)?;
    }
    let mut created = ruleset.create().map_err(other)?;
    if let Some(port) = plan.only_port {
        created = created.add_rule(NetPort::new(port, AccessNet::ConnectTcp)).map_err(other)?;
    }
    match &plan.files {
        Some(files) => with_files(created, files),
        None => Ok(created),
    }
}

/// Applies the rules to this process, which has one thread, and to all processes that it starts.
pub(super) fn restrict(ruleset: RulesetCreated) -> io::Result<RestrictionStatus> {
    let status = ruleset.restrict_self().map_err(other)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(status),
        _ => Err(io::Error::other("not enforced in full")),
    }
}

fn with_files(mut created: RulesetCreated, files: &FilesPlan) -> io::Result<RulesetCreated> {
    let abi = abi(files);
    let (reading, all) = (AccessFs::from_read(abi), AccessFs::from_all(abi));
    for path in &files.system {
        // Not every machine has all of these paths.
        if path.exists() {
            created = add(created, path, reading, abi)?;
        }
    }
    for (path, is_written) in DEVICES {
        let access = if is_written { all } else { reading };
        if Path::new(path).exists() {
            created = add(created, Path::new(path), access, abi)?;
        }
    }
    for (paths, access) in [(&files.read, reading), (&files.write, all)] {
        for path in paths {
            created = grant(created, open_exactly(path)?, access, abi)?;
        }
    }
    Ok(created)
}

/// Opens a path without following links. There was no link on the way when the walls were built, so a link that a
/// program has put there since then grants nothing.
pub(super) fn open_exactly(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    opened.map_err(|error| {
        let why = match error {
            Errno::LOOP => "a link was put in its place since the walls were made".to_owned(),
            other => other.to_string(),
        };
        io::Error::new(error.kind(), format!("`{}`: {why}", path.display()))
    })
}

/// Grants a path of the system, following its links.
fn add(
    created: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
    abi: ABI,
) -> io::Result<RulesetCreated> {
    let opened = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let opened = opened
        .map_err(|error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display())))?;
    grant(created, opened, access, abi)
}

fn grant(
    created: RulesetCreated,
    opened: OwnedFd,
    access: BitFlags<AccessFs>,
    abi: ABI,
) -> io::Result<RulesetCreated> {
    let is_folder = FileType::from_raw_mode(fstat(&opened)?.st_mode).is_dir();
    let access = if is_folder { access } else { access & AccessFs::from_file(abi) };
    created.add_rule(PathBeneath::new(opened, access)).map_err(other)
}

const fn abi(files: &FilesPlan) -> ABI {
    if files.device_calls { ABI::V5 } else { ABI::V3 }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
