//! The counts that may not rise.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::counts::LanguageCounts;
use crate::error::XtaskError;
use crate::tidy::finding::Finding;

/// Path of the baseline, relative to the workspace.
pub(crate) const BASELINE: &str = "xtask/language.toml";

/// Largest counts of each crate.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Baseline {
    shared_types: usize,
    crates: BTreeMap<String, LanguageCounts>,
}

impl Baseline {
    pub(super) fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// Compares counts with the baseline: an error for a count that rose, a warning for one that fell.
    pub(super) fn compare(
        &self,
        crates: &BTreeMap<String, LanguageCounts>,
        shared_types: usize,
    ) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut compare = |of: &str, name: &str, before: usize, now: usize| {
            if now > before {
                let what = format!(
                    "{of}{name} rose from {before} to {now}; `cargo xtask language --worst 40` lists places"
                );
                found.push(Finding::error(BASELINE, 1, what));
            } else if now < before {
                let what = format!(
                    "{of}{name} fell from {before} to {now}; run `cargo xtask language --lower`"
                );
                found.push(Finding::warning(BASELINE, 1, what));
            }
        };
        compare("", "shared_types", self.shared_types, shared_types);
        for (name, counts) in crates {
            let before = self.crates.get(name).copied().unwrap_or_default();
            for ((what, now), (_, before)) in counts.named().into_iter().zip(before.named()) {
                compare(&format!("crate `{name}`: "), what, before, now);
            }
        }
        found
    }
}

/// Writes the baseline: the lower of each old and new count, or the new count without an old one.
///
/// # Errors
///
/// [`XtaskError`] if the file cannot be read or written.
pub(super) fn lower(
    root: &Path,
    crates: BTreeMap<String, LanguageCounts>,
    shared_types: usize,
) -> Result<(), XtaskError> {
    let path = root.join(BASELINE);
    let before = std::fs::read_to_string(&path).ok().and_then(|text| Baseline::parse(&text).ok());
    let mut after = Baseline { shared_types, crates };
    if let Some(before) = before {
        after.shared_types = after.shared_types.min(before.shared_types);
        for (name, counts) in &mut after.crates {
            if let Some(before) = before.crates.get(name) {
                *counts = counts.lowest(*before);
            }
        }
    }
    let text = toml::to_string(&after).map_err(XtaskError::Baseline)?;
    let head = "# Counts of language for each crate; they only fall. Written by `cargo xtask language --lower`.\n";
    std::fs::write(&path, format!("{head}{text}"))
        .map_err(|source| XtaskError::File { path, source })
}
