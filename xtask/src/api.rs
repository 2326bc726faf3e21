//! `cargo xtask api`: the public API of each shipped crate, in one file per crate in `docs/api`, so that a change is
//! visible in the diff of a commit.
//!
//! Traits that all types of a crate implement automatically, or by a blanket implementation (`Send`, `Into`), are left
//! out.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use cargo_metadata::{MetadataCommand, Package};

use crate::error::XtaskError;
use crate::page;

/// Folder of the listings.
const LISTINGS: &str = "docs/api";

/// Target folder of the listings' build: rustdoc's pages are elsewhere.
const TARGET: &str = "target/api";

/// Features of the facade: with fewer, a listing would hide changes.
const FEATURES: &str = "full";

/// Release of the toolchain `nightly` that writes the listings: with another one, names of the standard library and
/// rustdoc's format may differ.
const NIGHTLY: &str = "rustc 1.97.0-nightly";

/// Instructions to install that toolchain.
pub(crate) const INSTALL: &str = "rustup toolchain install nightly, when it is 1.97 (May 2026)";

/// One crate's listing.
struct Listing {
    /// Path of the file, relative to the workspace.
    path: String,
    text: String,
}

/// Returns whether the toolchain for the listings is installed.
pub(crate) fn is_toolchain_here() -> bool {
    let version = Command::new("rustup").args(["run", "nightly", "rustc", "--version"]).output();
    version.is_ok_and(|output| output.stdout.starts_with(NIGHTLY.as_bytes()))
}

/// Writes all listings.
///
/// # Errors
///
/// The errors of [`check`], without [`XtaskError::ApiChanged`].
pub(crate) fn write(root: &Path) -> Result<(), XtaskError> {
    let listings = listings(root)?;
    for listing in &listings {
        page::write(root, &listing.path, &listing.text)?;
    }
    for path in stale(root, &listings)? {
        let path = root.join(path);
        fs::remove_file(&path).map_err(|source| XtaskError::File { path, source })?;
    }
    Ok(())
}

/// Compares the listings with the crates, and prints added and removed lines.
///
/// # Errors
///
/// [`XtaskError::ApiChanged`] if they differ, [`XtaskError::Step`] if rustdoc fails, [`XtaskError::Api`] if its output
/// cannot be read, [`XtaskError::Metadata`], [`XtaskError::File`].
pub(crate) fn check(root: &Path) -> Result<(), XtaskError> {
    let listings = listings(root)?;
    let mut changed = stale(root, &listings)?;
    for Listing { path, text } in listings {
        let file = root.join(&path);
        let stood = if file.exists() { page::read(&file)? } else { String::new() };
        let difference = difference(&stood, &text);
        if !difference.is_empty() {
            println!("{path}:\n{difference}");
            changed.push(path);
        }
    }
    if changed.is_empty() { Ok(()) } else { Err(XtaskError::ApiChanged { listings: changed }) }
}

/// Returns the listings of all shipped libraries.
fn listings(root: &Path) -> Result<Vec<Listing>, XtaskError> {
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

fn listing(root: &Path, package: &Package) -> Result<Listing, XtaskError> {
    let library = library(package).unwrap_or(&package.name).replace('-', "_");
    let path = root.join(TARGET).join("doc").join(format!("{library}.json"));
    let api = public_api::Builder::from_rustdoc_json(&path)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()
        .map_err(|source| XtaskError::Api { path, source: Box::new(source) })?;
    let name = package.name.strip_prefix("backstop-").unwrap_or(&package.name);
    let path = format!("{LISTINGS}/{name}.txt");
    Ok(Listing { path, text: api.to_string() })
}

/// Returns the listing files that belong to no crate.
fn stale(root: &Path, listings: &[Listing]) -> Result<Vec<String>, XtaskError> {
    let folder = root.join(LISTINGS);
    let mut files = Vec::new();
    if folder.exists() {
        page::files_below(&folder, &mut files)?;
    }
    let names = files.iter().filter_map(|file| file.file_name()?.to_str());
    let paths = names.map(|name| format!("{LISTINGS}/{name}"));
    Ok(paths.filter(|path| listings.iter().all(|listing| listing.path != *path)).collect())
}

/// Returns the lines that only one of two listings contains, marked with `-` and `+`.
fn difference(stood: &str, stands: &str) -> String {
    let (old, new) = (stood.lines().collect::<BTreeSet<_>>(), stands.lines().collect());
    let gone = old.difference(&new).map(|line| format!("- {line}\n"));
    gone.chain(new.difference(&old).map(|line| format!("+ {line}\n"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_what_is_gone_and_new() {
        for (stood, stands, wanted) in [
            ("pub fn a()\npub fn b()\n", "pub fn a()\npub fn b()\n", ""),
            ("pub fn a()\n", "pub fn a()\npub fn b()\n", "+ pub fn b()\n"),
            ("pub fn a()\n", "pub fn a(u8)\n", "- pub fn a()\n+ pub fn a(u8)\n"),
        ] {
            assert_eq!(difference(stood, stands), wanted, "{stands}");
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
