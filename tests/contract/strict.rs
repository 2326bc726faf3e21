//! Conversations at endpoints that refuse what the real ones are reported to refuse: each kind of
//! conversation at each endpoint, and histories of each endpoint at each other one, whole and streamed.
//!
//! `strict/known.txt` lists the cells that fail; `STRICT_CELLS=FOLDER cargo test -p backstop-tests
//! contract::strict` writes those that fail now to files.

mod conversations;
mod endpoints;
mod odd_tools;

use std::fmt::Write as _;

use backstop_testkit::strict::Dialect;

use self::conversations::{Bench, KINDS};

/// Cells that are known to fail, one a line: endpoint, kind, mode, rule.
const KNOWN: &str = include_str!("strict/known.txt");

/// One conversation at one endpoint.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    endpoint: String,
    kind: String,
    mode: &'static str,
    /// The rule that was broken first, or the error of the run.
    broken: String,
}

/// Fails for cells that are not known to fail, and names known ones that hold now.
#[track_caller]
fn compare(table: &str, failed: &[Cell]) {
    let line = |cell: &Cell| {
        let Cell { endpoint, kind, mode, broken } = cell;
        format!("{endpoint} {kind} {mode} {broken}")
    };
    let lines: Vec<String> = failed.iter().map(line).collect();
    if let Ok(folder) = std::env::var("STRICT_CELLS") {
        std::fs::write(format!("{folder}/{table}.txt"), lines.join("\n") + "\n").unwrap();
    }
    let place = |line: &str| line.rsplit_once(' ').map(|(place, _)| place.to_owned());
    let known: Vec<String> = KNOWN.lines().filter_map(place).collect();
    let is_known = |line: &&String| place(line).is_some_and(|place| known.contains(&place));
    let mut unknown = String::new();
    for line in lines.iter().filter(|line| !is_known(line)) {
        writeln!(unknown, "{line}").unwrap();
    }
    assert!(unknown.is_empty(), "requests that an endpoint refuses:\n{unknown}");
}

/// Spec: P1
#[tokio::test]
async fn endpoints_take_each_kind_of_conversation() {
    let mut failed = Vec::new();
    for dialect in Dialect::ALL {
        for kind in KINDS {
            for (mode, streamed) in [("whole", false), ("streamed", true)] {
                let bench = Bench::start(dialect, (kind.script)(dialect), streamed);
                if let Err(broken) = bench.hold(kind).await {
                    let endpoint = dialect.name().to_owned();
                    failed.push(Cell { endpoint, kind: kind.name.into(), mode, broken });
                }
            }
        }
    }
    compare("kinds", &failed);
}

/// Spec: P1
#[tokio::test]
async fn endpoints_take_histories_of_others() {
    let mut failed = Vec::new();
    for from in Dialect::ALL {
        for to in Dialect::ALL.into_iter().filter(|to| *to != from) {
            for (mode, streamed) in [("whole", false), ("streamed", true)] {
                if let Err(broken) = conversations::hold_in_turns(from, to, streamed).await {
                    let kind = format!("after-{}", from.name());
                    failed.push(Cell { endpoint: to.name().into(), kind, mode, broken });
                }
            }
        }
    }
    compare("pairs", &failed);
}
