//! `backstop sessions`

mod list;

use std::process::ExitCode;

use backstop_clock::{Clock, SystemClock};
use backstop_retention::{Fork, RemoveError};
use layer0::id::SessionId;
use serde_json::{Value, json};

use crate::args::{SessionsArgs, SessionsCommand, SessionsForgetArgs};
use crate::commands::runs::{describe, report_plan};
use crate::exit::CliError;
use crate::prompt::user;
use crate::secrets::build_process_redactor;
use crate::{output, store};

pub(crate) async fn run(args: SessionsArgs) -> Result<ExitCode, CliError> {
    match args.command {
        SessionsCommand::List(args) => list::run(&args).await,
        SessionsCommand::Forget(args) => forget(args).await,
    }
}

async fn forget(args: SessionsForgetArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let session = SessionId::from(args.session);
    let by = args.by.unwrap_or_else(user);
    if by.is_empty() {
        return Err(CliError::usage("`--by` is empty").with_hint("say who wants it forgotten"));
    }
    let by = build_process_redactor().redact(&by).into_owned();
    let now = SystemClock.now();
    let opened = match args.dry_run {
        true => store::open_read_only(&chosen).await?,
        false => store::open_existing(&chosen).await?,
    };
    let Some(database) = opened else { return Err(RemoveError::NoSession(session).into()) };
    if args.dry_run {
        let planned = database.plan_forget(&session, args.with_forks, now).await;
        database.close().await;
        let (runs, forks) = planned?;
        report_plan(&runs, &forks, args.json)?;
        if !args.json {
            name_forks(&forks);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let forgotten = database.forget_session(&session, &by, args.with_forks, now).await;
    database.close().await;
    let forgotten = forgotten?;
    if args.json {
        let mut object = json!({ "session": session, "by": by, "at": now });
        if let (Value::Object(object), Ok(Value::Object(rest))) =
            (&mut object, serde_json::to_value(&forgotten))
        {
            object.extend(rest);
        }
        output::json(&object)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&describe(&forgotten.removed))?;
    name_forks(&forgotten.forks);
    Ok(ExitCode::SUCCESS)
}

/// Prints the copies that stay.
fn name_forks(forks: &[Fork]) {
    for fork in forks {
        output::note(&format!("{} of session {} holds a copy", fork.run, fork.session));
    }
    if !forks.is_empty() {
        output::note("  hint: --with-forks takes those sessions too");
    }
}
