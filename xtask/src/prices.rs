//! `cargo xtask prices`, and the step `prices` of `cargo xtask ci`: the table of known prices compared with that of
//! the PyPI package litellm. Prices that differ fail the step; models that are missing are named.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::XtaskError;

const PACKAGE: &str = "litellm";
const TABLE: &str = "crates/react/src/prices.json";
const FOLDER: &str = "target/prices";
/// Program that prints the table in the newest wheel of a folder.
const READ: &str = "import glob,os,sys,zipfile;\
    wheel=max(glob.glob(sys.argv[1]+'/litellm-*.whl'),key=os.path.getmtime);\
    name='litellm/model_prices_and_context_window_backup.json';\
    sys.stdout.buffer.write(zipfile.ZipFile(wheel).read(name))";
/// Our names of providers, with those of litellm.
const PROVIDERS: [(&str, &str); 4] = [
    ("anthropic", "anthropic"),
    ("bedrock", "bedrock_converse"),
    ("gemini", "gemini"),
    ("openai", "openai"),
];

/// Our table.
#[derive(Deserialize)]
struct Table {
    providers: BTreeMap<String, Listed>,
}

#[derive(Deserialize)]
struct Listed {
    models: BTreeMap<String, Price>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
struct Price {
    input_per_mtok: f64,
    output_per_mtok: f64,
    cached_input_per_mtok: Option<f64>,
    cache_write_per_mtok: Option<f64>,
}

/// An entry of litellm's table.
#[derive(Deserialize)]
struct Theirs {
    litellm_provider: Option<String>,
    mode: Option<String>,
    input_cost_per_token: Option<f64>,
    output_cost_per_token: Option<f64>,
    cache_read_input_token_cost: Option<f64>,
    cache_creation_input_token_cost: Option<f64>,
}

/// The differences between the tables.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// Models whose prices differ.
    differs: Vec<String>,
    /// Models that our table lacks.
    missing: BTreeSet<String>,
}

