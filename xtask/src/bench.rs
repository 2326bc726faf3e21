//! `cargo xtask bench`: Backstop compared with its alternatives. The benchmarks are in `bench/`, a workspace of its
//! own, so that the dependencies of the alternatives never affect ours.

use std::path::Path;
use std::process::Command;

use crate::error::XtaskError;

/// Measures, and writes the figures to `docs/benchmarks.md` unless `quick`; with `only`, just the sections of the
/// measured contests.
///
/// # Errors
///
/// [`XtaskError::Start`] without cargo, [`XtaskError::Step`] if a contest fails to run.
pub(crate) fn run(root: &Path, quick: bool, only: Option<&str>) -> Result<(), XtaskError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // One of the alternatives requires a newer Rust than it needs, and cargo checks all of them.
    command.args(["run", "--release", "--locked", "--quiet", "--ignore-rust-version"]);
    command.args(["--manifest-path", "bench/Cargo.toml", "--package", "driver"]);
    command.arg("--target-dir").arg(root.join("target/bench"));
    command.args(["--", "--root"]).arg(root);
    if quick {
        command.arg("--quick");
    }
    if let Some(only) = only {
        command.args(["--only", only]);
    }
    let status = command
        .current_dir(root)
        .status()
        .map_err(|source| XtaskError::Start { program: "cargo".to_owned(), source })?;
    if status.success() { Ok(()) } else { Err(XtaskError::Step { step: "bench", status }) }
}

/// Runs all contests as [`run`] does, quickly: they must run, whatever the figures are.
pub(crate) fn glance(root: &Path) -> Result<(), XtaskError> {
    run(root, true, None)
}
