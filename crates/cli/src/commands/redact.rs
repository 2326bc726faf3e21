//! `backstop redact`

use std::process::ExitCode;

use backstop_event_log::LogError;
use serde_json::json;

use crate::args::RedactArgs;
use crate::exit::CliError;
use crate::{ids, output, store};

pub(crate) async fn run(args: RedactArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let run = ids::find_run(&chosen, &args.run).await?;
    let missing = || CliError::no_run(run.clone());
    let database = store::open_existing(&chosen).await?.ok_or_else(missing)?;
    let erased = database.log().erase(&run, args.seq).await;
    database.close().await;
    let copies = match erased {
        Err(LogError::NotFound(_)) => return Err(missing()),
        erased => erased?,
    };
    if args.json {
        output::json(&json!({ "run": run, "seq": args.seq, "copies": copies }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&format!("{run}: event {} is erased", args.seq))?;
    for copy in &copies {
        output::note(&format!("{copy} holds a copy"));
    }
    if !copies.is_empty() {
        output::note(&format!("  hint: `backstop redact RUN {}` erases it there too", args.seq));
    }
    Ok(ExitCode::SUCCESS)
}
