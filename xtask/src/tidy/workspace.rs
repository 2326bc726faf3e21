//! The workspace for the checks: members, graph, files and pages, read once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};
use serde::Deserialize;
use walkdir::{DirEntry, WalkDir};

use crate::error::XtaskError;

/// Directories of Rust sources.
const SOURCES: &[&str] = &["crates", "examples", "fuzz", "tests", "xtask"];

/// All data for the checks.
pub(crate) struct Workspace {
    /// The root `Cargo.toml`.
    pub(crate) manifest: toml::Table,
    pub(crate) members: Vec<Member>,
    pub(crate) graph: Graph,
    pub(crate) files: Vec<SourceFile>,
    /// All pages in Markdown, by path.
    pub(crate) pages: BTreeMap<String, String>,
}

/// A package of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// The package's name: `backstop-clock`.
    pub(crate) name: String,
    /// Key in the graph.
    pub(crate) id: String,
    /// Its directory, relative to the workspace: `crates/clock`.
    pub(crate) dir: String,
    /// Text of its `Cargo.toml`, to find lines in.
    pub(crate) manifest_text: String,
    /// Its `Cargo.toml` as a table.
    pub(crate) manifest: toml::Table,
    /// `[package.metadata.backstop]`, or the error of reading it.
    pub(crate) stated: Result<Stated, String>,
    /// Dependencies on other members.
    pub(crate) deps: Vec<Dep>,
}

/// The metadata of a crate in `[package.metadata.backstop]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stated {
    /// The crate's tier; 9 is for crates that are not shipped.
    #[serde(default)]
    pub(crate) tier: Option<u8>,
    /// Crates of the same tier that it may use, without the `backstop-` prefix.
    #[serde(default)]
    pub(crate) same_tier: Vec<String>,
    /// Largest number of crates in its dependency graph, itself included.
    #[serde(default)]
    pub(crate) max_crates: Option<usize>,
}

/// A dependency on another member.
#[derive(Debug, Clone)]
pub(crate) struct Dep {
    /// The package's name.
    pub(crate) package: String,
    /// Key in the manifest.
    pub(crate) key: String,
    /// Whether only tests, examples and benches get it.
    pub(crate) dev: bool,
}

/// The normal dependencies of packages on this machine's target, by package id.
pub(crate) type Graph = BTreeMap<String, Node>;

/// One package of the graph.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// Ids of its dependencies.
    pub(crate) deps: Vec<String>,
}

/// One Rust file.
#[derive(Clone)]
pub(crate) struct SourceFile {
    /// Path relative to the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) syntax: syn::File,
}

impl SourceFile {
    /// Parses a file's text.
    ///
    /// # Errors
    ///
    /// [`XtaskError::Syntax`] if the text is not Rust.
    pub(crate) fn new(path: String, text: String) -> Result<Self, XtaskError> {
        match syn::parse_file(&text) {
            Ok(syntax) => Ok(Self { path, text, syntax }),
            Err(source) => Err(XtaskError::Syntax { path: path.into(), source }),
        }
    }
}

impl Workspace {
    /// Reads manifests, graph, sources and pages below `root`.
    ///
    /// # Errors
    ///
    /// [`XtaskError::Metadata`], [`XtaskError::Manifest`], [`XtaskError::File`] or [`XtaskError::Syntax`].
    pub(crate) fn load(root: &Path) -> Result<Self, XtaskError> {
        let metadata = MetadataCommand::new()
            .manifest_path(root.join("Cargo.toml"))
            .other_options(["--filter-platform".to_owned(), host_target()?])
            .exec()
            .map_err(XtaskError::Metadata)?;
        let members = metadata
            .workspace_packages()
            .into_iter()
            .map(|package| Member::read(root, package))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            manifest: parse("Cargo.toml", &read(&root.join("Cargo.toml"))?)?,
            members,
            graph: graph(&metadata),
            files: source_files(root)?,
            pages: pages(root)?,
        })
    }
}

