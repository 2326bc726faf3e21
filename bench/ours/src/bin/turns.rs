//! Turns of an agent whose model and tool are in this process.
//!
//! `turns TURNS none|memory|sqlite|sqlite-full`

use std::sync::Arc;

use backstop::{Agent, Budget, Database, Durability, Limits, MemoryErrorStore, MemoryLog};
use contestant_backstop::{CONTESTANT, Script, add};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let turns: usize = arguments.next().ok_or("how many turns?")?.parse()?;
    let store = arguments.next().ok_or("which store?")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder = std::env::temp_dir().join(format!("backstop-turns-{}", std::process::id()));
    // Above what the run needs: the guards count, and do not trip.
    let most = u32::try_from(turns)? + 10;
    let limits = Limits::new().max_iterations(most);
    let budget = Budget::new().model_calls(most).tool_calls(most).events(u64::from(most) * 10);
    let agent = Agent::builder(Script::new(turns)).instructions("You add.").tool(add);
    let agent = agent.stream(false).limits(limits).budget(budget);
    let durability = match store.as_str() {
        "sqlite" => Some(Durability::Normal),
        "sqlite-full" => Some(Durability::Full),
        _ => None,
    };
    let database = match durability {
        Some(durability) => {
            std::fs::create_dir_all(&folder)?;
            let path = folder.join("bench.db");
            Some(runtime.block_on(Database::open(&path, durability))?)
        }
        None => None,
    };
    let agent = match (&database, store.as_str()) {
        (Some(database), _) => agent.log(database.log()).error_store(database.errors()),
        (None, "memory") => {
            agent.shared_log(Arc::new(MemoryLog::new())).error_store(MemoryErrorStore::new())
        }
        _ => agent,
    };
    let agent = agent.build()?;
    let runs = (200 / turns).max(1);
    contest::serve(CONTESTANT, || {
        for _ in 0..runs {
            let outcome = runtime.block_on(agent.run("add numbers")).expect("it answers");
            assert_eq!(outcome.text(), "done");
            assert_eq!(outcome.usage.tool_calls as usize, turns);
        }
    })?;
    if let Some(database) = database {
        runtime.block_on(database.close());
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}
