//! `backstop vacuum`

use std::process::ExitCode;

use serde_json::json;

use crate::args::VacuumArgs;
use crate::exit::CliError;
use crate::{output, store};

pub(crate) async fn run(args: VacuumArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let (before, after) = match store::open_existing(&chosen).await? {
        Some(database) => {
            let vacuumed = database.vacuum().await;
            database.close().await;
            let vacuumed = vacuumed??;
            (vacuumed.before, vacuumed.after)
        }
        None => (0, 0),
    };
    if args.json {
        output::json(&json!({ "bytes_before": before, "bytes_after": after }))?;
    } else {
        output::line(&format!("{before} bytes before, {after} bytes now"))?;
    }
    Ok(ExitCode::SUCCESS)
}
