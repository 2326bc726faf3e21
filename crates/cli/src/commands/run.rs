//! `backstop run`

use std::process::ExitCode;

use backstop_config::AgentFile;
use backstop_react::{AgentBuilder, RunRequest};
use backstop_store_sqlite::Database;

use crate::args::RunArgs;
use crate::assemble;
use crate::conclude::Ending;
use crate::exit::CliError;
use crate::progress::{self, Results};
use crate::prompt::Prompt;
use crate::signals;
use crate::store;

pub(crate) async fn run(args: RunArgs) -> Result<ExitCode, CliError> {
    let file = AgentFile::read(&args.agent)?;
    let input = match args.text {
        Some(text) => text,
        None => assemble::input(args.input.as_deref(), &file, &args.agent)?,
    };
    let images = args.images.iter().map(|path| assemble::image(path));
    let images = images.collect::<Result<Vec<_>, _>>()?;
    let folder = assemble::folder_of(&args.agent);
    let chosen = store::choose(&args.store, file.store.url.as_deref().map(|url| (url, folder)))?;
    // Everything is checked before a store is opened, so that a mistake leaves no file.
    let agent = assemble::agent(&file, &args.agent)?;
    assemble::build(agent.clone(), &args.agent)?;
    let database = store::open(&chosen, &file.store).await?;
    let agent = assemble::build(equipped(agent, &database), &args.agent)?;

    let mut request = RunRequest::new(input).images(images);
    request.session = args.session.map(Into::into);
    request.labels = args.labels.into_iter().collect();
    let request = request.cancelled_by(signals::interrupt());
    let results = match (args.json, args.events) {
        (true, _) => Results::None,
        (_, true) => Results::Events,
        _ => Results::Answer,
    };
    let seen = progress::show_run(agent.stream(request), results).await;
    let ending = Ending {
        database: &database,
        chosen: &chosen,
        json: args.json || args.events,
        agent: Some(&args.agent),
    };
    ending.conclude(seen).await
}

/// Gives an agent its log, its stores, and the person at the terminal.
pub(crate) fn equipped(agent: AgentBuilder, database: &Database) -> AgentBuilder {
    let agent = agent.store(database);
    match Prompt::at_terminal() {
        Some(prompt) => agent.approver(prompt),
        None => agent,
    }
}
