//! The step `corpus` of `cargo xtask ci`: the adapters compared with recorded answers of real providers. The recordings
//! are in source distributions on PyPI, as are the vendors' own libraries; both are fetched once, into `target/corpus`,
//! and are not kept in the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::XtaskError;

const STEP: &str = "corpus";
/// The scripts.
const SCRIPTS: &str = "tests/corpus";
/// Folder of the recordings and libraries.
const FETCHED: &str = "target/corpus";

/// Fetches missing files; returns `false` if that is not possible.
pub(crate) fn is_here() -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let fetched = root.join(FETCHED);
    fs::create_dir_all(&fetched).is_ok()
        && has_libraries(&root)
        && succeeds(
            Command::new(python(&root)).arg(root.join(SCRIPTS).join("gather.py")).arg(fetched),
        )
}

/// Compares how we decode each recorded answer, and what we send back, with the vendors' libraries.
///
/// # Errors
///
/// [`XtaskError::Start`] if cargo or Python cannot be run, [`XtaskError::Step`] if an answer differs.
pub(crate) fn run(root: &Path) -> Result<(), XtaskError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "-p", "backstop-tests", "--example", "corpus"]).current_dir(root);
    step(build, "cargo")?;
    let mut check = Command::new(python(root));
    check.arg(root.join(SCRIPTS).join("check.py")).arg(root.join(FETCHED));
    check.arg(root.join("target/debug/examples/corpus"));
    step(check, "python")
}

/// Installs the required vendors' libraries unless they are installed.
fn has_libraries(root: &Path) -> bool {
    let Ok(wanted) = fs::read(root.join(SCRIPTS).join("requirements.txt")) else { return false };
    let installed = root.join(FETCHED).join("requirements.txt");
    if fs::read(&installed).is_ok_and(|installed| installed == wanted) {
        return true;
    }
    let venv = root.join(FETCHED).join("venv");
    let pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "-r"];
    succeeds(Command::new("python3").args(["-m", "venv"]).arg(venv))
        && succeeds(
            Command::new(python(root)).args(pip).arg(root.join(SCRIPTS).join("requirements.txt")),
        )
        && fs::write(installed, wanted).is_ok()
}

fn python(root: &Path) -> PathBuf {
    root.join(FETCHED).join("venv/bin/python")
}

fn succeeds(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

fn step(mut command: Command, program: &str) -> Result<(), XtaskError> {
    let started = command.status();
    let status =
        started.map_err(|source| XtaskError::Start { program: program.to_owned(), source })?;
    status.success().then_some(()).ok_or(XtaskError::Step { step: STEP, status })
}
