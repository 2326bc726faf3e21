//! Problems that make a tool useless, although the agent can be built with it.

use std::path::{Path, PathBuf};

use backstop_config::{AgentFile, ConfigError, ToolKind, ToolTable, resolve_capability};
use backstop_tool::Grants;

use super::tool::variables;

/// Built-in tools whose capability depends on the arguments, with the capability and an example of a grant.
const BY_ARGUMENTS: [(&str, &str, &str); 5] = [
    ("fs_list", "fs:read", "fs:read:./**"),
    ("fs_read", "fs:read", "fs:read:./**"),
    ("fs_search", "fs:read", "fs:read:./**"),
    ("fs_write", "fs:write", "fs:write:./**"),
    ("http_fetch", "network:outbound", "network:outbound:HOST"),
];

/// Returns all problems of a tool, each with a hint.
pub(super) fn lacking(
    table: &ToolTable,
    file: &AgentFile,
    path: &Path,
    folder: &Path,
) -> Vec<ConfigError> {
    let granted = &file.agent.policy.grant;
    let missing = missing_grants(table, file, folder);
    let mut lacking = Vec::new();
    if !missing.is_empty() {
        let needed: Vec<String> = missing.iter().map(|(needed, _)| format!("`{needed}`")).collect();
        let what = format!(
            "tool `{}` needs {}, which `grant` in [agent.policy] does not have: every call is denied",
            table.name,
            needed.join(" and ")
        );
        let grants = granted.iter().chain(missing.iter().map(|(_, grant)| grant));
        let grants: Vec<String> = grants.map(|grant| format!("\"{grant}\"")).collect();
        lacking.push(
            ConfigError::new(path, what)
                .with_hint(format!("write `grant = [{}]` into [agent.policy]", grants.join(", "))),
        );
    }
    if table.kind == ToolKind::Command {
        lacking.extend(unrunnable(table, path, folder));
        lacking.extend(untold(table, path));
    }
    lacking
}

/// Returns the capabilities that a tool needs without a grant, each with a grant that allows it.
fn missing_grants(table: &ToolTable, file: &AgentFile, folder: &Path) -> Vec<(String, String)> {
    let granted = file.agent.grants(folder);
    // Invalid grants are a mistake of their own.
    let Ok(grants) = Grants::parse(&granted) else { return Vec::new() };
    let spawn = || vec!["process:spawn".to_owned()];
    let fixed = match (table.kind, table.name.as_str()) {
        (ToolKind::Command, _) => table.capabilities.clone().unwrap_or_else(spawn),
        (_, "shell") => spawn(),
        _ => Vec::new(),
    };
    let fixed =
        fixed.into_iter().filter(|needed| !grants.allow(&resolve_capability(needed, folder)));
    let by_arguments = BY_ARGUMENTS.iter().filter(|(name, needed, _)| {
        table.kind == ToolKind::Builtin
            && *name == table.name
            && !granted.iter().any(|grant| covers_some(grant, needed))
    });
    fixed
        .map(|needed| (needed.clone(), needed))
        .chain(by_arguments.map(|(_, needed, grant)| ((*needed).to_owned(), (*grant).to_owned())))
        .collect()
}

/// Returns whether a grant covers a part of a capability, such as some files of `fs:read`.
fn covers_some(grant: &str, needed: &str) -> bool {
    let whole: Vec<&str> = grant.splitn(3, ':').take(2).collect();
    Grants::parse([whole.join(":")]).is_ok_and(|grants| grants.allow(needed))
}

/// Returns an error if a program does not exist or cannot be run.
fn unrunnable(table: &ToolTable, path: &Path, folder: &Path) -> Option<ConfigError> {
    let program = table.command.as_ref()?.first()?;
    let of_tool = |what: String| ConfigError::new(path, format!("tool `{}`: {what}", table.name));
    if program.contains('/') {
        let cwd = table.cwd.as_ref().map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd));
        if !cwd.is_dir() {
            return None;
        }
        let found: PathBuf = cwd.join(program).components().collect();
        return match (found.is_file(), is_executable(&found)) {
            (false, _) => Some(
                of_tool(format!("there is no program `{}`", found.display())).with_hint(
                    "correct `command`; a relative path is below `cwd`, which is the file's folder otherwise",
                ),
            ),
            (true, false) => Some(
                of_tool(format!("`{}` is not executable", found.display())).with_hint(format!(
                    "run `chmod +x {}`, or name its interpreter: `command = [\"sh\", \"{program}\"]`",
                    found.display()
                )),
            ),
            _ => None,
        };
    }
    // Without the variable, the system searches its default folders.
    let searched = variables(table).remove("PATH").unwrap_or_else(|| "/bin:/usr/bin".to_owned());
    let is_there = std::env::split_paths(&searched)
        .any(|place| place.join(program).is_file() && is_executable(&place.join(program)));
    if is_there {
        return None;
    }
    Some(of_tool(format!("there is no program `{program}` in PATH")).with_hint(format!(
        "install it, or name the file in `command`, such as `command = [\"./{program}\"]`"
    )))
}

/// Returns an error if the model does not get the schema of a program's arguments.
fn untold(table: &ToolTable, path: &Path) -> Option<ConfigError> {
    if table.schema.is_some() {
        return None;
    }
    let what =
        format!("tool `{}` has no `schema`: the model is not told what it takes", table.name);
    Some(ConfigError::new(path, what).with_hint(
        "write `schema = { type = \"object\", properties = { … } }`, with `properties = {}` where it takes nothing",
    ))
}

#[cfg(unix)]
fn is_executable(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(not(unix))]
fn is_executable(_: &Path) -> bool {
    true
}
