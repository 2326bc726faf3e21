//! Tools that fail at length.

use backstop_testkit::measure::Spread;

use crate::Effort;
use crate::contestant::{Contestant, take_turns};
use crate::peers::Peers;
use crate::table::{Line, Table, cpu, ratio, wall};

/// How long each error is.
const CHARS: f64 = 3_000.0;

pub(crate) fn contest(peers: &Peers, effort: Effort) -> Result<Table, String> {
    let many = if effort.quick { "200" } else { "10000" };
    let start = |store| Contestant::start(&peers.ours("failures"), &[store, many]);
    let mut all = [start("memory")?, start("none")?, start("sqlite")?];
    let rounds = take_turns(&mut all, effort.rounds.min(7))?;
    let [memory, none, sqlite] = &rounds[..] else { return Err("three took part".into()) };
    let mut counting = [Contestant::counting(&peers.ours("failures"), &["memory", many])?];
    let counted = take_turns(&mut counting, 3)?.remove(0);
    let failures: f64 = many.parse().map_err(|error| format!("{error}"))?;
    let in_file: f64 = sqlite.iter().map(|round| round.bytes_stored as f64).sum();
    let in_memory = counted.iter().map(|round| round.bytes_held as f64 / failures / CHARS);
    let read = |contestant: &Contestant| -> Result<f64, String> {
        let (_, chars) = contestant.name.split_once("; ").ok_or("it says what the model read")?;
        chars.parse().map_err(|error| format!("{error}"))
    };
    let (with, without) = (read(&all[0])?, read(&all[1])?);
    let one = |value: f64| Spread::of([value]);
    Ok(Table {
        title: "Failing tools",
        about: format!(
            "{many} tool calls a round that fail with {CHARS} characters each, all different, with an \
             error store and without one. What the store keeps is the whole error and its summary, once \
             for each distinct one; without a store nothing is kept. Time added is that of a whole turn, \
             with its model call and its events, to the same turn without a store."
        ),
        lines: vec![
            Line::new("characters the model reads of an error, of all", one(with / CHARS), None),
            Line::new("the same without an error store", one(without / CHARS), None),
            Line::new("bytes kept of an error, in memory, of its own", Spread::of(in_memory), None),
            Line::new(
                "bytes kept of an error, in a SQLite file, of its own",
                // The file grows in steps, so that single rounds say nothing.
                Spread::of([in_file / (failures * sqlite.len() as f64) / CHARS]),
                None,
            ),
            Line::new(
                "CPU of a failing turn, store in memory, to one without",
                ratio(memory, none, cpu),
                None,
            ),
            Line::new(
                "time of a failing turn, SQLite `normal`, to one without",
                ratio(sqlite, none, wall),
                None,
            ),
        ],
        left_out: Vec::new(),
    })
}
