//! The groups of commands in the help.

use clap::Subcommand;

use super::Command;

/// The groups, each with its commands in the order of the list.
const GROUPS: &[(&str, &[&str])] = &[
    ("Start here", &["init", "check", "run", "runs", "trace"]),
    ("Runs", &["chat", "resume", "cancel", "fork", "replay", "diff"]),
    ("Decisions of people", &["approvals", "approve", "deny", "resolve"]),
    ("Records", &["errors", "results", "costs", "sessions", "state", "verify", "export", "redact"]),
    ("Services", &["worker", "enqueue", "queue", "watch", "behaviors", "mcp"]),
    ("Stores", &["doctor", "backup", "copy", "vacuum"]),
    ("Agents", &["tools", "rehearse", "codes"]),
    ("Shell", &["completions", "man", "help"]),
];

/// Description of the command that clap adds itself.
const HELP: &str = "Print this message or the help of the given command";

/// Returns the template of the help, with every command in its group.
pub(super) fn template() -> String {
    let commands = Command::augment_subcommands(clap::Command::new("backstop"));
    let about = |name: &str| {
        let command = commands.find_subcommand(name);
        command
            .and_then(clap::Command::get_about)
            .map_or_else(|| HELP.to_owned(), ToString::to_string)
    };
    let mut groups = String::new();
    for (group, names) in GROUPS {
        groups.push_str(&format!("\n{group}:\n"));
        for name in *names {
            groups.push_str(&format!("  {name:<11}  {}\n", about(name)));
        }
    }
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\nOptions:\n{{options}}{{after-help}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: C2
    #[test]
    fn every_command_is_in_one_group() {
        let commands = Command::augment_subcommands(clap::Command::new("backstop"));
        let mut names: Vec<&str> =
            commands.get_subcommands().map(clap::Command::get_name).chain(["help"]).collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        names.sort_unstable();
        listed.sort_unstable();
        assert_eq!(names, listed);
    }
}
