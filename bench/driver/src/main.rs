//! Has Backstop and what people would use instead take turns on one machine, and writes the ratios
//! into `docs/benchmarks.md`. Run it with `cargo xtask bench`.
//!
//! A contestant is a process ([`contestant`]); what cannot be built or installed is left out with a
//! line that says so ([`peers`]). Each other module is one contest.

mod contestant;
mod failures;
mod http;
mod logs;
mod memory;
mod page;
mod peers;
mod table;
mod turns;
mod weight;
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::peers::Peers;
use crate::table::Table;

#[derive(Parser)]
#[command(about = "Measure Backstop beside what people would use instead")]
struct Arguments {
    /// A glance: fewer rounds, no clean builds; the page is not written
    #[arg(long)]
    quick: bool,
    /// Only the contests whose name contains this; of the page, only their sections are written
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// The repository
    #[arg(long, default_value = ".")]
    root: PathBuf,
}

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
}

type Contest = fn(&Peers, Effort) -> Result<Table, String>;

const CONTESTS: [(&str, Contest); 7] = [
    ("turns", turns::contest),
    ("http", http::contest),
    ("writes", writes::contest),
    ("log", logs::contest),
    ("memory", memory::contest),
    ("failures", failures::contest),
    ("weight", weight::contest),
];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let effort = Effort { quick: arguments.quick, rounds: if arguments.quick { 3 } else { 15 } };
    let root = arguments.root.canonicalize().map_err(|error| format!("no such folder: {error}"))?;
    if !root.join("bench/Cargo.toml").exists() {
        return Err(format!("{} is not the repository", root.display()));
    }
    let wanted = |name: &str| arguments.only.as_deref().is_none_or(|only| name.contains(only));
    if !CONTESTS.iter().any(|(name, _)| wanted(name)) {
        let names = CONTESTS.map(|(name, _)| name).join(", ");
        return Err(format!("no contest's name contains that; there are {names}"));
    }
    let peers = Peers::prepare(&root, arguments.quick)?;
    if !arguments.quick {
        page::check(&root, &peers, arguments.only.is_none())?;
    }
    let mut tables = Vec::new();
    for (name, contest) in CONTESTS.into_iter().filter(|(name, _)| wanted(name)) {
        eprintln!("measuring: {name}");
        let table = contest(&peers, effort).map_err(|error| format!("{name}: {error}"))?;
        println!("{table}");
        tables.push(table);
    }
    if arguments.quick {
        return Ok(());
    }
    page::write(&root, &peers, tables, arguments.only.is_none())
}
