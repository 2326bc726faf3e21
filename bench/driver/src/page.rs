//! The page of figures: what is measured here stands between two marks, a section for each contest.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::peers::{AGENTPLANE, Peers, SALVOR};
use crate::table::Table;

const BEGIN: &str = "<!-- cargo xtask bench: begin -->";
const END: &str = "<!-- cargo xtask bench: end -->";

/// Says what is in the way of writing the page, before a quarter of an hour is spent on it. Figures of
/// single contests stand beside those of the same machine, compiler and peers, or nowhere.
pub(crate) fn check(root: &Path, peers: &Peers, all_are_held: bool) -> Result<(), String> {
    let path = path(root);
    let page = read(&path)?;
    std::fs::OpenOptions::new().append(true).open(&path).map_err(|error| at(&path, &error))?;
    let (_, measured, _) = parts(&page)?;
    if !all_are_held && !measured.contains(&head(peers)) {
        return Err("docs/benchmarks.md is of another machine, compiler or other peers: hold all \
                    contests, without --only"
            .to_owned());
    }
    Ok(())
}

/// Writes the tables into `docs/benchmarks.md`, each in the place of the one before it; where all
/// contests were held, in the place of all.
pub(crate) fn write(
    root: &Path,
    peers: &Peers,
    mut tables: Vec<Table>,
    all_were_held: bool,
) -> Result<(), String> {
    let path = path(root);
    let page = read(&path)?;
    let (before, measured, after) = parts(&page)?;
    for line in tables.iter().flat_map(|table| &table.lines).filter(|line| !line.is_met()) {
        if !after.contains(&format!("\n### Profile: {}\n", line.what)) {
            eprintln!(
                "warning: docs/benchmarks.md has no profile of `{}`, which is missed",
                line.what
            );
        }
    }
    let text = match all_were_held {
        true => whole(root, peers, &tables),
        false => {
            let again = format!(" Held again at {}.", moment(root));
            tables.iter_mut().for_each(|table| table.about.push_str(&again));
            tables.iter().try_fold(measured.to_owned(), |text, table| exchanged(&text, table))?
        }
    };
    std::fs::write(&path, format!("{before}{BEGIN}{text}{END}{after}"))
        .map_err(|error| at(&path, &error))
}

fn path(root: &Path) -> PathBuf {
    root.join("docs/benchmarks.md")
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| at(path, &error))
}

fn at(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Takes the page apart at its marks.
fn parts(page: &str) -> Result<(&str, &str, &str), String> {
    let missing = || format!("docs/benchmarks.md has no `{BEGIN}` and `{END}`");
    let (before, rest) = page.split_once(BEGIN).ok_or_else(missing)?;
    let (measured, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok((before, measured, after))
}

/// Puts a table in the place of the section with its title.
fn exchanged(text: &str, table: &Table) -> Result<String, String> {
    let head = format!("### {}\n", table.title);
    let at = text.find(&head).ok_or_else(|| {
        format!("docs/benchmarks.md has no section `{}` yet: hold all contests once", table.title)
    })?;
    let (before, section) = text.split_at(at);
    let end = section[head.len()..].find("### ").map_or(section.len(), |end| head.len() + end);
    Ok(format!("{before}{table}\n{}", &section[end..]))
}

fn whole(root: &Path, peers: &Peers, tables: &[Table]) -> String {
    let tables: String = tables.iter().map(|table| format!("{table}\n")).collect();
    format!("\n\nMeasured at {}.\n\n{}\n\n{tables}", moment(root), head(peers))
}

/// Says which commit is measured, and when.
fn moment(root: &Path) -> String {
    let root = root.display().to_string();
    let commit = said("git", &["-C", &root, "rev-parse", "--short=12", "HEAD"]);
    let is_changed = !said("git", &["-C", &root, "status", "--porcelain"]).is_empty();
    let changed = if is_changed { ", with changes on top" } else { "" };
    format!("commit {commit}{changed}, on {}", said("date", &["-u", "+%F"]))
}

/// Says what the figures are of.
fn head(peers: &Peers) -> String {
    let mut rust: Vec<&str> = peers.rigs.iter().map(|(name, _)| *name).collect();
    rust.extend(peers.agentplane.as_ref().map(|_| AGENTPLANE));
    rust.extend(peers.salvor.as_ref().map(|_| SALVOR));
    let python = match peers.script("") {
        Some((python, _)) => {
            let version = said(&python.display().to_string(), &["--version"]);
            format!(", and those in `bench/python/requirements.txt` with {version}")
        }
        None => String::new(),
    };
    let rustc = said("rustc", &["--version"]);
    format!("On {}, with {rustc}; peers: {}{python}.", machine(), rust.join(", "))
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("an unknown processor", |(_, model)| model);
    format!("{cores} cores of {model}, {}", said("uname", &["-sr"]))
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    output.unwrap_or_default()
}
