//! `backstop replay`

use std::process::ExitCode;

use backstop_orchestrator::{Diverged, DivergencePoint, WorkflowRecordError, replay_workflow};
use backstop_react::{Divergence, Finish, ResumeError, replay};
use layer0::id::RunId;
use layer0::stop::Outcome;
use serde_json::json;

use crate::args::ReplayArgs;
use crate::assemble::skip_credential_commands;
use crate::exit::{self, CliError};
use crate::recorded::RecordedAgentFile;
use crate::{ids, output, store};

pub(crate) async fn run(args: ReplayArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let run = ids::find_run(&chosen, &args.run).await?;
    let database =
        store::open_read_only(&chosen).await?.ok_or_else(|| CliError::no_run(run.clone()))?;
    let log = database.log();
    let replayed = async {
        let Some(path) = &args.agent else { return Ok(replay(&*log, &run).await) };
        let mut recorded = RecordedAgentFile::read(&*log, &run, Some(path.as_path()), None).await?;
        skip_credential_commands(&mut recorded.file);
        let agent = recorded.build(recorded.agent(&database)?.store(&database))?;
        Ok::<_, CliError>(agent.replay(&run).await)
    };
    let replayed = replayed.await;
    let replayed_steps = match &replayed {
        Ok(Err(ResumeError::OfWorkflow { .. })) => Some(replay_workflow(&*log, &run).await),
        _ => None,
    };
    let summary = log.summary(&run).await;
    database.close().await;
    let events = summary?.map_or(0, |summary| summary.last_seq);
    match replayed? {
        Ok(finish) => same(&run, events, &state(finish.as_ref()), args.json),
        Err(ResumeError::OfWorkflow { .. }) => workflow(&run, events, replayed_steps, args.json),
        Err(ResumeError::Diverged(divergence)) => {
            show(&run, events, &divergence, args.json)?;
            Ok(exit::of_divergence())
        }
        Err(error) => Err(error.into()),
    }
}

/// Reports whether the record of a workflow is consistent, without running its code.
fn workflow(
    run: &RunId,
    events: u64,
    replayed: Option<Result<Option<Outcome>, WorkflowRecordError>>,
    json: bool,
) -> Result<ExitCode, CliError> {
    match replayed.transpose() {
        Ok(outcome) => {
            same(run, events, outcome.flatten().map_or("still open", Outcome::as_str), json)
        }
        Err(WorkflowRecordError::Diverged(Diverged { place, expected, actual, .. })) => {
            let seq = match place {
                DivergencePoint::Event(seq) => seq,
                _ => events,
            };
            let (expected, actual) = (expected.into(), actual.into());
            show(run, events, &Divergence::new(seq, "step", expected, actual), json)?;
            Ok(exit::of_divergence())
        }
        Err(WorkflowRecordError::Log(error)) => Err(error.into()),
        Err(error) => Err(CliError::storage(error)),
    }
}

fn same(run: &RunId, events: u64, state: &str, json: bool) -> Result<ExitCode, CliError> {
    if json {
        let same = json!({"run": run, "events": events, "state": state, "divergence": null});
        output::json(&same)?;
    } else {
        let events = output::format_count(events, "event");
        output::line(&format!("{run}: {events} replayed without a difference, {state}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(run: &RunId, events: u64, found: &Divergence, json: bool) -> Result<(), CliError> {
    if json {
        let divergence = json!({
            "seq": found.seq, "kind": found.kind, "expected": found.expected, "actual": found.actual,
        });
        return output::json(&json!({"run": run, "events": events, "divergence": divergence}));
    }
    let what = format!("replay.diverged: {run} at seq {}: {}", found.seq, found.kind);
    output::alert_styled(output::style::BAD, "error: ", &what);
    output::alert(&format!("  recorded: {}", found.expected));
    output::alert(&format!("  replayed: {}", found.actual));
    Ok(())
}

fn state(finish: Option<&Finish>) -> String {
    match finish {
        None => "still open".to_owned(),
        Some(Finish::Stopped { stop, .. }) => stop.outcome().as_str().to_owned(),
        Some(Finish::Failed(cause)) => format!("failed with {}", cause.code()),
        Some(_) => "over".to_owned(),
    }
}
