//! Writes to SQLite, of many callers at once.
//!
//! `writes backstop|plain|limit|bare appends|errors CALLERS full|normal WRITES`
//!
//! `plain` is the common design: one connection behind a lock, and a transaction for each write.
//! `limit` is one writer alone, with nothing around it, that puts 256 writes into a transaction.
//! `bare` is rusqlite in the thread of its one caller, which only appends. All have the same tables and
//! pragmas.

mod bare;
mod plain;
mod work;

use std::sync::Arc;

use backstop::event_log::Log;
use backstop::{Database, Durability, ErrorStore};
use contest::Round;
use contestant_backstop::CONTESTANT;

use crate::bare::{Bare, with_summary};
use crate::plain::Plain;
use crate::work::{Errors, Runs, Took, at_once, in_turns};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what| arguments.next().ok_or(what);
    let (who, what) = (next("who?")?, next("appends or errors?")?);
    let callers: usize = next("how many callers?")?.parse()?;
    let durability = match next("full or normal?")?.as_str() {
        "full" => Durability::Full,
        _ => Durability::Normal,
    };
    let each = (next("how many writes?")?.parse::<usize>()? / callers).max(1);
    let runtime = tokio::runtime::Runtime::new()?;
    let folder = std::env::temp_dir().join(format!("backstop-writes-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("bench.db");
    let (mut runs, mut errors) = (Runs::new(callers), Errors::new(callers));
    match who.as_str() {
        "backstop" => {
            let database = runtime.block_on(Database::open(&path, durability))?;
            let (log, store) = (database.log(), database.errors());
            let append = |batch| {
                let log = log.clone();
                async move { log.append(batch).await.expect("nothing fails") }
            };
            let keep = |error| {
                let store = store.clone();
                async move { drop(store.store(error).await.expect("nothing fails")) }
            };
            contest::serve_rounds(CONTESTANT, || match what.as_str() {
                "appends" => {
                    let batches = runs.next(each);
                    took(|| runtime.block_on(at_once(batches, append)))
                }
                _ => {
                    let errors = errors.next(each);
                    took(|| runtime.block_on(at_once(errors, keep)))
                }
            })?;
            runtime.block_on(database.close());
        }
        "plain" => {
            let plain = Arc::new(runtime.block_on(Plain::open(&path, durability)));
            let append = |batch| {
                let plain = Arc::clone(&plain);
                async move { plain.append(batch).await }
            };
            let keep = |error| {
                let plain = Arc::clone(&plain);
                async move { plain.store(error).await }
            };
            contest::serve_rounds("a transaction for each write", || match what.as_str() {
                "appends" => runtime.block_on(at_once(runs.next(each), append)).into(),
                _ => runtime.block_on(at_once(errors.next(each), keep)).into(),
            })?;
        }
        "bare" => {
            let first = in_turns(runs.next(1)).remove(0);
            let mut bare = runtime.block_on(Bare::open(&path, durability, first))?;
            contest::serve_rounds("bare rusqlite", || {
                let batches = in_turns(runs.next(each)).into_iter().map(with_summary);
                let batches: Vec<_> = batches.collect();
                contest::measured(|| bare.append(&batches).expect("nothing fails"))
            })?;
        }
        _ => {
            let limit = runtime.block_on(Plain::open(&path, durability));
            contest::serve_rounds("one writer alone", || match what.as_str() {
                "appends" => {
                    let batches = in_turns(runs.next(each));
                    contest::measured(|| {
                        runtime.block_on(limit.append_all(&batches)).expect("nothing fails");
                    })
                }
                _ => {
                    let errors = in_turns(errors.next(each));
                    contest::measured(|| {
                        runtime.block_on(limit.store_all(&errors)).expect("nothing fails");
                    })
                }
            })?;
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Measures the CPU time of the process beside the time of each write.
fn took(write: impl FnOnce() -> Took) -> Round {
    let mut took = None;
    let Round { cpu_ns, .. } = contest::measured(|| took = Some(write()));
    Round { cpu_ns, ..took.map_or_else(Round::default, Round::from) }
}

impl From<Took> for Round {
    fn from(took: Took) -> Self {
        let nanos = |time: std::time::Duration| time.as_nanos() as u64;
        Self {
            wall_ns: nanos(took.all),
            p50_ns: nanos(took.at(50)),
            p99_ns: nanos(took.at(99)),
            ..Self::default()
        }
    }
}
