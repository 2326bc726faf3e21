//! Many callers that write to SQLite.

use backstop_testkit::measure::{Goal, Spread};

use crate::Effort;
use crate::contestant::{Contestant, take_turns};
use crate::peers::Peers;
use crate::table::{Line, Table, cpu, p50, p99, ratio, wall};

pub(crate) fn contest(peers: &Peers, effort: Effort) -> Result<Table, String> {
    let (callers, writes): (&[u32], _) =
        if effort.quick { (&[1, 64], "512") } else { (&[1, 8, 64, 256], "2048") };
    let mut lines = Vec::new();
    for durability in ["full", "normal"] {
        for what in ["appends", "errors"] {
            for callers in callers.iter().filter(|callers| durability == "full" || **callers < 256)
            {
                let start = |who: &str| {
                    let callers = callers.to_string();
                    let arguments = [who, what, &callers, durability, writes];
                    Contestant::start(&peers.ours("writes"), &arguments)
                };
                let mut all = [start("backstop")?, start("plain")?, start("limit")?];
                let rounds = take_turns(&mut all, effort.rounds)?;
                let [ours, plain, limit] = &rounds[..] else {
                    return Err("three took part".into());
                };
                let is_full = durability == "full";
                let mut add = |of: &str, ratio: Spread, goal: Option<Goal>| {
                    let plural = if *callers == 1 { "caller" } else { "callers" };
                    let what = format!("`{durability}`, {what}, {callers} {plural}: {of}");
                    lines.push(Line::new(what, ratio, goal.filter(|_| is_full)));
                };
                let throughput = match callers {
                    64 => Some(Goal::AtLeast(10.0)),
                    256 => Some(Goal::AtLeast(15.0)),
                    _ => None,
                };
                add("writes a second", ratio(plain, ours, wall), throughput);
                let alone = (*callers == 1).then_some(Goal::AtMost(1.1));
                add("p50", ratio(ours, plain, p50), alone);
                add("p99", ratio(ours, plain, p99), None);
                if what == "errors" && *callers >= 64 {
                    let ratios = ours.iter().zip(plain).map(|(ours, plain)| p99(ours) / p50(plain));
                    let most = Some(Goal::AtMost(1.0));
                    add("p99 to the common design's p50", Spread::of(ratios), most);
                }
                // At least 0.6 of the limit's throughput; appends of 64 runs within 1.4 of its time.
                let to_limit = match (*callers, what) {
                    (64, "appends") => Some(Goal::AtMost(1.4)),
                    (256, _) => Some(Goal::AtMost(1.67)),
                    _ => None,
                };
                add("time to the limit", ratio(ours, limit, wall), to_limit);
            }
        }
    }
    let start = |who: &str| {
        Contestant::start(&peers.ours("writes"), &[who, "appends", "1", "normal", writes])
    };
    let rounds = take_turns(&mut [start("backstop")?, start("bare")?], effort.rounds)?;
    let what = "`normal`, appends, 1 caller: CPU to bare rusqlite";
    lines.push(Line::new(what, ratio(&rounds[0], &rounds[1], cpu), Some(Goal::AtMost(1.5))));
    Ok(Table {
        title: "Writing to SQLite",
        about: "Appends of one event to as many runs, and errors that are all different, of callers \
                that each write one after the other. Beside the common design: one connection behind a \
                lock, the same tables and pragmas, a transaction for each write. `writes a second` are \
                Backstop's to the common design's, more is better; `p50` and `p99` of the time of one \
                write too, less is better. The limit is the same rows written one by one by one writer in \
                transactions of 256, with nothing around it: below 1, Backstop takes less time. \
                Bare rusqlite writes the same rows, ready made, in the thread that asks, a transaction each."
            .to_owned(),
        lines,
        left_out: Vec::new(),
    })
}
