//! `backstop approvals`, `approve` and `deny`

mod earlier;

use std::path::Path;
use std::process::ExitCode;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{Decision, EventLog, OpenApproval, one_line, open_root};
use backstop_react::{ApprovalNotFound, DecideError, decide as decide_in, redacted_decision};
use layer0::JsonText;
use layer0::id::{ApprovalId, RunId};
use layer0::stop::Outcome;
use serde::Serialize;

use self::earlier::EarlierDecision;
use crate::args::{ApprovalsArgs, ApproveArgs, DenyArgs, StoreArgs};
use crate::exit::CliError;
use crate::limits::limits;
use crate::output::{self, DataForm, Prompt, PromptAnswer};
use crate::recorded::RecordedAgentFile;
use crate::store::Chosen;
use crate::{exit, ids, proposal, store};

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
        output::note(&format!("nothing waits for a person in {}", chosen.describe()));
    } else {
        for open in &open {
            let OpenApproval { id, run, requested_at, expires_at, approvers, .. } = open;
            let limits = limits(*expires_at, approvers, SystemClock.now());
            let limits = limits.map(|limits| format!(", {limits}")).unwrap_or_default();
            output::line(&format!("{id}  of {run}, asked {requested_at}{limits}"))?;
            let call = output::call(&open.tool, &open.arguments, output::width());
            output::lines(&format!("  {call}"))?;
            if let Some(message) = &open.message {
                output::lines(&format!("  it asks: {message}"))?;
            }
            if let Some(schema) = &open.schema {
                let schema = output::call("asks for data:", schema, output::width());
                output::lines(&format!("  {schema}"))?;
            }
        }
        let asks = open.iter().any(|open| open.schema.is_some());
        let data = if asks { " (with --data JSON where it asks for data)" } else { "" };
        output::note(&format!(
            "decide with `backstop approve ID --by NAME`{data}, or `deny`, with --reason TEXT for the model"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn approve(args: ApproveArgs) -> Result<ExitCode, CliError> {
    let decision = Decision::approve(args.by);
    let decision = match args.reason {
        Some(reason) => decision.because(reason),
        None => decision,
    };
    let decision = match args.arguments {
        Some(arguments) => decision.with_arguments(arguments),
        None => decision,
    };
    let decision = match args.data {
        Some(data) => decision.with_data(read_data(&data)?),
        None => decision,
    };
    decide(&args.id, decision, &args.store, args.json).await
}

/// Reads the data of a decision.
fn read_data(text: &str) -> Result<JsonText, CliError> {
    let read = match text.strip_prefix('@') {
        _ if text == "-" => output::input()
            .map_err(|error| CliError::usage(format!("standard input cannot be taken: {error}")))?,
        Some(name) => backstop_config::read_text(Path::new(name))?,
        None => text.to_owned(),
    };
    JsonText::parse(&read).map_err(|error| {
        CliError::usage(format!("--data: it is no JSON: {error}"))
            .with_hint("write JSON, @FILE, or - for standard input")
    })
}

pub(crate) async fn deny(args: DenyArgs) -> Result<ExitCode, CliError> {
    let decision = Decision::deny(args.by, args.reason.unwrap_or_default());
    decide(&args.id, decision, &args.store, args.json).await
}

async fn decide(
    typed: &str,
    decision: Decision,
    args: &StoreArgs,
    json: bool,
) -> Result<ExitCode, CliError> {
    let chosen = store::choose(args, None)?;
    let Some(database) = store::open_existing(&chosen).await? else {
        return Err(ids::approval(Vec::new(), typed).err().unwrap_or_else(|| not_found(typed)));
    };
    let log = database.log();
    let decided = async {
        let open = log.open_approvals().await?;
        if decision.approved && !output::at_terminal() {
            ids::check_approval(&open, typed)?;
        }
        let open = match ids::approval(open, typed) {
            Ok(open) => open,
            // The approval may have been decided before, or have expired.
            Err(missing) => {
                let before = decided_before(&*log, &typed.into(), &chosen).await;
                return Err(before.unwrap_or(missing));
            }
        };
        let decision = match decision.arguments.clone() {
            Some(typed) => {
                decision.with_arguments(proposal::renew_arguments(&*log, &open, typed).await?)
            }
            None => decision,
        };
        let decision = match decision.approved {
            true => match confirm(&open, decision).await {
                Some(decision) => decision,
                None => return Ok((open, None)),
            },
            false => decision,
        };
        let decision =
            redacted_decision(&RecordedAgentFile::redactor(&*log, &open.run).await, decision)?;
        // Another person may have decided meanwhile.
        match decide_in(&*log, &open.id, decision.clone(), SystemClock.now()).await {
            Err(DecideError::NotFound(error)) => {
                let before = decided_before(&*log, &open.id, &chosen).await;
                return Err(before.unwrap_or_else(|| DecideError::NotFound(error).into()));
            }
            decided => decided?,
        }
        Ok::<_, CliError>((open, Some(decision)))
    };
    let decided = decided.await;
    let root = match &decided {
        Ok((open, _)) => find_open_root(&*log, &open.run).await,
        Err(_) => None,
    };
    database.close().await;
    let (open, decision) = decided?;
    let id = &open.id;
    let root = root.as_ref().unwrap_or(&open.run);
    let exit = match &decision {
        Some(_) => ExitCode::SUCCESS,
        None => exit::from_outcome(Outcome::WaitingApproval),
    };
    if json {
        output::json(&Decided::new(&open, decision.as_ref(), root))?;
        return Ok(exit);
    }
    let Some(decision) = decision else {
        output::note(&format!("{id} is still open"));
        return Ok(exit);
    };
    let done = if decision.approved { "approved" } else { "denied" };
    output::note(&format!("{id} {done} by {}", one_line(&decision.by)));
    output::note("a process that has the run goes on by itself; where none has:");
    let resume = format!("resume {root}{}", chosen.flag());
    output::note(&format!("  {}", output::command(&resume)));
    Ok(exit)
}

/// A decision, for one line of JSON.
#[derive(Serialize)]
struct Decided<'a> {
    id: &'a ApprovalId,
    run: &'a RunId,
    tool: &'a str,
    /// Arguments of the approved call, or the requested ones.
    arguments: &'a JsonText,
    /// `null` if the person at the terminal postponed the decision.
    verdict: Option<&'static str>,
    /// Data of the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a JsonText>,
    by: Option<&'a str>,
    reason: Option<&'a str>,
    /// The run to resume.
    resume: &'a RunId,
}

impl<'a> Decided<'a> {
    fn new(open: &'a OpenApproval, decision: Option<&'a Decision>, resume: &'a RunId) -> Self {
        let changed = decision.and_then(|decision| decision.arguments.as_ref());
        Self {
            id: &open.id,
            run: &open.run,
            tool: &open.tool,
            arguments: changed.unwrap_or(&open.arguments),
            verdict: decision.map(|it| if it.approved { "approve" } else { "deny" }),
            data: decision.and_then(|decision| decision.data.as_ref()),
            by: decision.map(|decision| &*decision.by),
            reason: decision.and_then(|decision| decision.reason.as_deref()),
            resume,
        }
    }
}

/// Returns the open run to resume for a child run. `None` if the store cannot be read; the resume then reports that.
async fn find_open_root(log: &dyn EventLog, run: &RunId) -> Option<RunId> {
    let summary = log.summary(run).await.ok()??;
    open_root(log, &summary).await.ok()?
}

/// Returns the error with the earlier decision about an approval; `None` if there is none, or it cannot be read.
async fn decided_before(log: &dyn EventLog, id: &ApprovalId, chosen: &Chosen) -> Option<CliError> {
    let earlier = EarlierDecision::find(log, id).await.ok()??;
    if earlier.is_expiry {
        return Some(DecideError::Expired(id.clone()).into());
    }
    let is_open = log.summary(&earlier.run).await.ok()?.is_some_and(|run| run.is_open());
    let root = find_open_root(log, &earlier.run).await;
    let open = root.or_else(|| is_open.then(|| earlier.run.clone()));
    Some(earlier.refuse(id, open.as_ref(), &chosen.flag()))
}

/// Returns the error that an approval is not open.
fn not_found(id: &str) -> CliError {
    CliError::usage(ApprovalNotFound::new(id.into()))
        .with_hint("`backstop approvals` lists what is open; an approval is decided once")
}

/// Shows the call to the person at the terminal, asks for confirmation, and asks for missing data. Without a terminal,
/// the command line is the confirmation.
async fn confirm(open: &OpenApproval, decision: Decision) -> Option<Decision> {
    if !output::at_terminal() {
        return Some(decision);
    }
    let arguments = decision.arguments.as_ref().unwrap_or(&open.arguments);
    let mut call = output::call(&open.tool, arguments, output::width_of_notes());
    if let Some(data) = &decision.data {
        let data = output::call("with", data, output::width_of_notes());
        call = format!("{call}\n{data}");
    }
    let schema = open.schema.as_ref().filter(|_| decision.data.is_none());
    match Prompt::to_confirm(&call).with_form(schema.map(DataForm::from_schema)).ask().await? {
        PromptAnswer::Given(data) => Some(decision.with_data(data)),
        PromptAnswer::Yes => Some(decision),
        PromptAnswer::Later | PromptAnswer::No(_) => None,
    }
}
