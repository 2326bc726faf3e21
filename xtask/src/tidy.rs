//! `cargo xtask tidy`: the house rules that no compiler and no other tool checks.
//!
//! Each module below has one group of rules as pure functions over text or small structs; only [`workspace`] reads the
//! disk.

mod circles;
mod docs;
mod finding;
mod footprint;
mod intervals;
pub(crate) mod language;
mod layout;
mod links;
mod manifests;
mod names;
mod prose;
mod published;
mod raw_json;
pub(crate) mod syntax;
mod tiers;
mod types;
mod workspace;

use std::path::Path;

use crate::error::XtaskError;
use finding::Severity;
use workspace::Workspace;

/// Checks the whole workspace and prints its findings as `path:line: what`.
///
/// # Errors
///
/// [`XtaskError::Untidy`] if a finding is an error; others if the workspace cannot be read.
pub(crate) fn run(root: &Path) -> Result<(), XtaskError> {
    let workspace = Workspace::load(root)?;
    let mut findings = Vec::new();
    findings.extend(tiers::check(&workspace.members));
    findings.extend(footprint::check(&workspace.members, &workspace.graph));
    findings.extend(manifests::check(&workspace.members));
    findings.extend(published::check(&workspace.members, |path| root.join(path).exists()));
    let page = |path: &str| workspace.pages.get(path).map(String::as_str);
    findings.extend(docs::dependencies(&workspace.manifest, page(docs::DEPENDENCIES)));
    findings.extend(docs::architecture(&workspace.members, page(docs::ARCHITECTURE)));
    findings.extend(links::check(&workspace.pages, |path| root.join(path).exists()));
    for file in &workspace.files {
        findings.extend(layout::check(file));
        findings.extend(intervals::check(file));
        findings.extend(names::check(file));
    }
    findings.extend(circles::check(&workspace.files));
    findings.extend(types::check(&workspace.files));
    findings.extend(raw_json::check(&workspace.files));
    findings.extend(language::check(&workspace.files));
    findings.extend(prose::check(&workspace.pages));
    findings.sort();

    for finding in &findings {
        println!("{finding}");
    }
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    println!(
        "tidy: {} crates, {} files, {errors} error(s), {} warning(s)",
        workspace.members.len(),
        workspace.files.len(),
        findings.len() - errors
    );
    if errors == 0 { Ok(()) } else { Err(XtaskError::Untidy { errors }) }
}
