//! `backstop copy`

use std::process::ExitCode;

use backstop_event_log::{LogError, RunFilter};
use backstop_react::{CopyOutcome, Source, copy_run};
use layer0::failure::{Chain, Failure};
use layer0::id::RunId;
use serde_json::{Value, json};

use crate::args::CopyArgs;
use crate::exit::{self, CliError};
use crate::output::format_count;
use crate::store::AnyDatabase;
use crate::{output, store};

pub(crate) async fn run(args: CopyArgs) -> Result<ExitCode, CliError> {
    let (from, to) = (
        store::choose_from_flag(&args.from, "--from")?,
        store::choose_from_flag(&args.to, "--to")?,
    );
    let from = store::open_read_only(&from).await?.ok_or_else(|| {
        CliError::usage(format!("there is no store at {}", args.from))
            .with_hint("name one with --from, such as sqlite:backstop.db")
    })?;
    let copied = async {
        let to = store::open(&to, &Default::default()).await?;
        let copied = copy(&args, &from, &to).await;
        to.close().await;
        copied
    };
    let copied = copied.await;
    from.close().await;
    let copied = copied?;
    copied.report(args.json)?;
    Ok(copied.exit())
}

async fn copy(
    args: &CopyArgs,
    from: &AnyDatabase,
    to: &AnyDatabase,
) -> Result<CopyReport, CliError> {
    let mut filter = RunFilter::new();
    filter.session = args.session.clone().map(Into::into);
    filter.from = args.since;
    let mut runs = from.log().runs(filter).await?;
    if let (Some(session), true) = (&args.session, runs.is_empty()) {
        check_session(from, session).await?;
    }
    // A run is copied after the run that it follows.
    runs.sort_by_key(|run| (run.started_at, run.run.clone()));
    let (source, target) = (Source::from_store(from), Source::from_store(to));
    let mut copied = CopyReport::default();
    for run in runs {
        match copy_run(&source, &target, &run.run).await {
            Ok(CopyOutcome::Open) => copied.open.push(run.run),
            Ok(CopyOutcome::Known) => copied.known += 1,
            Ok(_) => copied.done += 1,
            Err(error) if is_of_run(&error) => copied.failed.push((run.run, error)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(copied)
}

/// Refuses an unknown session; a known session may have no runs after `--since`.
async fn check_session(from: &AnyDatabase, session: &str) -> Result<(), CliError> {
    let mut filter = RunFilter::new().limit(1);
    filter.session = Some(session.into());
    match from.log().runs(filter).await?.is_empty() {
        true => Err(CliError::usage(format!("there is no session `{session}` in the store"))
            .with_hint("`backstop runs` lists the sessions of a store")),
        false => Ok(()),
    }
}

/// Returns whether an error concerns only one run, so that the others are still copied.
const fn is_of_run(error: &LogError) -> bool {
    !matches!(
        error,
        LogError::Closed
            | LogError::Failed(_)
            | LogError::Full(_)
            | LogError::Locked(_)
            | LogError::SchemaNewer { .. }
            | LogError::StoreLost(_)
            | LogError::Unreachable(_)
    )
}

/// The results of a copy.
#[derive(Default)]
struct CopyReport {
    done: u64,
    known: u64,
    open: Vec<RunId>,
    failed: Vec<(RunId, LogError)>,
}

impl CopyReport {
    /// Returns the exit code of the worst failure.
    fn exit(&self) -> ExitCode {
        let codes = self.failed.iter().map(|(_, error)| exit::of_log(error));
        codes.fold(ExitCode::SUCCESS, exit::worse)
    }

    fn report(&self, json: bool) -> Result<(), CliError> {
        let Self { done, known, open, failed } = self;
        if json {
            let failed: Vec<Value> =
                failed.iter().map(|(run, error)| failure(run, error)).collect();
            let copied = json!({ "copied": done, "known": known, "open": open, "failed": failed });
            return output::json(&copied);
        }
        for run in open {
            output::note(&format!("{run} is open, and was left out: copy it once it is over"));
        }
        for (run, error) in failed {
            output::note(&format!("{run} was left out: {}", why(error)));
        }
        let known = match known {
            0 => String::new(),
            known => format!(", {} there already", format_count(*known, "run")),
        };
        let left = match u64::try_from(failed.len()).unwrap_or(u64::MAX) {
            0 => String::new(),
            left => format!(", {} left out", format_count(left, "run")),
        };
        output::line(&format!("{} copied{known}{left}", format_count(*done, "run")))
    }
}

fn failure(run: &RunId, error: &LogError) -> Value {
    json!({ "run": run, "code": error.code(), "message": why(error) })
}

fn why(error: &LogError) -> String {
    match error {
        // Nobody writes the record: it was reopened in both stores, or copied from a third one.
        LogError::Conflict { seq, .. } => {
            format!("its record in the other store is another one from seq {seq} on")
        }
        error => Chain(error).to_string(),
    }
}
