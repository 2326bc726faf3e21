//! Checks that pages about all crates mention each of them.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::tidy::finding::Finding;
use crate::tidy::workspace::Member;

pub(crate) const DEPENDENCIES: &str = "docs/dependencies.md";
pub(crate) const ARCHITECTURE: &str = "docs/architecture.md";

/// Checks that the page has a row for each third-party crate of the workspace, and no other row.
pub(crate) fn dependencies(workspace: &Table, page: Option<&str>) -> Vec<Finding> {
    let Some(page) = page else {
        return vec![Finding::error(DEPENDENCIES, 1, "missing: it says why each crate was chosen")];
    };
    let used = third_party(workspace);
    let rows = rows(page);
    let missing = used.iter().filter(|name| !rows.contains_key(*name)).map(|name| {
        Finding::error(DEPENDENCIES, 1, format!("no row for `{name}` of [workspace.dependencies]"))
    });
    let stale = rows.iter().filter(|(name, _)| !used.contains(name)).map(|(name, line)| {
        Finding::error(DEPENDENCIES, *line, format!("`{name}` is not in [workspace.dependencies]"))
    });
    missing.chain(stale).collect()
}

/// Checks that the page, if it exists, names each crate's directory in backticks.
pub(crate) fn architecture(members: &[Member], page: Option<&str>) -> Vec<Finding> {
    let Some(page) = page else { return Vec::new() };
    members
        .iter()
        .filter_map(|member| member.dir.strip_prefix("crates/"))
        .filter(|dir| !page.contains(&format!("`{dir}`")))
        .map(|dir| Finding::error(ARCHITECTURE, 1, format!("does not mention the crate `{dir}`")))
        .collect()
}

/// Returns the crates of `[workspace.dependencies]` that are not our own.
fn third_party(workspace: &Table) -> Vec<&str> {
    workspace
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"))
        .and_then(Value::as_table)
        .into_iter()
        .flatten()
        .filter(|(_, dependency)| dependency.get("path").is_none())
        .map(|(name, _)| name.as_str())
        .collect()
}

/// Returns the names in backticks in the first column of the page's tables, with their lines.
fn rows(page: &str) -> BTreeMap<&str, usize> {
    page.lines()
        .enumerate()
        .filter_map(|(index, line)| Some((index + 1, line.strip_prefix('|')?.split('|').next()?)))
        // Every second piece between backticks is inside them.
        .flat_map(|(line, cell)| cell.split('`').skip(1).step_by(2).map(move |name| (name, line)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_table_of_dependencies_is_complete_and_current() {
        let workspace = "[workspace.dependencies]\n\
             layer0 = { path = \"crates/layer0\" }\nquote = \"1\"\nserde = \"1\"\nsyn = { version = \"3\" }\n"
            .parse()
            .unwrap();
        let page = "# `tokio` in a heading\n\n| crate | why |\n| --- | --- |\n\
             | `quote`, `syn` | macros, not `regex` |\n| `rand` | jitter |\n";
        assert_eq!(
            strings(&dependencies(&workspace, Some(page))),
            [
                "docs/dependencies.md:1: no row for `serde` of [workspace.dependencies]",
                "docs/dependencies.md:6: `rand` is not in [workspace.dependencies]",
            ]
        );
        assert_eq!(
            strings(&dependencies(&workspace, None)),
            ["docs/dependencies.md:1: missing: it says why each crate was chosen",]
        );
    }

    #[test]
    fn the_architecture_names_every_crate() {
        let member = |dir: &str| Member { dir: dir.to_owned(), ..Member::default() };
        let members = [member("crates/clock"), member("crates/retry"), member("xtask")];
        assert_eq!(
            strings(&architecture(&members, Some("`clock` is time; retry is not"))),
            ["docs/architecture.md:1: does not mention the crate `retry`",]
        );
        assert_eq!(strings(&architecture(&members, None)), [""; 0]);
    }
}
