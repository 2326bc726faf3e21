//! A durable log of events.

use std::path::Path;

use backstop_testkit::measure::{Goal, Spread};

use crate::Effort;
use crate::contestant::{Contestant, take_turns};
use crate::peers::{AGENTPLANE, Peers, SALVOR};
use crate::table::{Line, Table, ratio, wall};

pub(crate) fn contest(peers: &Peers, effort: Effort) -> Result<Table, String> {
    let mut lines = Vec::new();
    let sizes: &[&str] = if effort.quick { &["100"] } else { &["100", "10000", "100000"] };
    if let Some((python, script)) = peers.script("activegraph_log.py") {
        for events in sizes {
            for what in ["append", "load", "step"] {
                // A step of the other one takes longer the more events there are.
                let rounds = if *events == "100" { effort.rounds } else { 3 };
                let mut both = [
                    Contestant::start(&peers.ours("log"), &[what, events])?,
                    Contestant::start(python, &[&script, what, events])?,
                ];
                let took = take_turns(&mut both, rounds)?;
                let mut spread: Spread = ratio(&took[0], &took[1], wall);
                if what == "step" {
                    // A round of ours has twenty steps.
                    for value in [&mut spread.median, &mut spread.min, &mut spread.max] {
                        *value /= 20.0;
                    }
                }
                let is_goal = (what, *events) == ("append", "100000");
                let goal = is_goal.then_some(Goal::AtMost(1.0));
                lines.push(Line::new(format!("{what}, {events} events"), spread, goal));
            }
        }
    }
    if let Some(folder) = &peers.salvor {
        let most = [("append", "10000"), ("load", "10000"), ("load", "100000")];
        lines.extend(synced(peers, effort, SALVOR, &folder.join("salvor_log"), &most)?);
    }
    if let Some(folder) = &peers.agentplane {
        let most = [("append", "10000"), ("load", "10000")];
        lines.extend(synced(peers, effort, AGENTPLANE, &folder.join("agentplane_log"), &most)?);
    }
    Ok(Table {
        title: "Log",
        about: format!(
            "Time to append events one commit each, to read all of them back, and to take a step of \
             five events behind them. Beside the Python package activegraph, both in a SQLite file at \
             `normal`; a step of activegraph runs one behaviour. {SALVOR} and {AGENTPLANE} sync each \
             commit and cannot be told otherwise, salvor in a SQLite file at `full`, agentplane in a \
             redb file: beside them Backstop's SQLite file is at `full`, too. Each brings its own SQLite, \
             salvor 3.46 and Backstop 3.51. Reading verifies the hash chain here and at those two. They \
             take no steps, and no part in what takes them more than a minute: 100000 appends, which \
             agentplane has to make to load them, too."
        ),
        lines,
        left_out: peers.missing_of(&["activegraph", SALVOR, AGENTPLANE]),
    })
}

/// Beside a peer that syncs each commit.
fn synced(
    peers: &Peers,
    effort: Effort,
    name: &str,
    program: &Path,
    most: &[(&str, &str)],
) -> Result<Vec<Line>, String> {
    let few = [("append", "100"), ("load", "100")];
    let mut lines = Vec::new();
    for (what, events) in few.iter().chain(most.iter().filter(|_| !effort.quick)) {
        let rounds = if *events == "100" { effort.rounds } else { 3 };
        let mut both = [
            Contestant::start(&peers.ours("log"), &[what, events, "full"])?,
            Contestant::start(program, &[what, events])?,
        ];
        let took = take_turns(&mut both, rounds)?;
        let what = format!("{what}, {events} events, to {name}");
        lines.push(Line::new(what, ratio(&took[0], &took[1], wall), None));
    }
    Ok(lines)
}
