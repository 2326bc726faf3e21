//! Several agent files that share one store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use backstop_config::{AgentFile, StoreTable};
use backstop_redact::Redactor;

use crate::args::StoreArgs;
use crate::exit::CliError;
use crate::secrets::build_process_redactor;
use crate::store::{self, Chosen};
use crate::{agent_file, assemble};

/// Agent files, in the order of the command line.
pub(crate) type Files<'a> = Vec<(&'a Path, AgentFile)>;

/// Reads agent files. The walls of each know the folders that the programs of all may write.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Files<'_>, CliError> {
    let files = paths.iter().map(|path| Ok((path.as_path(), agent_file::read(path)?)));
    let files = files.collect::<Result<Files<'_>, CliError>>()?;
    for (path, file) in &files {
        assemble::share_written(file, path);
    }
    Ok(files)
}

/// Checks that the agents have different names, because the name identifies an agent.
pub(crate) fn check_names(files: &Files<'_>) -> Result<(), CliError> {
    let mut named: BTreeMap<String, &Path> = BTreeMap::new();
    for (path, file) in files {
        let name = assemble::name(file, path);
        if let Some(other) = named.get(&name) {
            let what =
                format!("{} and {} both hold agent `{name}`", other.display(), path.display());
            return Err(CliError::usage(what)
                .with_hint("give one of them another `name` in [agent], or leave one out"));
        }
        named.insert(name, path);
    }
    Ok(())
}

/// Returns a redactor for the secrets of the process and the patterns of all these files.
pub(crate) fn redactor(files: &Files<'_>) -> Redactor {
    let patterns = files.iter().flat_map(|(_, file)| file.redact.patterns.iter().cloned());
    patterns.fold(build_process_redactor(), Redactor::with_pattern)
}

/// Chooses the store, which must be the same for all files.
pub(crate) fn choose(args: &StoreArgs, files: &Files<'_>) -> Result<Chosen, CliError> {
    let mut chosen: Option<(Chosen, &Path)> = None;
    for (path, file) in files {
        let next = store::choose(args, file.store.url.as_deref().map(|url| (url, *path)))?;
        match &chosen {
            Some((before, of)) if before.url != next.url => {
                let (of, path) = (of.display(), path.display());
                let what = format!("{of} and {path} have different stores");
                return Err(CliError::usage(what).with_hint("say which one with --store URL"));
            }
            Some(_) => {}
            None => chosen = Some((next, path)),
        }
    }
    match chosen {
        Some((chosen, _)) => Ok(chosen),
        None => store::choose(args, None),
    }
}

/// Settings of a store, except its URL, that must not differ between files.
const SETTINGS: [&str; 3] = ["durability", "error_retention_days", "run_retention_days"];

/// Returns the store settings of all files together. A file without a setting takes it from the others.
pub(crate) fn store_table(files: &Files<'_>) -> Result<StoreTable, CliError> {
    let mut table = StoreTable::default();
    for key in SETTINGS {
        let mut given = files.iter().filter_map(|(path, file)| {
            let value = file.source()["store"].get(key)?;
            Some((*path, value, file))
        });
        let Some((path, value, file)) = given.next() else { continue };
        if let Some((other, ..)) = given.find(|(_, other, _)| *other != value) {
            let (path, other) = (path.display(), other.display());
            return Err(CliError::usage(format!("{path} and {other} have different `{key}`"))
                .with_hint("write the same into [store] of both, or leave it out of one"));
        }
        match key {
            "durability" => table.durability = file.store.durability,
            "error_retention_days" => table.error_retention_days = file.store.error_retention_days,
            _ => table.run_retention_days = file.store.run_retention_days,
        }
    }
    Ok(table)
}

/// Chooses the store as [`choose`] does, and refuses one in memory.
pub(crate) fn choose_kept(args: &StoreArgs, files: &Files<'_>) -> Result<Chosen, CliError> {
    let chosen = choose(args, files)?;
    if chosen.is_kept() {
        return Ok(chosen);
    }
    Err(CliError::usage("a store in memory holds no runs of other processes")
        .with_hint("name a file with --store sqlite:PATH"))
}
