//! `backstop resolve`

use std::process::ExitCode;
use std::sync::Arc;

use backstop_event_log::{EventLog, LogError, RunSummary};
use backstop_react::{ResumeError, Settlement, redacted_settlement};
use layer0::id::RunId;
use layer0::stop::Outcome;
use serde_json::json;

use crate::args::ResolveArgs;
use crate::exit::CliError;
use crate::prompt::user;
use crate::recorded::RecordedAgentFile;
use crate::{ids, output, store};

pub(crate) async fn run(args: ResolveArgs) -> Result<ExitCode, CliError> {
    let by = args.by.unwrap_or_else(user);
    let chosen = store::choose(&args.store, None)?;
    let run = ids::find_run(&chosen, &args.run).await?;
    let missing = || CliError::no_run(run.clone());
    let database = store::open_existing(&chosen).await?.ok_or_else(missing)?;
    let log: Arc<dyn EventLog> = database.log();
    let mut settlement = match args.happened {
        true => Settlement::call_happened(by),
        false => Settlement::did_not(by),
    };
    settlement.output = args.output;
    let said = if settlement.happened { "happened" } else { "did not happen" };
    // The person's words are recorded.
    let settlement =
        redacted_settlement(&RecordedAgentFile::redactor(&*log, &run).await, settlement);
    let said_so = args.json.then(|| {
        let verdict = if settlement.happened { "happened" } else { "did_not" };
        json!({ "run": run, "call_id": args.call, "verdict": verdict, "output": settlement.output,
                "by": settlement.by })
    });
    let settled = backstop_react::resolve(log, &run, &args.call.as_str().into(), settlement).await;
    let summary = database.log().summary(&run).await;
    let followed_by = match &summary {
        Ok(Some(summary)) => find_follower(&*database.log(), summary).await,
        _ => Ok(None),
    };
    database.close().await;
    match settled {
        Err(ResumeError::Log(LogError::NotFound(_))) => Err(missing()),
        Err(error) => Err(error.into()),
        Ok(()) => {
            if let Some(said_so) = said_so {
                output::json(&said_so)?;
                return Ok(ExitCode::SUCCESS);
            }
            output::note(&format!("call `{}` of {run} {said}", args.call));
            let reopen = match summary?.map(|summary| (summary.is_open(), summary.outcome)) {
                Some((true, _)) => "",
                Some((false, Some(Outcome::Completed))) | None => return Ok(ExitCode::SUCCESS),
                Some((false, _)) => " --reopen",
            };
            if let Some(follower) = followed_by? {
                output::note(&format!("{follower} continued its session, so it is not reopened"));
                return Ok(ExitCode::SUCCESS);
            }
            output::note("go on with:");
            let resume = format!("resume {run}{reopen}{}", chosen.flag());
            output::note(&format!("  {}", output::command(&resume)));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Returns the last run of the session, if a run has ended and another one of its session came after it.
async fn find_follower(log: &dyn EventLog, run: &RunSummary) -> Result<Option<RunId>, LogError> {
    if run.is_open() || run.parent.is_some() {
        return Ok(None);
    }
    let last = log.last_root(&run.session).await?;
    Ok(last.map(|last| last.run).filter(|last| *last != run.run))
}
