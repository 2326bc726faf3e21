//! Tools that fail at length.

use testkit::measure::Spread;

use crate::Effort;
use crate::contestant::{Contestant, take_turns};
use crate::peers::Peers;
use crate::table::{Line, Table, cpu, ratio};

/// How long each error is.
const CHARS: f64 = 3_000.0;

pub(crate) fn contest(peers: &Peers, effort: Effort) -> Result<Table, String> {
    let many = if effort.quick { "200" } else { "10000" };
    let mut both = [
        Contestant::start(&peers.ours("failures"), &["memory", many])?,
        Contestant::start(&peers.ours("failures"), &["none", many])?,
    ];
    let rounds = take_turns(&mut both, effort.rounds.min(7))?;
    let read = |contestant: &Contestant| -> Result<f64, String> {
        let (_, chars) = contestant.name.split_once("; ").ok_or("it says what the model read")?;
        chars.parse().map_err(|error| format!("{error}"))
    };
    let (with, without) = (read(&both[0])?, read(&both[1])?);
    let one = |value: f64| Spread::of([value]);
    Ok(Table {
        title: "Failing tools",
        about: format!(
            "{many} tool calls that fail with {CHARS} characters each, with an error store in memory \
             and without one. What the store keeps is the whole error, once for each distinct one."
        ),
        lines: vec![
            Line::new("characters the model reads of an error, of all", one(with / CHARS), None),
            Line::new("the same without an error store", one(without / CHARS), None),
            Line::new(
                "CPU of a failing turn, to one without a store",
                ratio(&rounds[0], &rounds[1], cpu),
                None,
            ),
        ],
        left_out: Vec::new(),
    })
}
