//! Checks that dependencies point to lower tiers.

use crate::tidy::finding::{Finding, line_of_key};
use crate::tidy::workspace::{Dep, Member, Stated};

/// The tier of crates that are not shipped, such as the testkit.
const UNSHIPPED: u8 = 9;

/// Checks that each crate has a tier and uses only lower tiers, or crates of its own tier that it names.
pub(crate) fn check(members: &[Member]) -> Vec<Finding> {
    members
        .iter()
        .filter(|member| member.is_tiered())
        .flat_map(|member| check_member(member, members))
        .collect()
}

fn check_member(member: &Member, members: &[Member]) -> Vec<Finding> {
    let at = |key: &str, what: String| {
        let line = line_of_key(&member.manifest_text, key);
        Finding::error(&member.manifest_path(), line, what)
    };
    let stated = match &member.stated {
        Ok(stated) => stated,
        Err(why) => return vec![at("", format!("[package.metadata.backstop]: {why}"))],
    };
    let Some(tier) = stated.tier else {
        return vec![at("name", "states no tier in [package.metadata.backstop]".to_owned())];
    };

    let mut findings = Vec::new();
    for dep in member.deps.iter().filter(|dep| !dep.dev) {
        let Some(target) = members.iter().find(|target| target.name == dep.package) else {
            findings.push(at(&dep.key, format!("`{}` is not in the workspace", dep.package)));
            continue;
        };
        if let Some(what) = objection(tier, stated, target) {
            findings.push(at(&dep.key, what));
        }
    }
    for name in &stated.same_tier {
        let used = |dep: &Dep| !dep.dev && short(&dep.package) == name;
        if !member.deps.iter().any(used) {
            findings.push(at("same_tier", format!("same_tier names `{name}`, which is not used")));
        }
    }
    findings
}

/// Returns the reason why a crate of this tier must not use the target; `None` if it may.
fn objection(tier: u8, stated: &Stated, target: &Member) -> Option<String> {
    let name = target.short_name();
    let below = target.stated.as_ref().ok().and_then(|stated| stated.tier);
    match below {
        _ if tier == UNSHIPPED => None,
        None => Some(format!("uses `{name}`, which has no tier")),
        Some(UNSHIPPED) => {
            Some(format!("uses `{name}`, which is not shipped: only dev-dependencies may"))
        }
        Some(below) if below > tier => Some(format!("tier {tier} uses `{name}` of tier {below}")),
        Some(below) if below == tier && !stated.same_tier.iter().any(|known| known == name) => {
            Some(format!("uses `{name}` of its own tier {tier} without naming it in same_tier"))
        }
        Some(_) => None,
    }
}

fn short(package: &str) -> &str {
    package.strip_prefix("backstop-").unwrap_or(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(dir: &str, tier: Option<u8>, same_tier: &[&str], deps: &[(&str, bool)]) -> Member {
        let same_tier = same_tier.iter().map(|&name| name.to_owned()).collect();
        let name = dir.rsplit('/').next().unwrap_or(dir);
        Member {
            name: format!("backstop-{name}"),
            dir: dir.to_owned(),
            manifest_text: "[package]\nname = \"x\"\n[dependencies]\ntarget = {}\n".to_owned(),
            stated: Ok(Stated { tier, same_tier, max_crates: None }),
            deps: deps
                .iter()
                .map(|&(name, dev)| Dep {
                    package: format!("backstop-{name}"),
                    key: name.to_owned(),
                    dev,
                })
                .collect(),
            ..Member::default()
        }
    }

    /// Returns the findings for `crates/user`, which depends on `target`.
    fn said(user: Member, target: Member) -> Vec<String> {
        check(&[user, target]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn edge_points_down_or_names_its_peer() {
        let normal = &[("target", false)];
        let dev = &[("target", true)];
        let user = |tier, same: &[&str], deps: &[(&str, bool)]| {
            member("crates/user", Some(tier), same, deps)
        };
        let target = |tier| member("crates/target", Some(tier), &[], &[]);
        let cases = [
            (user(2, &[], normal), target(1), ""),
            (user(1, &[], normal), target(2), "tier 1 uses `target` of tier 2"),
            (user(1, &[], dev), target(2), ""),
            (
                user(1, &[], normal),
                target(1),
                "uses `target` of its own tier 1 without naming it in same_tier",
            ),
            (user(1, &["target"], normal), target(1), ""),
            (user(1, &["target"], normal), target(2), "tier 1 uses `target` of tier 2"),
            (
                user(5, &[], normal),
                target(9),
                "uses `target`, which is not shipped: only dev-dependencies may",
            ),
            (user(5, &[], dev), target(9), ""),
            (user(9, &[], normal), target(9), ""),
            (user(9, &[], normal), target(5), ""),
            (
                user(5, &[], normal),
                member("target", None, &[], &[]),
                "uses `target`, which has no tier",
            ),
        ];
        for (user, target, what) in cases {
            let wanted: Vec<_> = Some(what)
                .filter(|what| !what.is_empty())
                .map(|what| format!("crates/user/Cargo.toml:4: {what}"))
                .into_iter()
                .collect();
            assert_eq!(said(user.clone(), target.clone()), wanted, "{user:?} on {target:?}");
        }
    }

    #[test]
    fn packages_outside_crates_may_use_anything() {
        let user = member("tests", None, &[], &[("target", false)]);
        assert_eq!(said(user, member("crates/target", Some(9), &[], &[])), [""; 0]);
    }

    #[test]
    fn a_crate_without_a_readable_tier_is_found() {
        let target = member("crates/target", Some(0), &[], &[]);
        assert_eq!(
            said(member("crates/user", None, &[], &[]), target.clone()),
            ["crates/user/Cargo.toml:2: states no tier in [package.metadata.backstop]"]
        );
        let user = Member {
            stated: Err("unknown field `teir`".to_owned()),
            ..member("crates/user", None, &[], &[])
        };
        assert_eq!(
            said(user, target),
            ["crates/user/Cargo.toml:1: [package.metadata.backstop]: unknown field `teir`"]
        );
    }

    #[test]
    fn a_stale_name_in_same_tier_is_found() {
        let user = member("crates/user", Some(1), &["target"], &[("target", true)]);
        assert_eq!(
            said(user, member("crates/target", Some(1), &[], &[])),
            ["crates/user/Cargo.toml:1: same_tier names `target`, which is not used"]
        );
    }
}
