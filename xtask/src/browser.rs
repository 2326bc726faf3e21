//! The step `page` of `cargo xtask ci`: the page of a run, opened in a real browser. Runs the tests in `tests/browser`,
//! which control an installed chromium.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::error::XtaskError;

const STEP: &str = "page";
const FOLDER: &str = "tests/browser";
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Builds pages with the command, and opens them.
///
/// # Errors
///
/// [`XtaskError::Start`] if a program cannot be run, [`XtaskError::Metadata`] if cargo does not return its target
/// folder, [`XtaskError::Step`] if a test fails.
pub(crate) fn run(root: &Path) -> Result<(), XtaskError> {
    let folder = root.join(FOLDER);
    if !folder.join("node_modules").is_dir() {
        passed(
            "npm",
            Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(&folder),
        )?;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    passed(
        "cargo",
        Command::new(cargo).args(["build", "-q", "-p", "backstop-cli"]).current_dir(root),
    )?;
    let metadata = cargo_metadata::MetadataCommand::new().no_deps().current_dir(root).exec();
    let metadata = metadata.map_err(XtaskError::Metadata)?;
    let mut tests = Command::new("node");
    tests
        .args(["--test", "--test-reporter=spec"])
        .env("BACKSTOP", metadata.target_directory.join("debug/backstop"))
        .env("CHROMIUM", chromium().unwrap_or_default())
        .current_dir(folder);
    passed("node", &mut tests)
}

/// Returns whether a browser is installed.
pub(crate) fn has_chromium() -> bool {
    chromium().is_some()
}

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut files = BROWSERS.iter().flat_map(|name| folders.iter().map(move |at| at.join(name)));
    files.find(|file| file.is_file())
}

fn passed(program: &str, command: &mut Command) -> Result<(), XtaskError> {
    let started = command.status();
    let status: ExitStatus =
        started.map_err(|source| XtaskError::Start { program: program.to_owned(), source })?;
    if status.success() { Ok(()) } else { Err(XtaskError::Step { step: STEP, status }) }
}
