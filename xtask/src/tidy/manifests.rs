//! Manifests inherit what the workspace decides once: lints and versions.

use toml::{Table, Value};

use crate::tidy::finding::{Finding, line_of_key};
use crate::tidy::workspace::Member;

const DEPENDENCIES: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];

/// Checks that each member takes the workspace's lints and its versions of everything it uses.
pub(crate) fn check(members: &[Member]) -> Vec<Finding> {
    members.iter().flat_map(check_member).collect()
}

fn check_member(member: &Member) -> Vec<Finding> {
    let path = member.manifest_path();
    let mut findings = Vec::new();
    if !member.manifest.get("lints").is_some_and(inherits) {
        findings.push(Finding::error(&path, 1, "does not say `[lints] workspace = true`"));
    }
    for (name, dependency) in dependencies(&member.manifest) {
        if !inherits(dependency) {
            let line = line_of_key(&member.manifest_text, name);
            let what = format!("`{name}` states its own version; inherit it from the workspace");
            findings.push(Finding::error(&path, line, what));
        }
    }
    findings
}

/// Yields every dependency table's rows, those for single targets too.
fn dependencies(manifest: &Table) -> impl Iterator<Item = (&String, &Value)> {
    let targets = manifest
        .get("target")
        .and_then(Value::as_table)
        .into_iter()
        .flat_map(Table::values)
        .filter_map(Value::as_table);
    std::iter::once(manifest)
        .chain(targets)
        .flat_map(|table| DEPENDENCIES.iter().filter_map(|kind| table.get(*kind)))
        .filter_map(Value::as_table)
        .flatten()
}

fn inherits(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(manifest: &str) -> Vec<String> {
        let member = Member {
            dir: "crates/a".to_owned(),
            manifest: manifest.parse().unwrap(),
            manifest_text: manifest.to_owned(),
            ..Member::default()
        };
        check(&[member]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lints_and_versions_come_from_the_workspace() {
        let cases = [
            ("[lints]\nworkspace = true\n", None),
            ("lints.workspace = true\n[dependencies]\na.workspace = true\n", None),
            ("[package]\n", Some("crates/a/Cargo.toml:1: does not say `[lints] workspace = true`")),
            (
                "[lints.rust]\nunsafe_code = \"allow\"\n",
                Some("crates/a/Cargo.toml:1: does not say `[lints] workspace = true`"),
            ),
            (
                "lints.workspace = true\n[dev-dependencies]\na = \"1\"\n",
                Some(
                    "crates/a/Cargo.toml:3: `a` states its own version; inherit it from the workspace",
                ),
            ),
            (
                "lints.workspace = true\n[target.'cfg(unix)'.dependencies]\na = { version = \"1\" }\n",
                Some(
                    "crates/a/Cargo.toml:3: `a` states its own version; inherit it from the workspace",
                ),
            ),
        ];
        for (manifest, wanted) in cases {
            assert_eq!(said(manifest), wanted.into_iter().collect::<Vec<_>>(), "{manifest}");
        }
    }
}