impl Member {
    fn read(root: &Path, package: &Package) -> Result<Self, XtaskError> {
        let dir = package
            .manifest_path
            .parent()
            .map_or_else(String::new, |dir| relative(root, dir.as_std_path()));
        let manifest_text = read(package.manifest_path.as_std_path())?;
        let stated = match package.metadata.get("backstop") {
            None => Ok(Stated::default()),
            Some(value) => Stated::deserialize(value).map_err(|error| error.to_string()),
        };
        let deps = package
            .dependencies
            .iter()
            .filter(|dep| dep.path.is_some())
            .map(|dep| Dep {
                package: dep.name.clone(),
                key: dep.rename.clone().unwrap_or_else(|| dep.name.clone()),
                dev: dep.kind == DependencyKind::Development,
            })
            .collect();
        Ok(Self {
            name: package.name.to_string(),
            id: package.id.repr.clone(),
            manifest: parse(&format!("{dir}/Cargo.toml"), &manifest_text)?,
            dir,
            manifest_text,
            stated,
            deps,
        })
    }

    /// Returns the path of its manifest, relative to the workspace.
    pub(crate) fn manifest_path(&self) -> String {
        format!("{}/Cargo.toml", self.dir)
    }

    /// Returns the name without the `backstop-` prefix.
    pub(crate) fn short_name(&self) -> &str {
        self.name.strip_prefix("backstop-").unwrap_or(&self.name)
    }

    /// Returns whether the package is under `crates/`, where every crate has a tier.
    pub(crate) fn is_tiered(&self) -> bool {
        self.dir.starts_with("crates/")
    }
}

/// An empty member, for tests that set only some fields.
#[cfg(test)]
impl Default for Member {
    fn default() -> Self {
        Self {
            name: String::new(),
            id: String::new(),
            dir: String::new(),
            manifest_text: String::new(),
            manifest: toml::Table::new(),
            stated: Ok(Stated::default()),
            deps: Vec::new(),
        }
    }
}

/// Returns the default target of the compiler.
fn host_target() -> Result<String, XtaskError> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(&rustc)
        .args(["--print", "host-tuple"])
        .output()
        .map_err(|source| XtaskError::Start { program: rustc, source })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn graph(metadata: &Metadata) -> Graph {
    let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    nodes
        .map(|node| {
            let is_normal = |dep: &&cargo_metadata::NodeDep| {
                dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
            };
            let deps = node.deps.iter().filter(is_normal).map(|dep| dep.pkg.repr.clone()).collect();
            let name = metadata[&node.id].name.to_string();
            (node.id.repr.clone(), Node { name, deps })
        })
        .collect()
}

fn source_files(root: &Path) -> Result<Vec<SourceFile>, XtaskError> {
    let is_ours = |entry: &DirEntry| entry.file_name() != "target";
    let mut files = Vec::new();
    for dir in SOURCES.iter().map(|dir| root.join(dir)).filter(|dir| dir.is_dir()) {
        for entry in WalkDir::new(&dir).sort_by_file_name().into_iter().filter_entry(is_ours) {
            let entry = entry
                .map_err(|error| XtaskError::File { path: dir.clone(), source: error.into() })?;
            if entry.path().extension().is_some_and(|extension| extension == "rs") {
                let path = relative(root, entry.path());
                files.push(SourceFile::new(path, read(entry.path())?)?);
            }
        }
    }
    Ok(files)
}

fn pages(root: &Path) -> Result<BTreeMap<String, String>, XtaskError> {
    let is_ours = |entry: &DirEntry| {
        !["target", "node_modules", ".git"].iter().any(|other| entry.file_name() == *other)
    };
    let mut pages = BTreeMap::new();
    for entry in WalkDir::new(root).into_iter().filter_entry(is_ours) {
        let entry = entry
            .map_err(|error| XtaskError::File { path: root.to_owned(), source: error.into() })?;
        if entry.path().extension().is_some_and(|extension| extension == "md") {
            pages.insert(relative(root, entry.path()), read(entry.path())?);
        }
    }
    Ok(pages)
}

fn parse(path: &str, text: &str) -> Result<toml::Table, XtaskError> {
    text.parse().map_err(|source| XtaskError::Manifest { path: path.to_owned(), source })
}

fn read(path: &Path) -> Result<String, XtaskError> {
    fs::read_to_string(path).map_err(|source| XtaskError::File { path: path.to_owned(), source })
}

fn relative(root: &Path, path: &Path) -> String {
    let parts: PathBuf = path.strip_prefix(root).unwrap_or(path).components().collect();
    parts.to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/")
}
