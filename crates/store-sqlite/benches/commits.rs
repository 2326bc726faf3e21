//! What writing to SQLite costs, beside a transaction for each write.
//!
//! `cargo bench -p backstop-store-sqlite --bench commits`; with `-- --quick` for a glance.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

#[path = "commits/load.rs"]
mod load;
#[path = "commits/plain.rs"]
mod plain;
#[path = "commits/work.rs"]
mod work;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use error_store::ErrorStore;
use event_log::EventLog;
use store_sqlite::{Database, Durability};
use testkit::measure::{Goal, Row, Spread, now};
use tokio::runtime::Runtime;

use crate::plain::Plain;
use crate::work::{Errors, Runs, Took, at_once, in_turns};

/// How much is measured.
pub(crate) struct Effort {
    rounds: usize,
    /// How many writes a round has.
    writes: usize,
    /// How many events a long run has.
    events: usize,
}

const FULL: Effort = Effort { rounds: 11, writes: 1_024, events: 100_000 };
const QUICK: Effort = Effort { rounds: 3, writes: 512, events: 5_000 };

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = if quick { QUICK } else { FULL };
    let runtime = Runtime::new().expect("a runtime can be made");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (plain, limit, ours) = runtime.block_on(async {
        let ours = Database::open(folder.path().join("ours.db"), Durability::Full).await;
        let plain = Plain::open(&folder.path().join("plain.db")).await;
        let limit = Plain::open(&folder.path().join("limit.db")).await;
        (Arc::new(plain), limit, ours.expect("a new file opens"))
    });
    println!("{}", Row::HEAD);
    let mut rows = Vec::new();
    let mut report = |new: Vec<Row>| {
        new.iter().for_each(|row| println!("{row}"));
        rows.extend(new);
    };
    for callers in [1, 64, 256] {
        report(runtime.block_on(appends(&effort, callers, &plain, &limit, &ours)));
    }
    for callers in [1, 64, 256] {
        report(runtime.block_on(errors(&effort, callers, &plain, &limit, &ours)));
    }
    let path = folder.path().join("long.db");
    report(runtime.block_on(load::of_long_runs(&effort, &path)));
    if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Appends of as many runs at once, of one event each.
async fn appends(
    effort: &Effort,
    callers: usize,
    plain: &Arc<Plain>,
    limit: &Plain,
    ours: &Database,
) -> Vec<Row> {
    let [mut theirs, mut mine, mut alone] = [(); 3].map(|()| Runs::new(callers));
    let log = ours.log();
    let ours = |batch| {
        let log = log.clone();
        async move { log.append(batch).await.expect("nothing fails") }
    };
    let plain = |batch| {
        let plain = Arc::clone(plain);
        async move { plain.append(batch).await }
    };
    let mut rounds = Vec::new();
    for round in 0..=effort.rounds {
        let each = effort.each(callers);
        let took = [at_once(theirs.next(each), plain).await, at_once(mine.next(each), ours).await];
        let all = in_turns(alone.next(each));
        let began = now();
        limit.append_all(&all).await.expect("nothing fails");
        let least = began.elapsed();
        // A first round, in which caches fill, is not counted.
        if round > 0 {
            rounds.push((took, least));
        }
    }
    rows("appends", callers, &rounds)
}

/// Errors of as many callers at once.
async fn errors(
    effort: &Effort,
    callers: usize,
    plain: &Arc<Plain>,
    limit: &Plain,
    ours: &Database,
) -> Vec<Row> {
    let [mut theirs, mut mine, mut alone] = [(); 3].map(|()| Errors::new(callers));
    let store = ours.errors();
    let ours = |error| {
        let store = store.clone();
        async move { drop(store.store(error).await.expect("nothing fails")) }
    };
    let plain = |error| {
        let plain = Arc::clone(plain);
        async move { plain.store(error).await }
    };
    let mut rounds = Vec::new();
    for round in 0..=effort.rounds {
        let each = effort.each(callers);
        let took = [at_once(theirs.next(each), plain).await, at_once(mine.next(each), ours).await];
        let all = in_turns(alone.next(each));
        let began = now();
        limit.store_all(&all).await.expect("nothing fails");
        let least = began.elapsed();
        if round > 0 {
            rounds.push((took, least));
        }
    }
    rows("errors", callers, &rounds)
}

impl Effort {
    /// How many writes each caller makes in a round.
    const fn each(&self, callers: usize) -> usize {
        match callers {
            1 => self.writes / 8,
            _ => self.writes / callers,
        }
    }
}

/// Sums up rounds of the plain design and of ours, and what one writer alone took at least.
fn rows(what: &str, callers: usize, rounds: &[([Took; 2], Duration)]) -> Vec<Row> {
    let spread = |ratio: &dyn Fn(&Took, &Took) -> f64| {
        Spread::of(rounds.iter().map(|([plain, ours], _)| ratio(plain, ours)))
    };
    let over = |over: Duration, under: Duration| over.div_duration_f64(under);
    if callers == 1 {
        let ratio = spread(&|plain, ours| over(ours.median(), plain.median()));
        return vec![Row::new(format!("{what}, 1 caller: time of one"), ratio, Goal::AtMost(1.1))];
    }
    let goal = Goal::AtLeast(if callers < 256 { 10.0 } else { 15.0 });
    let name = |of: &str| format!("{what}, {callers} callers: {of}");
    let mut rows =
        vec![Row::new(name("throughput"), spread(&|plain, ours| over(plain.all, ours.all)), goal)];
    let to_limit = rounds.iter().map(|([_, ours], least)| over(ours.all, *least));
    let (to_limit, limit) = match (what, callers) {
        ("appends", 64) => (Spread::of(to_limit), Goal::AtMost(1.4)),
        // At least 0.6 of the throughput.
        _ => (Spread::of(to_limit), Goal::AtMost(1.67)),
    };
    rows.push(Row::new(name("time to the limit"), to_limit, limit));
    if what == "errors" {
        let ratio = spread(&|plain, ours| over(ours.p99(), plain.median()));
        rows.push(Row::new(name("p99 to plain p50"), ratio, Goal::AtMost(1.0)));
    }
    rows
}
