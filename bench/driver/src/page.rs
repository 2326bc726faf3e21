//! The page of figures: what is measured here stands between two marks.

use std::path::Path;
use std::process::Command;

use crate::peers::Peers;
use crate::table::Table;

const BEGIN: &str = "<!-- cargo xtask bench: begin -->";
const END: &str = "<!-- cargo xtask bench: end -->";

/// Writes the tables into `docs/benchmarks.md`.
pub(crate) fn write(root: &Path, peers: &Peers, tables: &[Table]) -> Result<(), String> {
    let path = root.join("docs/benchmarks.md");
    let page = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let missing = || format!("docs/benchmarks.md has no `{BEGIN}` and `{END}`");
    let (before, rest) = page.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    let rigs: Vec<&str> = peers.rigs.iter().map(|(name, _)| *name).collect();
    let mut text = format!(
        "{before}{BEGIN}\n\nOn {}, with {}; peers: {}{}.\n\n",
        machine(),
        said("rustc", &["--version"]),
        rigs.join(", "),
        if peers.script("").is_some() {
            ", Python's in `bench/python/requirements.txt`"
        } else {
            ""
        },
    );
    for table in tables {
        text.push_str(&format!("{table}\n"));
    }
    text.push_str(END);
    text.push_str(after);
    std::fs::write(&path, text).map_err(|error| error.to_string())
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
