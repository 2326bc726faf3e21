//! Construction of walls from `[environment]`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use backstop_config::{AgentFile, ConfigError, EnvironmentTable, NetworkRule};
use backstop_environment::{Helper, Network, Rules, Walls};
use backstop_process::Credential;
use layer0::error::EnvError;

use super::parent_folder;
use crate::exit::CliError;

/// Hint for rules that this machine cannot enforce.
const HINT: &str = "`backstop doctor` says what this machine holds and how to mend the rest; \
     `best_effort = true` goes on without, and records it";

/// The walls and credentials of a tool's or server's program.
#[derive(Clone)]
pub(crate) struct ProgramSurroundings {
    pub(crate) walls: Walls,
    pub(crate) credentials: Vec<(String, Credential)>,
}

/// Builds the walls of a program: from its own table, or else from the table of the file. `program` is the executable,
/// if it is named by its path.
pub(crate) fn surroundings(
    own: Option<&EnvironmentTable>,
    file: &AgentFile,
    path: &Path,
    folder: &Path,
    program: Option<&Path>,
) -> Result<Option<ProgramSurroundings>, CliError> {
    let Some(table) = own.or(file.environment.as_ref()) else { return Ok(None) };
    let refused = |error: &EnvError| {
        let what = format!("[environment]: {}", error.what());
        CliError::from(ConfigError::new(path, what).with_hint(HINT))
    };
    let listed = [("read", &table.read), ("write", &table.write)];
    let mut listed = listed
        .into_iter()
        .flat_map(|(key, paths)| paths.iter().flatten().map(move |listed| (key, listed)));
    if let Some((key, missing)) = listed.find(|(_, listed)| !folder.join(listed).exists()) {
        let what =
            format!("`{key}` in [environment] lists `{}`, which is not there", missing.display());
        return Err(ConfigError::new(path, what).with_hint("make it, or take it out").into());
    }
    let helper = Helper::this_program().map_err(|error| refused(&error))?;
    let rules = rules(table, file, folder, program);
    let walls = Walls::new(rules, helper).map_err(|error| refused(&error))?;
    let credentials = table.credentials.iter();
    let credentials =
        credentials.map(|(name, it)| (name.clone(), it.clone().below(folder))).collect();
    Ok(Some(ProgramSurroundings { walls, credentials }))
}

fn rules(
    table: &EnvironmentTable,
    file: &AgentFile,
    folder: &Path,
    program: Option<&Path>,
) -> Rules {
    let mut rules = Rules::new().folder(folder).network(match &table.network {
        Some(NetworkRule::Hosts(hosts)) => Network::Hosts(hosts.clone()),
        Some(NetworkRule::Loopback) => Network::Loopback,
        Some(NetworkRule::None) => Network::None,
        _ => Network::All,
    });
    if table.read.is_some() || table.write.is_some() {
        rules = rules
            .files()
            .read(table.read.iter().flatten())
            .read(list_granted_paths("read", file, folder));
        rules = rules
            .write(table.write.iter().flatten())
            .write(list_granted_paths("write", file, folder));
        // A program that the file names by its path may be read.
        rules = rules.read(program.map(|program| folder.join(program)));
        // A link that another program has created there could lead anywhere.
        rules = rules
            .written_by_others(list_writable_paths(file, folder))
            .written_by_others(of_process());
    }
    let grants = &file.agent.policy.grant;
    // Without hosts, nothing can lead to a private address: the grant is then for other tools.
    let has_hosts = matches!(table.network, Some(NetworkRule::Hosts(_)));
    if has_hosts
        && grants.iter().any(|grant| matches!(grant.as_str(), "network" | "network:private"))
    {
        rules = rules.private();
    }
    let limits = [
        (table.memory_mib, Rules::memory_mib as fn(Rules, u64) -> Rules),
        (table.processes, Rules::processes),
        (table.file_mib, Rules::file_mib),
        (table.output_kib, Rules::output_kib),
        (table.cpu_ms, |rules, ms| rules.cpu(Duration::from_millis(ms))),
    ];
    for (limit, set) in limits {
        if let Some(limit) = limit {
            rules = set(rules, limit);
        }
    }
    if table.best_effort { rules.best_effort() } else { rules }
}

/// Paths that programs of any agent file of this process may write.
static WRITTEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Adds the paths that programs of this file may write to those that the walls of all files know.
pub(crate) fn share_written(file: &AgentFile, path: &Path) {
    let folder = parent_folder(path);
    let mut shared = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    shared
        .extend(list_writable_paths(file, folder).into_iter().map(|written| folder.join(written)));
}

fn of_process() -> BTreeSet<PathBuf> {
    WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Returns the paths that any program of a file may write.
fn list_writable_paths(file: &AgentFile, folder: &Path) -> Vec<PathBuf> {
    let own = file.tools.iter().filter_map(|tool| tool.environment.as_ref());
    let own = own.chain(file.mcp.iter().filter_map(|server| server.environment.as_ref()));
    let tables = own.chain(&file.environment);
    let stated = tables.flat_map(|table| table.write.iter().flatten()).cloned();
    stated.chain(list_granted_paths("write", file, folder)).collect()
}

/// Returns the files and folders that a policy grants as a whole.
fn list_granted_paths(operation: &str, file: &AgentFile, folder: &Path) -> Vec<PathBuf> {
    let begin = format!("fs:{operation}:");
    let grants = file.agent.grants(folder);
    let paths = grants.iter().filter_map(|grant| whole_folder(grant.strip_prefix(&begin)?));
    paths.collect()
}

/// Returns the folders that a policy grants, as roots for servers.
pub(crate) fn granted_folders(file: &AgentFile, folder: &Path) -> Vec<PathBuf> {
    let mut folders = list_granted_paths("read", file, folder);
    folders.extend(list_granted_paths("write", file, folder));
    folders.retain(|folder| folder.is_dir());
    folders.sort();
    folders.dedup();
    folders
}

/// Returns the file or folder of a grant, if the grant covers all files below.
fn whole_folder(pattern: &str) -> Option<PathBuf> {
    let folder = pattern.strip_suffix("/**").unwrap_or(pattern);
    let is_plain = !folder.contains(['*', '?', '[']);
    let folder = if folder.is_empty() { "/" } else { folder };
    (is_plain && Path::new(folder).exists()).then(|| folder.into())
}

/// Returns warnings about rules that this machine cannot enforce, of tables with `best_effort`.
pub(crate) fn not_enforced(
    file: &AgentFile,
    path: &Path,
    folder: &Path,
) -> Result<Vec<String>, CliError> {
    let own = file.tools.iter().filter_map(|tool| tool.environment.as_ref());
    let own = own.chain(file.mcp.iter().filter_map(|server| server.environment.as_ref()));
    let mut said = Vec::new();
    for table in own.chain(&file.environment).filter(|table| table.best_effort) {
        if let Some(around) = surroundings(Some(table), file, path, folder, None)? {
            let lacking = around.walls.not_enforced().iter();
            said.extend(lacking.map(|lacking| format!("environment, not enforced: {lacking}")));
        }
    }
    said.dedup();
    Ok(said)
}
