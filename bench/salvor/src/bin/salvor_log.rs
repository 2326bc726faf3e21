//! salvor's log of events in a SQLite file, which it opens at `full`.
//!
//! `salvor_log append|load EVENTS`

use std::error::Error;
use std::path::Path;

use salvor::core::{Event, EventEnvelope, RunId, SequenceNumber};
use salvor::store::{EventStore, SqliteStore};
use time::OffsetDateTime;
use time::macros::datetime;

#[global_allocator]
static COUNTED: contest::Counted = contest::Counted;

const AT: OffsetDateTime = datetime!(2026-01-01 00:00:00 UTC);

/// Begins a run and appends events of the size of the other contestants', one commit each.
async fn fill(store: &SqliteStore, events: usize) -> RunId {
    let run = RunId::new();
    let append = |at: usize, event| {
        let at = SequenceNumber::new(at as u64);
        let envelope = EventEnvelope::new(run, at, AT, event);
        async move { store.append(&envelope).await.expect("it is written") }
    };
    append(
        0,
        Event::RunStarted {
            agent_def_hash: String::new(),
            input: "go".into(),
            labels: None,
            driven_by: None,
        },
    )
    .await;
    for at in 1..=events {
        let event = Event::ToolCallCompleted {
            seq: SequenceNumber::new(at as u64),
            output: "x".repeat(150).into(),
            deduplicated_from: None,
            settled_by: None,
        };
        append(at, event).await;
    }
    run
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().ok_or("what?")?;
    let events: usize = arguments.next().ok_or("how many events?")?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder = std::env::temp_dir().join(format!("salvor-log-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    contend(&what, events, &runtime, &folder)?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn contend(
    what: &str,
    events: usize,
    runtime: &tokio::runtime::Runtime,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let store = SqliteStore::open(folder.join("log.db"))?;
    match what {
        "append" => contest::serve("salvor 0.10.0", || {
            runtime.block_on(fill(&store, events));
        })?,
        "load" => {
            let run = runtime.block_on(fill(&store, events));
            contest::serve("salvor 0.10.0", || {
                let read = runtime.block_on(store.read_log(run));
                assert_eq!(read.expect("it is read").len(), events + 1);
            })?;
        }
        _ => return Err("append or load?".into()),
    }
    Ok(())
}
