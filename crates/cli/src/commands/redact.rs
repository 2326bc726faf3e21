//! `backstop redact`

use std::process::ExitCode;

use backstop_event_log::LogError;
use backstop_state::MemoryEntries;
use layer0::id::RunId;
use layer0::state::Scope;
use serde_json::json;

use crate::args::RedactArgs;
use crate::exit::CliError;
use crate::store::AnyDatabase;
use crate::{ids, output, store};

pub(crate) async fn run(args: RedactArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let run = ids::find_run(&chosen, &args.run).await?;
    let missing = || CliError::no_run(run.clone());
    let database = store::open_existing(&chosen).await?.ok_or_else(missing)?;
    let erased = database.log().erase(&run, args.seq).await;
    let forgotten = match &erased {
        Ok(_) => forget_run(&database, &run).await,
        Err(_) => Ok(false),
    };
    if matches!(forgotten, Ok(true)) {
        // The event is erased already; this overwrites the words of the memory too.
        database.log().erase(&run, args.seq).await?;
    }
    database.close().await;
    let copies = match erased {
        Err(LogError::NotFound(_)) => return Err(missing()),
        erased => erased?,
    };
    let is_forgotten = forgotten?;
    if args.json {
        output::json(&json!({ "run": run, "seq": args.seq, "copies": copies,
                              "memory_removed": is_forgotten }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&format!("{run}: event {} is erased", args.seq))?;
    if is_forgotten {
        output::note("the memory of the run's input and answer is removed too");
    }
    for copy in &copies {
        output::note(&format!("{copy} holds a copy"));
    }
    if !copies.is_empty() {
        output::note(&format!("  hint: `backstop redact RUN {}` erases it there too", args.seq));
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes the entry of a run from the memory of its session, its agent or all agents: it has texts of the run. Returns
/// whether there was one.
async fn forget_run(database: &AnyDatabase, run: &RunId) -> Result<bool, CliError> {
    let Some(summary) = database.log().summary(run).await? else { return Ok(false) };
    let mut removed = false;
    for scope in [
        Scope::Session(summary.session.clone()),
        Scope::Agent(summary.agent.to_string()),
        Scope::Global,
    ] {
        let memory = MemoryEntries::with_scope(database.state(), scope);
        removed |= memory.remove(&summary.session, run.as_str()).await?;
    }
    Ok(removed)
}
