//! `cargo xtask api`: lists the public API of each shipped crate in `target/api/listings`, and compares it with that of
//! another revision.
//!
//! Traits that all types of a crate implement automatically, or by a blanket implementation (`Send`, `Into`), are left
//! out.

mod facade;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use cargo_metadata::{MetadataCommand, Package};

use crate::error::XtaskError;
use crate::page;

/// Where the listings are written.
const LISTINGS: &str = "target/api/listings";

/// Target folder of the listings' build: rustdoc's pages are elsewhere.
const TARGET: &str = "target/api";

/// Where another revision is checked out.
const OTHER: &str = "target/api/revision";

/// Features of the facade: with fewer, a listing would hide changes.
const FEATURES: &str = "full";

/// Release of the toolchain `nightly` that writes the listings: with another one, names of the standard library and
/// rustdoc's format may differ.
const NIGHTLY: &str = "rustc 1.97.0-nightly";

/// Instructions to install that toolchain.
pub(crate) const INSTALL: &str = "rustup toolchain install nightly, when it is 1.97 (May 2026)";

/// The listings of crates, by the crate's name without prefix.
type Listings = BTreeMap<String, String>;

/// Returns whether the toolchain for the listings is installed.
pub(crate) fn is_toolchain_here() -> bool {
    let version = Command::new("rustup").args(["run", "nightly", "rustc", "--version"]).output();
    version.is_ok_and(|output| output.stdout.starts_with(NIGHTLY.as_bytes()))
}

/// Writes every listing, and prints the difference from those of a revision if one is given.
///
/// # Errors
///
/// [`XtaskError::Step`] when rustdoc or git fails, [`XtaskError::Api`] when what rustdoc wrote cannot be read,
/// [`XtaskError::Metadata`], [`XtaskError::File`], [`XtaskError::Start`].
pub(crate) fn write(root: &Path, revision: Option<&str>) -> Result<(), XtaskError> {
    let listings = listings(root)?;
    for (name, text) in &listings {
        page::write(root, &format!("{LISTINGS}/{name}.txt"), text)?;
    }
    match revision {
        Some(revision) => compare(root, revision, &listings),
        None => Ok(()),
    }
}

/// Checks that a program of the facade can name the types of all signatures.
///
/// # Errors
///
/// As [`write()`], and [`XtaskError::FacadeHides`].
pub(crate) fn check(root: &Path) -> Result<(), XtaskError> {
    let hidden = facade::hidden_names(&listings(root)?);
    if hidden.is_empty() { Ok(()) } else { Err(XtaskError::FacadeHides { names: hidden }) }
}

fn compare(root: &Path, revision: &str, listings: &Listings) -> Result<(), XtaskError> {
    let other = root.join(OTHER);
    // An interrupted comparison leaves its checkout.
    if other.exists() {
        git(root, &["worktree", "remove", "--force", OTHER])?;
    }
    git(root, &["worktree", "add", "--force", "--detach", OTHER, revision])?;
    let before = self::listings(&other);
    git(root, &["worktree", "remove", "--force", OTHER])?;
    let before = before?;
    let names: BTreeSet<&String> = before.keys().chain(listings.keys()).collect();
    for name in names {
        let text = |listings: &Listings| listings.get(name).cloned().unwrap_or_default();
        let difference = difference(&text(&before), &text(listings));
        if !difference.is_empty() {
            println!("{name}:\n{difference}");
        }
    }
    Ok(())
}

fn git(root: &Path, args: &[&str]) -> Result<(), XtaskError> {
    let status = Command::new("git").args(args).current_dir(root).status();
    let status =
        status.map_err(|source| XtaskError::Start { program: "git".to_owned(), source })?;
    if status.success() { Ok(()) } else { Err(XtaskError::Step { step: "api", status }) }
}

/// Lists what each shipped library offers.
fn listings(root: &Path) -> Result<Listings, XtaskError> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .map_err(XtaskError::Metadata)?;
    let packages = metadata.workspace_packages().into_iter().filter(|package| is_listed(package));
    let packages = packages.collect::<Vec<_>>();
    document(root, &packages)?;
    packages.iter().map(|package| listing(root, package)).collect()
}

/// Returns whether a package is a shipped library; tier 9 is not shipped.
fn is_listed(package: &Package) -> bool {
    let tier = package.metadata.pointer("/backstop/tier").and_then(|tier| tier.as_u64());
    tier.is_some_and(|tier| tier < 9) && library(package).is_some()
}

/// Returns the name of a package's library.
fn library(package: &Package) -> Option<&str> {
    let target = package.targets.iter().find(|target| target.is_lib() || target.is_proc_macro())?;
    Some(&target.name)
}

/// Runs rustdoc on the packages, with JSON output.
fn document(root: &Path, packages: &[&Package]) -> Result<(), XtaskError> {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "doc", "--quiet", "--no-deps", "--lib"]);
    command.args(["--target-dir", TARGET, "--features", FEATURES]);
    for package in packages {
        command.args(["--package", &package.name]);
    }
    // `cargo xtask` sets its own toolchain for programs that it runs.
    command.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTDOC");
    command.env("RUSTDOCFLAGS", "-Zunstable-options --output-format=json --cap-lints=allow");
    let status = command
        .current_dir(root)
        .status()
        .map_err(|source| XtaskError::Start { program: "rustup".to_owned(), source })?;
    if status.success() { Ok(()) } else { Err(XtaskError::Step { step: "api", status }) }
}

fn listing(root: &Path, package: &Package) -> Result<(String, String), XtaskError> {
    let library = library(package).unwrap_or(&package.name).replace('-', "_");
    let path = root.join(TARGET).join("doc").join(format!("{library}.json"));
    let api = public_api::Builder::from_rustdoc_json(&path)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()
        .map_err(|source| XtaskError::Api { path, source: Box::new(source) })?;
    let name = package.name.strip_prefix("backstop-").unwrap_or(&package.name);
    Ok((name.to_owned(), api.to_string()))
}

/// Returns the lines that only one of two listings has, marked with `-` and `+`.
fn difference(before: &str, after: &str) -> String {
    let (old, new) = (before.lines().collect::<BTreeSet<_>>(), after.lines().collect());
    let gone = old.difference(&new).map(|line| format!("- {line}\n"));
    gone.chain(new.difference(&old).map(|line| format!("+ {line}\n"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_what_is_gone_and_new() {
        for (before, after, wanted) in [
            ("pub fn a()\npub fn b()\n", "pub fn a()\npub fn b()\n", ""),
            ("pub fn a()\n", "pub fn a()\npub fn b()\n", "+ pub fn b()\n"),
            ("pub fn a()\n", "pub fn a(u8)\n", "- pub fn a()\n+ pub fn a(u8)\n"),
        ] {
            assert_eq!(difference(before, after), wanted, "{after}");
        }
    }

    #[test]
    fn shipped_libraries_are_listed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
        let metadata = MetadataCommand::new().manifest_path(root).no_deps().exec().unwrap();
        let listed = |name: &str| {
            let package = metadata.packages.iter().find(|package| package.name == name);
            is_listed(package.unwrap())
        };
        for (name, wanted) in [
            ("backstop", true),
            ("backstop-layer0", true),
            ("backstop-tool-macros", true),
            ("backstop-cli", false),
            ("backstop-testkit", false),
            ("xtask", false),
        ] {
            assert_eq!(listed(name), wanted, "{name}");
        }
    }
}
