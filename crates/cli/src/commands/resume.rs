//! `backstop resume`

use std::process::ExitCode;

use event_log::{EventLog, LogError};
use layer0::id::RunId;
use react::ResumeRequest;

use crate::args::ResumeArgs;
use crate::commands::run::{conclude_resumed, equipped};
use crate::exit::CliError;
use crate::progress;
use crate::prompt::user;
use crate::recorded::Recorded;
use crate::signals;
use crate::store::{self, Chosen};

pub(crate) async fn run(args: ResumeArgs) -> Result<ExitCode, CliError> {
    let run = RunId::from(args.run);
    let chosen = store::choose(&args.store, None)?;
    if let Some(exit) = over(&chosen, &run, args.json).await? {
        return Ok(exit);
    }
    let (recorded, database) = Recorded::open(&chosen, &run, args.agent.as_deref()).await?;
    let agent = recorded.build(equipped(recorded.agent(usize::MAX)?, &database))?;
    let mut request = ResumeRequest::new(run).by(user()).cancelled_by(signals::interrupt());
    if args.agent.is_some() {
        request = request.allow_other_agent();
    }
    let shown = tokio::spawn(progress::show(agent.subscribe()));
    let result = agent.resume(request).await;
    drop(agent);
    let _ = shown.await;
    conclude_resumed(&database, result, args.json, &chosen).await
}

/// Reports a run that is over; that needs neither its agent nor the right to write.
async fn over(chosen: &Chosen, run: &RunId, json: bool) -> Result<Option<ExitCode>, CliError> {
    let missing = || LogError::NotFound(run.clone());
    let database = store::open_read_only(chosen).await?.ok_or_else(missing)?;
    let is_open = database.log().summary(run).await.map(|summary| summary.map(|run| run.is_open()));
    let result = match is_open {
        Ok(Some(false)) => react::recorded(&database.log(), run).await,
        Ok(Some(true)) => Ok(None),
        Ok(None) => Err(missing().into()),
        Err(error) => Err(error.into()),
    };
    match result.transpose() {
        Some(result) => conclude_resumed(&database, result, json, chosen).await.map(Some),
        None => {
            database.close().await;
            Ok(None)
        }
    }
}
