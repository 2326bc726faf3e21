//! The development tasks of this workspace, as `cargo xtask …`.
//!
//! Each task is a module: [`api`] lists public APIs, [`mod@bench`] measures, [`browser`] opens the page of a run,
//! [`ci`] runs all checks for a change, [`mutate`] changes code to see whether a test notices, [`prices`] compares
//! known prices, [`release`] shows what a release would publish, [`tidy`] checks the house rules that no compiler knows, [`errors_page`] writes the table of codes,
//! [`events_page`] that of events, [`rules_page`] the tests of each rule. The tasks change no file other than these
//! pages.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command speaks to its terminal")]

mod api;
mod bench;
mod browser;
mod ci;
mod corpus;
mod error;
mod errors_page;
mod events_page;
mod facts;
mod mutate;
mod others;
mod page;
mod prices;
mod release;
mod rules_page;
mod tidy;
mod weight;

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::XtaskError;

#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", about = "The chores of this workspace")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// List what each shipped crate offers others, in target/api/listings
    Api {
        /// Write nothing; fail if the facade hides a type that a signature names
        #[arg(long)]
        check: bool,
        /// Print the difference from another revision too
        #[arg(long, value_name = "REVISION", conflicts_with = "check")]
        against: Option<String>,
    },
    /// Measure Backstop beside what people would use instead, and write docs/benchmarks.md
    Bench {
        /// A glance, in which nothing is written
        #[arg(long)]
        quick: bool,
        /// Only the contests whose name contains this, and only their sections of the page
        #[arg(long, value_name = "NAME")]
        only: Option<String>,
    },
    /// Run everything a change must pass, stopping at the first failure
    Ci {
        /// Also what takes long: each package and feature alone, more cases of each law
        #[arg(long)]
        full: bool,
        /// Leave a step out (may be repeated)
        #[arg(long, value_name = "STEP", value_parser = ci::step_names())]
        without: Vec<String>,
    },
    /// Write docs/errors.md from the catalogue of codes and the facts of failures
    Errors {
        /// Change nothing; fail if the page or the docs of a failure differ
        #[arg(long)]
        check: bool,
    },
    /// Write docs/events.md from the payloads of events
    Events {
        /// Change nothing; fail if the page differs
        #[arg(long)]
        check: bool,
    },
    /// Count what is hard to read in comments and names
    Language {
        /// List so many places, worst first
        #[arg(long, value_name = "N", default_value_t = 0)]
        worst: usize,
    },
    /// Change the code of a package in many places, one at a time, and list the changes that no test notices
    Mutate(mutate::MutateOptions),
    /// Compare the table of known prices with that of the PyPI package litellm
    Prices,
    /// Show what a release would publish and whether it is ready: order, tag, changelog, interfaces, packages
    Release {
        /// Publish nothing. The workflow of a tag publishes: docs/releasing.md
        #[arg(long, required = true)]
        dry_run: bool,
    },
    /// List which scenarios and tests hold each rule, in target/rules.md, from their `Spec:` lines
    Rules {
        /// Write nothing; fail if nothing holds a rule
        #[arg(long)]
        check: bool,
    },
    /// Run every test of the workspace
    Test,
    /// Check the house rules: tiers, footprints, import circles, file sizes, documentation tables
    Tidy,
}

fn main() -> ExitCode {
    let root = root();
    let result = match Cli::parse().task {
        Task::Api { check: true, .. } => api::check(root),
        Task::Api { check: false, against } => api::write(root, against.as_deref()),
        Task::Bench { quick, only } => bench::run(root, quick, only.as_deref()),
        Task::Ci { full, without } => ci::run(root, &without, full),
        Task::Errors { check: true } => errors_page::check(root),
        Task::Errors { check: false } => errors_page::write(root),
        Task::Events { check: true } => events_page::check(root),
        Task::Events { check: false } => events_page::write(root),
        Task::Language { worst } => tidy::language::run(root, worst),
        Task::Mutate(options) => mutate::run(root, &options),
        Task::Prices => prices::check(root),
        Task::Release { .. } => release::rehearse(root),
        Task::Rules { check: true } => rules_page::check(root),
        Task::Rules { check: false } => rules_page::write(root),
        Task::Test => ci::test(root),
        Task::Tidy => tidy::run(root),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

/// Returns the workspace's directory, independent of the current one.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace's directory")
}

/// Prints an error, its causes and its hint.
fn report(error: &XtaskError) {
    eprintln!("error: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        eprintln!("  caused by: {error}");
        cause = error.source();
    }
    if let Some(hint) = error.hint() {
        eprintln!("  hint: {hint}");
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
