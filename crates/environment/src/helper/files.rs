//! Landlock: which files there are, and whom signals reach.

use std::fs;
use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    PathFd, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetStatus, Scope,
};

use crate::plan::{FilesPlan, LandlockPlan};
use crate::rules::DEVICES;

/// Makes the rules, opening what is listed.
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

/// Holds this process, which has one thread, and all that it starts to the rules.
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
        // Not every machine has all of them.
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
            created = add(created, path, access, abi)?;
        }
    }
    Ok(created)
}

fn add(
    created: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
    abi: ABI,
) -> io::Result<RulesetCreated> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display()));
    let is_folder = fs::metadata(path).map_err(named)?.is_dir();
    let access = if is_folder { access } else { access & AccessFs::from_file(abi) };
    let opened = PathFd::new(path).map_err(other).map_err(named)?;
    created.add_rule(PathBeneath::new(opened, access)).map_err(other).map_err(named)
}

const fn abi(files: &FilesPlan) -> ABI {
    if files.device_calls { ABI::V5 } else { ABI::V3 }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
