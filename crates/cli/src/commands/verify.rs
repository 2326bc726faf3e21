//! `backstop verify`

use std::process::ExitCode;

use backstop_event_log::{LogError, RunFilter, UncheckedParts, Verified, is_segment, verify_run};
use layer0::failure::{Chain, Failure};
use layer0::id::RunId;
use serde_json::json;

use crate::args::VerifyArgs;
use crate::exit::{self, CliError};
use crate::output::format_count;
use crate::{ids, output, store};

pub(crate) async fn run(args: VerifyArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let Some(database) = store::open_read_only(&chosen).await? else {
        return match args.run {
            Some(run) => Err(CliError::no_run(run.into())),
            None => {
                output::note(&format!("no runs in {}", chosen.describe()));
                Ok(ExitCode::SUCCESS)
            }
        };
    };
    let log = database.log();
    let verified = async {
        let runs: Vec<RunId> = match &args.run {
            Some(run) => ids::records(&database, run).await?,
            None => {
                let runs = log.runs(RunFilter::new()).await?;
                let segments = log.runs(RunFilter::new().segments()).await?;
                runs.into_iter().chain(segments).map(|summary| summary.run).collect()
            }
        };
        let mut broken = 0_usize;
        for run in &runs {
            broken += usize::from(!report(run, verify_run(&*log, run).await, &args)?);
        }
        if !args.json && runs.len() != 1 {
            let segments = runs.iter().filter(|run| is_segment(run)).count();
            let verified = format_count((runs.len() - segments) as u64, "run");
            let besides = match segments {
                0 => String::new(),
                segments => format!(" and {}", format_count(segments as u64, "segment")),
            };
            output::line(&format!("{verified}{besides} verified, {broken} cannot be trusted"))?;
        }
        Ok::<_, CliError>(broken == 0)
    };
    let verified = verified.await;
    database.close().await;
    Ok(if verified? { ExitCode::SUCCESS } else { exit::of_divergence() })
}

/// Prints the parts of a keyed run that could not be checked.
fn note_unchecked(unchecked: &UncheckedParts) {
    if unchecked.row {
        output::note(
            "  not checked: its row, which an older version wrote and the key does not seal",
        );
    }
    if !unchecked.erasures.is_empty() {
        let events: Vec<String> = unchecked.erasures.iter().map(u64::to_string).collect();
        let events = events.join(", ");
        output::note(&format!("  not checked: whether {events} was erased by one who has the key"));
    }
}

/// Prints the result for a run; returns whether the run can be trusted. Returns an error for a failure that is not in
/// the record.
fn report(
    run: &RunId,
    verified: Result<Verified, LogError>,
    args: &VerifyArgs,
) -> Result<bool, CliError> {
    match verified {
        Ok(Verified { summary, erased, unchecked, .. }) => {
            if args.json {
                let sound = json!({"run": run, "ok": true, "events": summary.last_seq,
                    "head": summary.head, "key_id": summary.key_id, "erased": erased,
                    "unchecked": {"row": unchecked.row, "erasures": unchecked.erasures},
                    "code": null, "message": null});
                output::json(&sound)?;
            } else {
                let by = summary.key_id.as_ref().map(|id| format!(", sealed with key {id}"));
                let gone = match &erased[..] {
                    [] => String::new(),
                    erased => format!(", {} erased", erased.len()),
                };
                let by = by.unwrap_or_default();
                let events = format_count(summary.last_seq, "event");
                output::line(&format!("{run}: {events}, sound{by}{gone}"))?;
                note_unchecked(&unchecked);
            }
            Ok(true)
        }
        Err(LogError::NotFound(run)) => Err(CliError::no_run(run)),
        Err(error @ (LogError::Locked(_) | LogError::Closed)) => Err(error.into()),
        // With several runs, the others are still checked.
        Err(error @ LogError::KeyMissing { .. }) if args.run.is_some() => Err(error.into()),
        Err(error) => {
            let message = Chain(&error).to_string();
            if args.json {
                let broken = json!({"run": run, "ok": false, "events": null, "head": null,
                    "key_id": null, "erased": null, "unchecked": null, "code": error.code(), "message": message});
                output::json(&broken)?;
            } else {
                output::line(&format!("{run}: {}: {message}", error.code()))?;
            }
            Ok(false)
        }
    }
}
