//! A durable log of events.

use testkit::measure::Spread;

use crate::Effort;
use crate::contestant::{Contestant, take_turns};
use crate::peers::Peers;
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
                lines.push(Line::new(format!("{what}, {events} events"), spread, None));
            }
        }
    }
    Ok(Table {
        title: "Log",
        about: "Time to append events one commit each, to read all of them back, and to take a step \
                of five events behind them, in a SQLite file at `normal`: Backstop's to that of the \
                Python package activegraph. Reading verifies the hash chain here; a step of \
                activegraph runs one behaviour."
            .to_owned(),
        lines,
        left_out: match peers.script("") {
            Some(_) => Vec::new(),
            None => peers.missing.iter().filter(|peer| peer.contains("activegraph")).cloned().collect(),
        },
    })
}
