//! Turns of an agent whose model and tool are in this process.
//!
//! `rig_turns TURNS`

use contestant_rig::{CONTESTANT, scripted};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let turns: usize = std::env::args().nth(1).ok_or("how many turns?")?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let agent = scripted(turns);
    let runs = (200 / turns).max(1);
    contest::serve(CONTESTANT, || {
        for _ in 0..runs {
            // Its limit is of model calls, the answer's included.
            let run =
                runtime.block_on(async { agent.prompt("add numbers").max_turns(turns + 1).await });
            assert_eq!(run.expect("it answers").output(), "done");
        }
    })?;
    Ok(())
}
