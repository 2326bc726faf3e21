//! `cargo xtask bench`: Backstop beside what people would use instead. The work is done in `bench/`,
//! a workspace of its own, so that what the peers depend on never touches ours.

use std::path::Path;
use std::process::Command;

use crate::error::XtaskError;

/// Measures, and writes the figures into `docs/benchmarks.md` unless it is for a glance; of the page, only
/// the sections of the contests that were held.
///
/// # Errors
///
/// [`XtaskError::Start`] without cargo, [`XtaskError::Step`] when a contest cannot be held.
pub(crate) fn run(root: &Path, quick: bool, only: Option<&str>) -> Result<(), XtaskError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // One of the peers asks for a newer Rust than it needs, and cargo looks at all of them.
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

/// As [`run`], for a glance: the contests have to be held, whatever comes of them.
pub(crate) fn glance(root: &Path) -> Result<(), XtaskError> {
    run(root, true, None)
}
