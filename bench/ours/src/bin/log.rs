//! A log of events in a SQLite file, at `normal` unless `full` is asked for.
//!
//! `log append|load|step EVENTS [full]`

use std::path::Path;
use std::sync::Arc;

use backstop::event_log::{RunWriter, Seed};
use backstop::layer0::JsonText;
use backstop::layer0::event::{Actor, AgentRecord, EventKind, RunStarted, Warning};
use backstop::layer0::id::RunId;
use backstop::{Database, Durability, EventLog, read_events};
use contestant_backstop::CONTESTANT;

/// Events of one turn with a tool call, which is the step of an agent.
const STEP: usize = 5;

fn started(session: &str) -> EventKind {
    RunStarted::new("go", session.into(), AgentRecord::new("bench", "", JsonText::default())).into()
}

/// Of the size of the other contestants' event.
fn event() -> EventKind {
    Warning::new("x".repeat(150)).into()
}

/// Begins a run and appends events, one commit each.
async fn fill(log: &Arc<dyn EventLog>, run: &str, events: usize) -> RunWriter {
    let mut writer = RunWriter::new(Arc::clone(log), RunId::new(run));
    let at = "2026-01-01T00:00:00Z".parse().expect("it is a time");
    writer.stage(&Seed::new("test"), at, Actor::Runtime, None, started(run));
    writer.commit().await.expect("it is written");
    append(&mut writer, events, 1).await;
    writer
}

async fn append(writer: &mut RunWriter, events: usize, at_once: usize) {
    let at = "2026-01-01T00:00:00Z".parse().expect("it is a time");
    for _ in 0..events / at_once {
        (0..at_once)
            .for_each(|_| writer.stage(&Seed::new("test"), at, Actor::Runtime, None, event()));
        writer.commit().await.expect("it is written");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().ok_or("what?")?;
    let events: usize = arguments.next().ok_or("how many events?")?.parse()?;
    let durability = match arguments.next().as_deref() {
        Some("full") => Durability::Full,
        _ => Durability::Normal,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder = std::env::temp_dir().join(format!("backstop-log-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let open = |name: &str| {
        let path: &Path = &folder.join(name);
        runtime.block_on(Database::open(path, durability))
    };
    let database = open("log.db")?;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut runs = 0;
    let next = |runs: &mut usize| {
        *runs += 1;
        format!("run_{runs}")
    };
    match what.as_str() {
        "append" => contest::serve(CONTESTANT, || {
            runtime.block_on(fill(&log, &next(&mut runs), events));
        })?,
        "load" => {
            let run = next(&mut runs);
            runtime.block_on(fill(&log, &run, events));
            contest::serve(CONTESTANT, || {
                let read = runtime.block_on(read_events(&*log, &RunId::new(run.as_str())));
                assert_eq!(read.expect("it is read").1.len(), events + 1);
            })?;
        }
        _ => {
            let mut writer = runtime.block_on(fill(&log, &next(&mut runs), events));
            contest::serve(CONTESTANT, || runtime.block_on(append(&mut writer, STEP * 20, STEP)))?;
        }
    }
    runtime.block_on(database.close());
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
