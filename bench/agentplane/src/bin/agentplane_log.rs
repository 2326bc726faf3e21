//! agentplane's journal in a redb file.
//!
//! `agentplane_log append|load EVENTS`

use std::time::Duration;

use agentplane::core::RunId;
use agentplane::journal::{Append, RecordKind};
use agentplane::prelude::*;
use contestant_agentplane::{CONTESTANT, journal};

/// Begins a run and appends records of the size of the other contestants' event, one commit each.
async fn fill(journal: &RedbStore, events: usize) -> RunId {
    let run = RunId::generate();
    let owned = Duration::from_secs(3_600);
    let lease = journal.acquire(run, "bench", owned).await.expect("it is free");
    for _ in 0..=events {
        let note = RecordKind::Note { text: "x".repeat(150) };
        journal.append(lease.epoch, vec![Append::new(run, note)]).await.expect("it is written");
    }
    run
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().ok_or("what?")?;
    let events: usize = arguments.next().ok_or("how many events?")?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder = std::env::temp_dir().join(format!("agentplane-log-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let journal = journal(Some(&folder.join("journal.redb")))?;
    match what.as_str() {
        "append" => contest::serve(CONTESTANT, || {
            runtime.block_on(fill(&journal, events));
        })?,
        "load" => {
            let run = runtime.block_on(fill(&journal, events));
            contest::serve(CONTESTANT, || {
                // Reading checks each record's own hash, this also that each follows the one before.
                let read = runtime.block_on(journal.read(run, 1)).expect("it is read");
                agentplane::Record::verify_chain(&read, agentplane::Digest::ZERO)
                    .expect("nothing was altered");
                assert_eq!(read.len(), events + 1);
            })?;
        }
        _ => return Err("append or load?".into()),
    }
    drop(journal);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
