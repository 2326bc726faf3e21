//! Mutation testing: `cargo xtask mutate PACKAGE`.
//!
//! All mutants of a package are built at once, behind a switch that an environment variable sets, and each test runs
//! once to see which mutants it reaches. A mutant is then tested with the tests that reach it, the fastest first. So
//! one build serves thousands of mutants. Documentation tests are not run.

mod parallel;
mod returns;
mod sites;
mod suite;
mod tree;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use self::parallel::in_parallel;
use self::suite::Test;
use self::tree::{Mutant, Tree};
use crate::error::XtaskError;

/// Total time of the tests that one process runs against a mutant.
const GROUP: Duration = Duration::from_millis(500);
/// Timeout of tests that take no time without the mutant.
const PATIENCE: Duration = Duration::from_secs(20);

/// The choice of mutants.
#[derive(Debug, clap::Args)]
pub(crate) struct MutateOptions {
    /// The package whose mutants are run against its own tests
    package: String,
    /// Only files whose path contains this (may be repeated)
    #[arg(long, value_name = "TEXT")]
    file: Vec<String>,
    /// Only every Nth mutant
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: usize,
}

/// Runs the mutants of a package, and prints those that no test notices.
///
/// # Errors
///
/// [`XtaskError::Metadata`] if cargo does not know the package, [`XtaskError::File`] if the copy of the workspace
/// cannot be written, [`XtaskError::Start`] and [`XtaskError::Step`] if its tests cannot be built.
pub(crate) fn run(root: &Path, options: &MutateOptions) -> Result<(), XtaskError> {
    let metadata = cargo_metadata::MetadataCommand::new().no_deps().current_dir(root).exec();
    let metadata = metadata.map_err(XtaskError::Metadata)?;
    let Some(package) = metadata.packages.iter().find(|package| *package.name == options.package)
    else {
        return Err(XtaskError::UnknownPackage { name: options.package.clone() });
    };
    let folder = package.manifest_path.parent().map(|path| path.strip_prefix(root).unwrap_or(path));
    let folder = folder.unwrap_or_else(|| "".into()).as_std_path();
    let target = metadata.target_directory.as_std_path();
    let mut tree = Tree::copy(root, target.join("mutate"), folder)?;
    // Cargo confuses a package of the copy with that of the workspace, and would test the mutants next time.
    let built = target.join("mutants");
    let (mutants, programs) = suite::build(&mut tree, &options.package, &built)?;
    println!("{} mutants built", mutants.len());
    let tests = suite::trace(&programs, &tree.root)?;
    let took: Duration = tests.iter().map(|test| test.took).sum();
    println!("{} tests traced, {} s one by one", tests.len(), took.as_secs());
    let chosen: Vec<Mutant> = mutants
        .into_iter()
        .filter(|mutant| options.takes(mutant))
        .step_by(options.every.max(1))
        .collect();
    report(&chosen, &tests);
    Ok(())
}

impl MutateOptions {
    fn takes(&self, mutant: &Mutant) -> bool {
        let path = mutant.file.to_string_lossy();
        self.file.is_empty() || self.file.iter().any(|part| path.contains(part.as_str()))
    }
}

/// The result of a mutant.
#[derive(Debug, PartialEq)]
enum Verdict {
    Noticed,
    /// No test runs the code.
    NotMet,
    Survived,
}

fn report(mutants: &[Mutant], tests: &[Test]) {
    let verdicts = in_parallel(mutants, |mutant| {
        let verdict = judge(mutant.id, tests);
        if verdict != Verdict::Noticed {
            let what = if verdict == Verdict::NotMet { "not met " } else { "survived" };
            println!("{what} {}:{}: {}", mutant.file.display(), mutant.line, mutant.change);
        }
        verdict
    });
    let count = |which: &Verdict| verdicts.iter().filter(|verdict| *verdict == which).count();
    println!(
        "{} mutants: {} noticed, {} survived, {} not met by any test",
        verdicts.len(),
        count(&Verdict::Noticed),
        count(&Verdict::Survived),
        count(&Verdict::NotMet),
    );
}

fn judge(mutant: usize, tests: &[Test]) -> Verdict {
    let mut meeting: Vec<&Test> =
        tests.iter().filter(|test| test.mutants.contains(&mutant)).collect();
    if meeting.is_empty() {
        return Verdict::NotMet;
    }
    meeting.sort_by_key(|test| test.took);
    let number = OsString::from(mutant.to_string());
    for group in groups(&meeting) {
        let Some(first) = group.first() else { continue };
        let names: Vec<&String> = group.iter().map(|test| &test.name).collect();
        let took: Duration = group.iter().map(|test| test.took).sum();
        if !suite::passes(&first.program, &names, &[("MUTANT", &number)], PATIENCE + took * 5) {
            return Verdict::Noticed;
        }
    }
    Verdict::Survived
}

/// Splits tests into groups of one program, each with a short total time; a slow test is a group of its own.
fn groups<'t>(tests: &[&'t Test]) -> Vec<Vec<&'t Test>> {
    let mut groups: Vec<(Duration, Vec<&Test>)> = Vec::new();
    for &test in tests {
        let fits = |group: &&mut (Duration, Vec<&Test>)| {
            group.0 + test.took <= GROUP
                && group.1.first().is_some_and(|first| first.program.path() == test.program.path())
        };
        match groups.iter_mut().find(fits) {
            Some((took, group)) => {
                *took += test.took;
                group.push(test);
            }
            None => groups.push((test.took, vec![test])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}
