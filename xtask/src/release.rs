//! `cargo xtask release --dry-run`: what a release would publish, in which order, and whether it is ready.
//!
//! Nothing is published, tagged or changed: the release's workflow does that (docs/releasing.md).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

use crate::error::XtaskError;

/// Prints the order of the packages, the tag and the state of the changelog; packages all crates, and compares the
/// public interfaces with the last release where there is one.
///
/// # Errors
///
/// [`XtaskError::NotReady`] with all reasons; [`XtaskError::Metadata`], [`XtaskError::File`], [`XtaskError::Start`] and
/// [`XtaskError::Step`] if a part cannot be checked.
pub(crate) fn rehearse(root: &Path) -> Result<(), XtaskError> {
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec();
    let metadata = metadata.map_err(XtaskError::Metadata)?;
    let packages = published(&metadata);
    let path = root.join("CHANGELOG.md");
    let changelog = std::fs::read_to_string(&path);
    let changelog = changelog.map_err(|source| XtaskError::File { path, source })?;
    let version = packages.first().map(|package| package.version.to_string()).unwrap_or_default();
    let tag = format!("v{version}");

    let mut reasons = find_version_mistakes(&packages);
    let order = order(&packages);
    match &order {
        Some(order) => {
            for (number, name) in order.iter().enumerate() {
                println!("{:>3}. {name} {version}", number + 1);
            }
        }
        None => reasons.push("packages depend on each other in a circle".to_owned()),
    }
    if is_output(root, &["git", "tag", "--list", &tag], &tag)? {
        reasons.push(format!("the tag {tag} exists: raise `workspace.package.version`"));
    } else {
        println!("tag: {tag}");
    }
    match section(&changelog, &version) {
        Some(Section::Released) => println!("changelog: a section for {version}"),
        Some(Section::Unreleased) => {
            println!("changelog: `Unreleased`, to be renamed to `{version} - DATE`");
        }
        None => reasons.push(format!("CHANGELOG.md says nothing about {version}")),
    }
    compare_interfaces(root)?;
    if reasons.is_empty() {
        package(root, &packages)?;
        println!("{} packages are ready", packages.len());
        return Ok(());
    }
    Err(XtaskError::NotReady { reasons })
}

fn published(metadata: &Metadata) -> Vec<&Package> {
    let is_published =
        |package: &&Package| package.publish.as_ref().is_none_or(|it| !it.is_empty());
    metadata.workspace_packages().into_iter().filter(is_published).collect()
}

/// Returns the names in an order in which each package comes after its dependencies; `None` if there is none.
fn order(packages: &[&Package]) -> Option<Vec<String>> {
    let names: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let depends_on = |package: &Package| -> Vec<&str> {
        let needed =
            package.dependencies.iter().filter(|it| it.kind != DependencyKind::Development);
        let own = |name: &str| names.iter().copied().find(|known| *known == name);
        needed.filter_map(|dependency| own(&dependency.name)).collect()
    };
    let mut open: BTreeMap<&str, Vec<&str>> =
        packages.iter().map(|package| (package.name.as_str(), depends_on(package))).collect();
    let mut order = Vec::new();
    while !open.is_empty() {
        let ready: Vec<&str> = open
            .iter()
            .filter(|(_, needed)| needed.iter().all(|name| !open.contains_key(name)))
            .map(|(name, _)| *name)
            .collect();
        if ready.is_empty() {
            return None;
        }
        for name in ready {
            open.remove(name);
            order.push(name.to_owned());
        }
    }
    Some(order)
}

/// Returns the packages with another version, and the dependencies on one of them whose version cannot be published.
fn find_version_mistakes(packages: &[&Package]) -> Vec<String> {
    let versions: BTreeMap<&str, _> =
        packages.iter().map(|package| (package.name.as_str(), &package.version)).collect();
    let first = packages.first().map(|package| &package.version);
    let mut mistakes = Vec::new();
    for package in packages {
        if Some(&package.version) != first {
            mistakes.push(format!("{} has version {}", package.name, package.version));
        }
        let shipped =
            package.dependencies.iter().filter(|it| it.kind != DependencyKind::Development);
        for dependency in shipped {
            let Some(version) = versions.get(dependency.name.as_str()) else { continue };
            // A path without a version.
            if dependency.req.to_string() == "*" || !dependency.req.matches(version) {
                let (name, needed) = (&package.name, &dependency.name);
                mistakes.push(format!("{name} needs {needed} `{}`, not {version}", dependency.req));
            }
        }
    }
    mistakes
}

/// The part of the changelog about a version.
#[derive(Debug, PartialEq)]
enum Section {
    /// Under the version's own heading.
    Released,
    /// Under `Unreleased`.
    Unreleased,
}

