//! The tests of a package: their build, and the mutants that each test reaches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cargo_metadata::Message;
use cargo_metadata::diagnostic::DiagnosticLevel;

use super::parallel::in_parallel;
use super::tree::{Mutant, Tree};
use crate::error::XtaskError;

/// Timeout of a test.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program of tests.
#[derive(Debug, Clone)]
pub(super) struct Program {
    path: PathBuf,
    /// Working directory that cargo uses.
    folder: PathBuf,
}

impl Program {
    /// Returns the executable.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// A test, with the mutants that it reaches.
#[derive(Debug)]
pub(super) struct Test {
    pub(super) program: Program,
    pub(super) name: String,
    pub(super) took: Duration,
    pub(super) mutants: BTreeSet<usize>,
}

/// Builds the tests with all mutants; sites that do not compile stay unchanged.
///
/// # Errors
///
/// [`XtaskError::Step`] if the tests do not build for a reason other than a mutant.
pub(super) fn build(
    tree: &mut Tree,
    package: &str,
    target: &Path,
) -> Result<(Vec<Mutant>, Vec<Program>), XtaskError> {
    loop {
        let mutants = tree.write()?;
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .args(["test", "--no-run", "--quiet", "--message-format=json", "-p", package])
            .args(["--lib", "--tests"])
            .env("CARGO_TARGET_DIR", target)
            .current_dir(&tree.root)
            .stderr(Stdio::inherit());
        let output = cargo.output();
        let output =
            output.map_err(|source| XtaskError::Start { program: "cargo".to_owned(), source })?;
        let messages: Vec<Message> =
            Message::parse_stream(output.stdout.as_slice()).map_while(Result::ok).collect();
        if output.status.success() {
            return Ok((mutants, programs(&messages)));
        }
        if !refuse_errors(tree, &messages) {
            return Err(XtaskError::Step { step: "mutate", status: output.status });
        }
    }
}

fn programs(messages: &[Message]) -> Vec<Program> {
    let program = |message: &Message| match message {
        Message::CompilerArtifact(artifact) if artifact.profile.test => {
            let folder = artifact.manifest_path.parent()?;
            let path = artifact.executable.as_ref()?;
            Some(Program { path: path.clone().into(), folder: folder.into() })
        }
        _ => None,
    };
    messages.iter().filter_map(program).collect()
}

/// Excludes the sites on the lines of errors; returns whether there are any.
fn refuse_errors(tree: &mut Tree, messages: &[Message]) -> bool {
    let mut is_any = false;
    for message in messages {
        let Message::CompilerMessage(message) = message else { continue };
        if message.message.level != DiagnosticLevel::Error {
            continue;
        }
        for span in &message.message.spans {
            for line in span.line_start..=span.line_end {
                is_any |= tree.refuse(Path::new(&span.file_name), line);
            }
        }
    }
    is_any
}

/// Lists the tests of the programs, and runs each alone to see which mutants it reaches.
///
/// A test that fails without any mutant is reported and left out.
pub(super) fn trace(programs: &[Program], work: &Path) -> Result<Vec<Test>, XtaskError> {
    let mut tests = Vec::new();
    for program in programs {
        let names = names(program)?;
        let traced = in_parallel(&names, |name| {
            let file = work.join(format!("trace-{}", name.replace("::", "-")));
            let _ = std::fs::remove_file(&file);
            let started = now();
            let passes = passes(program, &[name], &[("MUTANT_TRACE", file.as_os_str())], PATIENCE);
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let _ = std::fs::remove_file(&file);
            let mutants = text.lines().filter_map(|line| line.parse().ok()).collect();
            let (program, name) = (program.clone(), name.clone());
            (passes, Test { program, name, took: started.elapsed(), mutants })
        });
        for (passes, test) in traced {
            if passes {
                tests.push(test);
            } else {
                println!("left out: {} fails without a mutant", test.name);
            }
        }
    }
    Ok(tests)
}

fn names(program: &Program) -> Result<Vec<String>, XtaskError> {
    let output = Command::new(&program.path)
        .args(["--list", "--format", "terse"])
        .current_dir(&program.folder)
        .output()
        .map_err(|source| XtaskError::Start {
            program: program.path.display().to_string(),
            source,
        })?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Runs tests of a program; returns whether all of them pass in time.
pub(super) fn passes(
    program: &Program,
    tests: &[&String],
    variables: &[(&str, &std::ffi::OsStr)],
    patience: Duration,
) -> bool {
    let child = Command::new(&program.path)
        .arg("--exact")
        .args(tests)
        .envs(variables.iter().copied())
        .current_dir(&program.folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return false };
    let started = now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if started.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

/// Returns the time of a monotonic clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the time of programs is measured, and no rehearsal owns it"
)]
fn now() -> Instant {
    Instant::now()
}
