//! `backstop approvals`, `approve` and `deny`

use std::process::ExitCode;

use event_log::{Decision, EventLog, one_line};
use layer0::id::ApprovalId;
use react::ApprovalNotFound;

use crate::args::{ApprovalsArgs, ApproveArgs, DenyArgs, StoreArgs};
use crate::exit::CliError;
use crate::{assemble, output, store};

pub(crate) async fn list(args: ApprovalsArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let open = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let open = database.log().open_approvals().await;
            database.close().await;
            open?
        }
        None => Vec::new(),
    };
    if args.json {
        open.iter().try_for_each(output::json)?;
    } else if open.is_empty() {
        output::note(&format!("nothing waits for a person in {}", chosen.url));
    } else {
        let rows: Vec<Vec<String>> = open
            .iter()
            .map(|open| {
                vec![
                    open.id.to_string(),
                    open.run.to_string(),
                    open.requested_at.to_string(),
                    open.tool.to_string(),
                    assemble::brief(&open.arguments),
                ]
            })
            .collect();
        output::table(&["ID", "RUN", "ASKED", "TOOL", "ARGUMENTS"], &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn approve(args: ApproveArgs) -> Result<ExitCode, CliError> {
    let decision = Decision::approve(args.by);
    let decision = match args.reason {
        Some(reason) => decision.because(reason),
        None => decision,
    };
    decide(&args.id.into(), decision, &args.store).await
}

pub(crate) async fn deny(args: DenyArgs) -> Result<ExitCode, CliError> {
    decide(&args.id.into(), Decision::deny(args.by, args.reason), &args.store).await
}

async fn decide(
    id: &ApprovalId,
    decision: Decision,
    args: &StoreArgs,
) -> Result<ExitCode, CliError> {
    let chosen = store::choose(args, None)?;
    let not_found = || {
        CliError::usage(ApprovalNotFound::new(id.clone()))
            .with_hint("`backstop approvals` lists what is open; a question is decided once")
    };
    let database = store::open_existing(&chosen).await?.ok_or_else(not_found)?;
    let log = database.log();
    let open = log.open_approvals().await?;
    let decided = log.decide(id, decision.clone()).await;
    database.close().await;
    if !decided? {
        return Err(not_found());
    }
    let done = if decision.approved { "approved" } else { "denied" };
    output::note(&format!("{id} {done} by {}", one_line(&decision.by)));
    if let Some(open) = open.iter().find(|open| open.id == *id) {
        output::note("go on with:");
        let resume = format!("resume {}{}", open.run, chosen.flag());
        output::note(&format!("  {}", output::command(&resume)));
    }
    Ok(ExitCode::SUCCESS)
}