/// Returns where the changelog has entries for a version.
fn section(changelog: &str, version: &str) -> Option<Section> {
    let has_entries = |heading: &str| {
        let mut sections = changelog.split("\n## ");
        let found = sections.find(|section| section.starts_with(heading));
        found.is_some_and(|section| section.lines().any(|line| line.starts_with("- ")))
    };
    if has_entries(&format!("{version} - ")) {
        return Some(Section::Released);
    }
    has_entries("Unreleased").then_some(Section::Unreleased)
}

/// Compares the public interfaces with those of the last release.
fn compare_interfaces(root: &Path) -> Result<(), XtaskError> {
    let last = output(root, &["git", "describe", "--tags", "--abbrev=0", "--match", "v*"])?;
    let last = last.trim();
    if last.is_empty() {
        println!("interfaces: there is no release to compare with");
        return Ok(());
    }
    let tool = ["cargo-semver-checks", "semver-checks", "--version"];
    let is_here = output(root, &tool).is_ok_and(|version| !version.is_empty());
    if !is_here {
        println!("interfaces: not compared; cargo install --locked cargo-semver-checks");
        return Ok(());
    }
    let args = ["cargo-semver-checks", "semver-checks", "--workspace", "--baseline-rev", last];
    wait(root, "semver-checks", &args)
}

/// Packages all crates without building them; `cargo xtask ci` has a step that builds them.
fn package(root: &Path, packages: &[&Package]) -> Result<(), XtaskError> {
    let mut args = vec!["cargo", "package", "--quiet", "--locked", "--no-verify"];
    for package in packages {
        args.extend(["--package", package.name.as_str()]);
    }
    wait(root, "package", &args)
}

fn wait(root: &Path, step: &'static str, words: &[&str]) -> Result<(), XtaskError> {
    let status = Command::new(words[0]).args(&words[1..]).current_dir(root).status();
    let status =
        status.map_err(|source| XtaskError::Start { program: words[0].to_owned(), source })?;
    if status.success() { Ok(()) } else { Err(XtaskError::Step { step, status }) }
}

/// Returns the standard output of a program; empty if it fails.
fn output(root: &Path, words: &[&str]) -> Result<String, XtaskError> {
    let mut command = Command::new(words[0]);
    let ended = command.args(&words[1..]).current_dir(root).stderr(Stdio::null()).output();
    match ended {
        Ok(ended) if ended.status.success() => {
            Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
        }
        Ok(_) => Ok(String::new()),
        Err(source) => Err(XtaskError::Start { program: words[0].to_owned(), source }),
    }
}

fn is_output(root: &Path, words: &[&str], expected: &str) -> Result<bool, XtaskError> {
    output(root, words).map(|output| output.trim() == expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changelog_names_the_version_or_has_unreleased_entries() {
        let unreleased =
            "# Changelog\n\n## Unreleased\n\n### New\n\n- a\n\n## 0.1.0 - 2026-01-01\n\n- b\n";
        assert_eq!(section(unreleased, "0.1.0"), Some(Section::Released));
        assert_eq!(section(unreleased, "0.2.0"), Some(Section::Unreleased));
        assert_eq!(section(&unreleased.replace("- a\n", ""), "0.2.0"), None);
        assert_eq!(section("# Changelog\n", "0.1.0"), None);
    }

    /// The workspace itself is the sample.
    #[test]
    fn packages_follow_what_they_depend_on() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
        let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec().unwrap();
        let packages = published(&metadata);
        assert_eq!(find_version_mistakes(&packages), Vec::<String>::new());
        let order = order(&packages).unwrap();
        assert_eq!(order.len(), packages.len());
        let place = |name: &str| order.iter().position(|known| known == name).unwrap();
        for package in &packages {
            assert!(!["xtask", "backstop-tests"].contains(&package.name.as_str()));
            for dependency in &package.dependencies {
                let is_own = order.contains(&dependency.name);
                if is_own && dependency.kind != DependencyKind::Development {
                    assert!(place(&dependency.name) < place(&package.name), "{}", package.name);
                }
            }
        }
    }

    #[test]
    fn dependencies_without_a_version_are_named() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
        let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec().unwrap();
        let mut retry = published(&metadata);
        retry.retain(|package| {
            ["backstop-retry", "backstop-clock"].contains(&package.name.as_str())
        });
        let mut changed: Vec<Package> = retry.into_iter().cloned().collect();
        for dependency in changed.iter_mut().flat_map(|package| &mut package.dependencies) {
            dependency.req = "*".parse().unwrap();
        }
        let changed: Vec<&Package> = changed.iter().collect();
        assert_eq!(
            find_version_mistakes(&changed),
            ["backstop-retry needs backstop-clock `*`, not 0.1.0"]
        );
    }
}
