//! A copy of the workspace in which one crate contains its mutants.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::sites::{self, Site};
use crate::error::XtaskError;

const SWITCH: &str = include_str!("switch.rs");
const SWITCH_FILE: &str = "mutants.rs";

/// A mutant.
#[derive(Debug, Clone)]
pub(super) struct Mutant {
    /// Its number, from 1.
    pub(super) id: usize,
    /// The file, relative to the workspace.
    pub(super) file: PathBuf,
    /// The line, from 1.
    pub(super) line: usize,
    /// Description of the change.
    pub(super) change: String,
}

/// A file of the crate, with its sites.
struct Source {
    /// Path relative to the workspace.
    file: PathBuf,
    text: String,
    sites: Vec<Site>,
}

/// The copy of the workspace.
pub(super) struct Tree {
    /// Its directory.
    pub(super) root: PathBuf,
    package: PathBuf,
    sources: Vec<Source>,
    /// Sites that do not compile with their mutants, by file and line.
    refused: BTreeSet<(PathBuf, usize)>,
}

impl Tree {
    /// Copies the files that git tracks, and finds the sites of a package.
    ///
    /// `package` is the package's directory, relative to the workspace.
    pub(super) fn copy(from: &Path, root: PathBuf, package: &Path) -> Result<Self, XtaskError> {
        copy_tracked(from, &root)?;
        let mut sources = Vec::new();
        let files = walkdir::WalkDir::new(root.join(package).join("src")).sort_by_file_name();
        let is_product =
            |entry: &walkdir::DirEntry| entry.path().file_stem().is_none_or(|stem| stem != "tests");
        for entry in files.into_iter().filter_entry(is_product) {
            let path = entry.map_err(|error| unreadable(&root, error.into()))?.into_path();
            let is_rust = path.extension().is_some_and(|extension| extension == "rs");
            // The switch of an earlier copy is not part of the package.
            if is_rust && !path.ends_with(SWITCH_FILE) {
                sources.extend(read_source(&root, &path)?);
            }
        }
        Ok(Self { root, package: package.to_owned(), sources, refused: BTreeSet::new() })
    }

    /// Leaves the sites of a line unchanged.
    pub(super) fn refuse(&mut self, file: &Path, line: usize) -> bool {
        self.refused.insert((file.to_owned(), line))
    }

    /// Writes every file with its mutants, and returns the mutants.
    pub(super) fn write(&self) -> Result<Vec<Mutant>, XtaskError> {
        let mut mutants = Vec::new();
        for source in &self.sources {
            let first = self.number(source, &mut mutants);
            let text = sites::rewrite(&source.text, &source.sites, |site| {
                first.get(site).copied().flatten()
            });
            let path = self.root.join(&source.file);
            fs::write(&path, text).map_err(|error| unreadable(&path, error))?;
        }
        self.add_switch()?;
        Ok(mutants)
    }

    /// Assigns to each site of a file the number of its first mutant.
    fn number(&self, source: &Source, mutants: &mut Vec<Mutant>) -> Vec<Option<usize>> {
        let mut first = Vec::new();
        for site in &source.sites {
            if self.refused.contains(&(source.file.clone(), site.line)) {
                first.push(None);
                continue;
            }
            first.push(Some(mutants.len() + 1));
            for change in &site.mutants {
                let (id, file) = (mutants.len() + 1, source.file.clone());
                mutants.push(Mutant { id, file, line: site.line, change: change.clone() });
            }
        }
        first
    }

    fn add_switch(&self) -> Result<(), XtaskError> {
        let source = self.root.join(&self.package).join("src");
        let switch = source.join(SWITCH_FILE);
        fs::write(&switch, SWITCH).map_err(|error| unreadable(&switch, error))?;
        let lib = source.join("lib.rs");
        let mut text = fs::read_to_string(&lib).map_err(|error| unreadable(&lib, error))?;
        text.push_str("\n#[doc(hidden)]\npub mod mutants;\n");
        fs::write(&lib, text).map_err(|error| unreadable(&lib, error))
    }
}

fn read_source(root: &Path, path: &Path) -> Result<Option<Source>, XtaskError> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
    let Ok(syntax) = syn::parse_file(&text) else { return Ok(None) };
    let file = path.strip_prefix(root).unwrap_or(path).to_owned();
    Ok(Some(Source { file, text, sites: sites::find(&syntax) }))
}

/// Copies the files that git tracks; an unchanged file keeps its modification time, so that it is not rebuilt. Sources of
/// an earlier copy that git no longer tracks are removed.
fn copy_tracked(from: &Path, to: &Path) -> Result<(), XtaskError> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(from).output();
    let listed =
        listed.map_err(|source| XtaskError::Start { program: "git".to_owned(), source })?;
    let names = String::from_utf8_lossy(&listed.stdout);
    let names: BTreeSet<&str> = names.split_terminator('\0').collect();
    remove_others(&to.join("crates"), to, &names)?;
    for name in names {
        let (source, target) = (from.join(name), to.join(name));
        let Ok(bytes) = fs::read(&source) else { continue };
        if fs::read(&target).is_ok_and(|there| there == bytes) {
            continue;
        }
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).map_err(|error| unreadable(folder, error))?;
        }
        fs::write(&target, bytes).map_err(|error| unreadable(&target, error))?;
        if let Ok(metadata) = fs::metadata(&source) {
            let _ = fs::set_permissions(&target, metadata.permissions());
        }
    }
    Ok(())
}

/// Removes the Rust files of an earlier copy that are not among these names.
fn remove_others(folder: &Path, root: &Path, names: &BTreeSet<&str>) -> Result<(), XtaskError> {
    for entry in walkdir::WalkDir::new(folder).into_iter().filter_map(Result::ok) {
        let path = entry.path();
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        if is_rust && !names.contains(&*name) {
            fs::remove_file(path).map_err(|error| unreadable(path, error))?;
        }
    }
    Ok(())
}

fn unreadable(path: &Path, source: std::io::Error) -> XtaskError {
    XtaskError::File { path: path.to_owned(), source }
}
