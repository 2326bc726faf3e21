//! Workflows within a workflow in an orchestrator: `flow` has `gather` ask `fixer` and `clerk` side by side, `each`
//! ask `scout` about what they said, `watch` begin `shaky` anew once it failed, and `desk` send the rest to
//! `payer`. `fixer` charges, and `payer` wipes, if a person agrees: neither is to be done twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use backstop::event_log::RunFilter;
use backstop::layer0::event::EventKind;
use backstop::layer0::id::RunId;
use backstop::layer0::operator::{Context, Task};
use backstop::layer0::stop::Stop;
use backstop::orchestrator::{Map, Parallel, Restart, Route, Sequence, Supervise, Workflow};
use backstop::provider::{ErrorKind, ModelRequest};
use backstop::{
    EventLog, LocalOrchestrator, Message, Operator, Orchestrator, ScriptedAnswer, ScriptedProvider,
    TokenUsage, read_events,
};

use crate::kept::Kept;
use crate::tree::{agent, calling};
use crate::{Deadly, Effects, Failed};

/// Says what it was asked, and its name.
fn saying(name: &'static str) -> ScriptedProvider {
    ScriptedProvider::from_fn(move |request: &ModelRequest| {
        let input = request.messages.messages().iter().find_map(|message| match &**message {
            Message::User { content, .. } => Some(content.to_string()),
            _ => None,
        });
        let text = format!("{} {name}", input.unwrap_or_default());
        ScriptedAnswer::saying(text).usage(TokenUsage::new(7, 2))
    })
}

/// Has a run of `shaky` failed?
async fn has_failed(log: &dyn EventLog) -> Result<bool, Failed> {
    for run in log.runs(RunFilter::new().agent("shaky")).await? {
        let (_, events) = read_events(log, &run.run).await?;
        if events.iter().any(|event| matches!(event.kind, EventKind::ModelFailed(_))) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs the workflow, or resumes it.
pub(crate) async fn act(
    database: Kept,
    log: Deadly,
    effects: Effects,
    run: RunId,
    resumes: bool,
) -> Result<Stop, Failed> {
    let fails = AtomicBool::new(!has_failed(&*log.log).await?);
    let (log, never) = (Arc::new(log), Arc::<AtomicBool>::default);
    let shaky = ScriptedProvider::from_fn(move |_| match fails.swap(false, Ordering::SeqCst) {
        true => ScriptedAnswer::failing(ErrorKind::AuthFailed),
        false => ScriptedAnswer::saying("steady").usage(TokenUsage::new(1, 1)),
    });
    let chooser =
        ScriptedProvider::from_fn(|_| ScriptedAnswer::saying("payer").usage(TokenUsage::new(1, 1)));
    let fixer = agent("fixer", calling(&[("charge_blindly", "")], never()), &log, &effects);
    let payer = agent("payer", calling(&[("wipe", "")], never()), &log, &effects);
    let plain = [("clerk", saying("clerk")), ("scout", saying("scout"))];
    let plain = plain.into_iter().chain([("shaky", shaky), ("chooser", chooser)]);
    let mut orchestrator = LocalOrchestrator::builder()
        .operator(fixer.tool(crate::charge_blindly).build()?)
        .operator(payer.tool(crate::wipe).build()?);
    for (name, model) in plain {
        orchestrator = orchestrator.operator(agent(name, model, &log, &effects).build()?);
    }
    let workflows: [Arc<dyn Operator>; 5] = [
        Arc::new(Parallel::new("gather", ["fixer", "clerk"])),
        Arc::new(Map::new("each", "scout").limit(2)),
        Arc::new(Supervise::new("watch", "shaky", Restart::Transient)),
        Arc::new(Route::with("desk", "chooser", ["payer", "clerk"])),
        Arc::new(Sequence::new("flow", ["gather", "each", "watch", "desk"])),
    ];
    for workflow in workflows {
        let log = Arc::clone(&log) as Arc<dyn EventLog>;
        orchestrator = orchestrator.operator(Workflow::from_arc(workflow, log));
    }
    let orchestrator = orchestrator.build()?;
    let answer = match resumes {
        true => orchestrator.resume("flow", run).await?,
        false => {
            let mut context = Context::root();
            context.run = Some(run);
            orchestrator.dispatch("flow", Task::text("go"), context).await?
        }
    };
    database.close().await;
    Ok(answer.stop)
}
