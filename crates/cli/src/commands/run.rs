//! `backstop run`

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use backstop_config::AgentFile;
use backstop_event_log::RunState;
use backstop_react::{AgentBuilder, RunRequest};
use layer0::id::{RunId, SessionId};

use crate::advice::Advice;
use crate::agent_file;
use crate::args::{RunArgs, StoreArgs};
use crate::assemble::{self, Servers};
use crate::behaviors::{Behaviors, read_behaviors};
use crate::conclude::ReportContext;
use crate::exit::CliError;
use crate::progress::{self, Results};
use crate::prompt::TerminalApprover;
use crate::store::{self, AnyDatabase, Chosen};
use crate::{output, signals};

pub(crate) async fn run(args: RunArgs) -> Result<ExitCode, CliError> {
    check_labels(&args.labels)?;
    let mut file = agent_file::read(&args.agent)?;
    let input = match args.text {
        Some(text) => text,
        None => assemble::input(args.input.as_deref(), &file, &args.agent)?,
    };
    let images = args.images.iter().map(|path| assemble::image(path));
    let images = images.collect::<Result<Vec<_>, _>>()?;
    assemble::fetch_credentials(&mut file, &args.agent).await?;
    let servers = Servers::connect(&file, &args.agent).await?;
    let chosen = prepare(&file, &args.agent, &servers, &args.store)
        .map_err(|error| agent_file::locate_error(error, &args.agent))?;
    // Checked before a store is created for them.
    let behaviors = read_behaviors(&file, &args.agent)?;
    let database = store::open(&chosen, &file.store).await?;
    let agent = servers.give(assemble::agent(&file, &args.agent, Some(&database))?);
    let agent = assemble::build(equip_agent(agent, &database), &args.agent)?;
    let behaviors = Behaviors::serve(behaviors, &database).await?;

    let mut request = RunRequest::new(input).images(images);
    request.session = args.session.map(Into::into);
    request.labels = args.labels.into_iter().collect();
    let request = request.cancelled_by(signals::interrupt());
    let results = match (args.json, args.events) {
        (true, _) => Results::None,
        (_, true) => Results::Events,
        _ => Results::Answer,
    };
    let interrupted = find_interrupted(&database, request.session.as_ref()).await?;
    let seen = progress::show_run(agent.stream(request), results).await;
    servers.close().await;
    if let Some(run) = interrupted {
        note_if_ended(&database, &run).await?;
    }
    let ending = ReportContext {
        database: &database,
        chosen: &chosen,
        json: args.json || args.events,
        advice: Advice::new(&file, Some(&args.agent)),
        behaviors,
    };
    ending.conclude(seen).await
}

/// Returns the last run of a session, if no end is recorded and it waits for nothing.
async fn find_interrupted(
    database: &AnyDatabase,
    session: Option<&SessionId>,
) -> Result<Option<RunId>, CliError> {
    let Some(session) = session else { return Ok(None) };
    let last = database.log().last_root(session).await?;
    Ok(last.filter(|last| last.state == RunState::Running).map(|last| last.run))
}

/// Prints a note if the next run of the session has ended this one.
async fn note_if_ended(database: &AnyDatabase, run: &RunId) -> Result<(), CliError> {
    let is_ended = database.log().summary(run).await?.is_some_and(|run| !run.is_open());
    if is_ended {
        output::note(&format!(
            "the last run of the session, {run}, was interrupted and is ended now; calls that were open may have acted: {}",
            output::command(&format!("trace {run}"))
        ));
    }
    Ok(())
}

/// Refuses labels with the same key.
pub(super) fn check_labels(labels: &[(String, String)]) -> Result<(), CliError> {
    match find_repeated_key(labels) {
        Some(key) => Err(CliError::usage(format!("--label {key}=… is given more than once"))
            .with_hint("a run has one value for a key; take the others out")),
        None => Ok(()),
    }
}

/// Returns the first repeated key of the labels.
fn find_repeated_key(labels: &[(String, String)]) -> Option<&str> {
    let mut keys = BTreeSet::new();
    labels.iter().map(|(key, _)| key.as_str()).find(|key| !keys.insert(*key))
}

/// Chooses the store of an agent. Everything is checked before a store is opened, so that a mistake creates no file.
pub(crate) fn prepare(
    file: &AgentFile,
    path: &Path,
    servers: &Servers,
    args: &StoreArgs,
) -> Result<Chosen, CliError> {
    let chosen = store::choose(args, file.store.url.as_deref().map(|url| (url, path)))?;
    assemble::build(servers.give(assemble::agent(file, path, None)?), path)?;
    Ok(chosen)
}

/// Adds the log, the stores and the approver at the terminal to an agent.
pub(crate) fn equip_agent(agent: AgentBuilder, database: &AnyDatabase) -> AgentBuilder {
    let agent = agent.store(database);
    match TerminalApprover::at_terminal() {
        Some(prompt) => agent.approver(prompt),
        None => agent,
    }
}
