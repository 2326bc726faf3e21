//! What agents and runs hold.

use backstop_testkit::measure::{Goal, Spread};

use crate::Effort;
use crate::contestant::once;
use crate::peers::Peers;
use crate::table::{Line, Table};

const KIB: f64 = 1024.0;

pub(crate) fn contest(peers: &Peers, effort: Effort) -> Result<Table, String> {
    let many: u32 = if effort.quick { 500 } else { 10_000 };
    let mut lines = Vec::new();
    for (what, label, limit, goal) in [
        ("idle", "an idle agent", 2.0, "2 KiB"),
        ("suspended", "a run that waits for a person", 16.0, "16 KiB"),
        ("in-flight", "a run that waits for its model, in process", 64.0, "64 KiB"),
    ] {
        let mut of_goal = Vec::new();
        for _ in 0..3 {
            let held = once(&peers.ours("memory"), &[what, &many.to_string()])?.bytes_held;
            of_goal.push(held as f64 / f64::from(many) / (limit * KIB));
        }
        let ratio = Spread::of(of_goal);
        lines.push(Line::new(format!("bytes of {label}"), ratio, Some(Goal::Within(goal))));
    }
    Ok(Table {
        title: "Memory",
        about: format!(
            "Bytes on the heap, {many} at once, of the goal. The agents are alike, as those of one \
             application are: they share provider, log, error store and the schemas of their tools, and \
             were not run yet. A run that waits for a person is its record in a log in memory, all its \
             events included; in a SQLite file it holds none."
        ),
        lines,
        left_out: Vec::new(),
    })
}