/// Fetches the newest wheel; returns `false` if that is not possible.
pub(crate) fn is_here() -> bool {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(FOLDER);
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d"]);
    let status = pip.arg(folder).arg(PACKAGE).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Fetches the newest wheel, and compares the tables.
///
/// # Errors
///
/// The errors of [`run`]; without a wheel, its table cannot be read.
pub(crate) fn check(root: &Path) -> Result<(), XtaskError> {
    if !is_here() {
        eprintln!("the newest wheel of {PACKAGE} was not fetched");
    }
    run(root)
}

/// Compares the tables.
///
/// # Errors
///
/// [`XtaskError::PricesDiffer`] with the models; others if a table cannot be read.
pub(crate) fn run(root: &Path) -> Result<(), XtaskError> {
    let path = root.join(TABLE);
    let ours = std::fs::read(&path).map_err(|source| XtaskError::File { path, source })?;
    let ours = serde_json::from_slice(&ours).map_err(XtaskError::Prices)?;
    let read = Command::new("python3").args(["-c", READ, FOLDER]).current_dir(root).output();
    let program = "python3".to_owned();
    let read = read.map_err(|source| XtaskError::Start { program, source })?;
    let theirs = serde_json::from_slice(&read.stdout).map_err(XtaskError::Prices)?;
    let Difference { differs, missing } = compare(&ours, &theirs);
    if !missing.is_empty() {
        let missing: Vec<_> = missing.into_iter().collect();
        println!("not in {TABLE}: {}", missing.join(", "));
    }
    if differs.is_empty() { Ok(()) } else { Err(XtaskError::PricesDiffer { models: differs }) }
}

fn compare(ours: &Table, theirs: &BTreeMap<String, serde_json::Value>) -> Difference {
    let mut difference = Difference::default();
    // Some entries describe the table itself.
    let entries = theirs.iter().filter_map(|(name, entry)| {
        let entry: Theirs = serde_json::from_value(entry.clone()).ok()?;
        let (ours, _) =
            PROVIDERS.iter().find(|(_, it)| entry.litellm_provider.as_deref() == Some(it))?;
        Some((*ours, name, entry))
    });
    for (provider, name, entry) in entries {
        let name = name.strip_prefix("gemini/").unwrap_or(name);
        let listed = ours.providers.get(provider).and_then(|listed| listed.models.get(name));
        match (listed, price_of(&entry)) {
            (Some(listed), Some(price)) if !is_same(*listed, price) => {
                difference.differs.push(format!("{provider} {name}: {listed:?}, theirs {price:?}"));
            }
            (None, Some(_)) if is_worth_listing(provider, name, &entry) => {
                difference.missing.insert(format!("{provider} {name}"));
            }
            _ => {}
        }
    }
    difference
}

fn price_of(entry: &Theirs) -> Option<Price> {
    let per_mtok = |cost: Option<f64>| cost.filter(|cost| *cost > 0.0).map(|cost| cost * 1e6);
    let input_per_mtok = per_mtok(entry.input_cost_per_token)?;
    Some(Price {
        input_per_mtok,
        output_per_mtok: per_mtok(entry.output_cost_per_token)?,
        cached_input_per_mtok: per_mtok(entry.cache_read_input_token_cost)
            .filter(|cached| *cached < input_per_mtok),
        cache_write_per_mtok: per_mtok(entry.cache_creation_input_token_cost),
    })
}

/// Returns whether two prices are equal; litellm's costs of single tokens are not exact.
fn is_same(ours: Price, theirs: Price) -> bool {
    let near = |one: f64, other: f64| (one - other).abs() <= 1e-6 * one.abs().max(1e-3);
    let both = |one: Option<f64>, other: Option<f64>| match (one, other) {
        (Some(one), Some(other)) => near(one, other),
        // A rate that litellm does not have is no difference.
        (_, other) => other.is_none(),
    };
    near(ours.input_per_mtok, theirs.input_per_mtok)
        && near(ours.output_per_mtok, theirs.output_per_mtok)
        && both(ours.cached_input_per_mtok, theirs.cached_input_per_mtok)
        && both(ours.cache_write_per_mtok, theirs.cache_write_per_mtok)
}

/// Returns whether the table should have a model: a text model, under its shortest name.
fn is_worth_listing(provider: &str, name: &str, entry: &Theirs) -> bool {
    let is_for_texts = matches!(entry.mode.as_deref(), Some("chat" | "responses"));
    let has_day = name.rsplit('-').next().is_some_and(|end| end.len() == 8 || end.len() == 2)
        && name.ends_with(|last: char| last.is_ascii_digit());
    let is_plain = !name.contains(['/', ':', '@']) && (provider == "bedrock" || !has_day);
    is_for_texts && is_plain && !["audio", "realtime", "tts"].iter().any(|it| name.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_prices_and_missing_models_are_named() {
        let price =
            r#"{"input_per_mtok": 3.0, "output_per_mtok": 15.0, "cached_input_per_mtok": 0.3}"#;
        let ours = format!(
            r#"{{"providers": {{"anthropic": {{"models": {{"a": {price}, "b": {price}}}}}}}}}"#
        );
        let entry = |input: &str| {
            format!(
                r#"{{"litellm_provider": "anthropic", "mode": "chat", "input_cost_per_token": {input},
                "output_cost_per_token": 1.5e-05, "cache_read_input_token_cost": 3e-07}}"#
            )
        };
        let theirs = format!(
            r#"{{"sample_spec": {{"mode": 1}}, "a": {}, "b": {}, "c": {}, "c-20260101": {}}}"#,
            entry("3e-06"),
            entry("4e-06"),
            entry("3e-06"),
            entry("3e-06")
        );
        let found =
            compare(&serde_json::from_str(&ours).unwrap(), &serde_json::from_str(&theirs).unwrap());
        assert!(found.differs.len() == 1 && found.differs[0].starts_with("anthropic b: "));
        assert_eq!(found.missing.into_iter().collect::<Vec<_>>(), ["anthropic c"]);
    }
}
