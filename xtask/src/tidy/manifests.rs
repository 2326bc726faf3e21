//! Checks that manifests inherit the workspace's lints.

use crate::tidy::finding::Finding;
use crate::tidy::workspace::Member;

/// Checks that each member inherits the workspace's lints.
pub(crate) fn check(members: &[Member]) -> Vec<Finding> {
    let without = members.iter().filter(|member| !inherits_lints(&member.manifest));
    let finding = |member: &Member| {
        Finding::error(&member.manifest_path(), 1, "does not say `[lints] workspace = true`")
    };
    without.map(finding).collect()
}

fn inherits_lints(manifest: &toml::Table) -> bool {
    let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    inherits.and_then(toml::Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(manifest: &str) -> Vec<String> {
        let member = Member {
            dir: "crates/a".to_owned(),
            manifest: manifest.parse().unwrap(),
            ..Member::default()
        };
        check(&[member]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lints_come_from_the_workspace() {
        let cases = [
            ("[lints]\nworkspace = true\n", None),
            ("lints.workspace = true\n", None),
            ("[package]\n", Some("crates/a/Cargo.toml:1: does not say `[lints] workspace = true`")),
            (
                "[lints.rust]\nunsafe_code = \"allow\"\n",
                Some("crates/a/Cargo.toml:1: does not say `[lints] workspace = true`"),
            ),
        ];
        for (manifest, wanted) in cases {
            assert_eq!(said(manifest), wanted.into_iter().collect::<Vec<_>>(), "{manifest}");
        }
    }
}
