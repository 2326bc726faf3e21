//! Turns of an agent whose model and tool are in this process.
//!
//! `agentplane_turns TURNS [memory|redb]`

use agentplane::prelude::*;
use contestant_agentplane::{ADDS, CONTESTANT, journal, scripted};
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let turns: usize = arguments.next().ok_or("how many turns?")?.parse()?;
    let in_file = arguments.next().is_some_and(|store| store == "redb");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder = std::env::temp_dir().join(format!("agentplane-turns-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("journal.redb");
    let plane = scripted(turns, journal(in_file.then_some(&*path))?)?;
    let runs = (200 / turns).max(1);
    contest::serve(CONTESTANT, || {
        for _ in 0..runs {
            let run = plane.start(ADDS, Tainted::trusted(json!("add numbers")));
            let outcome = runtime.block_on(run.run()).expect("it runs");
            assert!(matches!(outcome.status, RunStatus::Succeeded), "{:?}", outcome.status);
            let output = outcome.output.expect("it answers");
            assert_eq!(output.peek()["text"], "done");
            // The model's calls, the answer's too, and the tool's.
            assert_eq!(outcome.consumed.effects, 2 * turns + 1);
        }
    })?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
