//! `backstop approvals`, `approve` and `deny`

use std::process::ExitCode;

use clock::{Clock, SystemClock};
use event_log::{Decision, EventLog, OpenApproval, one_line};
use layer0::id::ApprovalId;
use layer0::stop::Outcome;
use react::ApprovalNotFound;
use redact::Redactor;

use crate::args::{ApprovalsArgs, ApproveArgs, DenyArgs, StoreArgs};
use crate::exit::CliError;
use crate::output::{self, Answer, Prompt};
use crate::recorded::Recorded;
use crate::{exit, store};

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
        for open in &open {
            let OpenApproval { id, run, requested_at, .. } = open;
            output::line(&format!("{id}  of {run}, asked {requested_at}"))?;
            let call = output::call(&open.tool, &open.arguments, output::width());
            output::lines(&format!("  {call}"))?;
        }
        output::note("decide with `backstop approve ID --by NAME`, or `deny` with --reason TEXT");
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

/// What people say is stored, and read by the model.
fn without_secrets(mut decision: Decision, redactor: &Redactor) -> Decision {
    decision.by = redactor.redact(&decision.by).into_owned();
    decision.reason = decision.reason.map(|reason| redactor.redact(&reason).into_owned());
    decision
}

async fn decide(
    id: &ApprovalId,
    decision: Decision,
    args: &StoreArgs,
) -> Result<ExitCode, CliError> {
    let chosen = store::choose(args, None)?;
    let not_found = || {
        CliError::usage(ApprovalNotFound::new(id.clone()))
            .with_hint("`backstop approvals` lists what is open; an approval is decided once")
    };
    let database = store::open_existing(&chosen).await?.ok_or_else(not_found)?;
    let log = database.log();
    let decided = async {
        let open = log.open_approvals().await?.into_iter().find(|open| open.id == *id);
        if decision.approved {
            // What cannot be shown cannot be approved.
            let open = open.as_ref().ok_or_else(not_found)?;
            if !is_confirmed(open).await {
                return Ok(None);
            }
        }
        let decision = match &open {
            Some(open) => without_secrets(decision, &Recorded::redactor(&log, &open.run).await),
            None => decision,
        };
        // Another person may have been faster.
        if !log.decide(id, decision.clone(), SystemClock.now()).await? {
            return Err(not_found());
        }
        Ok(Some((open, decision)))
    };
    let decided = decided.await;
    database.close().await;
    let Some((open, decision)) = decided? else {
        output::note(&format!("{id} is still open"));
        return Ok(exit::of(Outcome::WaitingApproval));
    };
    let done = if decision.approved { "approved" } else { "denied" };
    output::note(&format!("{id} {done} by {}", one_line(&decision.by)));
    if let Some(open) = open {
        output::note("go on with:");
        let resume = format!("resume {}{}", open.run, chosen.flag());
        output::note(&format!("  {}", output::command(&resume)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the person at the terminal what is approved, and asks. Where there is no terminal, the
/// command line has said it.
async fn is_confirmed(open: &OpenApproval) -> bool {
    if !output::at_terminal() {
        return true;
    }
    let call = output::call(&open.tool, &open.arguments, output::width_of_notes());
    matches!(Prompt::to_confirm(&call).ask().await, Some(Answer::Yes))
}
