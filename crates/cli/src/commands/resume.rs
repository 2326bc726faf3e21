//! `backstop resume`

use std::process::ExitCode;

use layer0::id::RunId;
use react::{ResumeError, ResumeRequest};

use crate::args::ResumeArgs;
use crate::commands::run::{conclude, interrupt};
use crate::exit::CliError;
use crate::progress;
use crate::prompt::{Prompt, user};
use crate::recorded::Recorded;
use crate::store;

pub(crate) async fn run(args: ResumeArgs) -> Result<ExitCode, CliError> {
    let run = RunId::from(args.run);
    let chosen = store::choose(&args.store, None)?;
    let database = store::open_recorded(&chosen, &run).await?;
    let log = database.log();
    let recorded = Recorded::read(&log, &run, args.agent.as_deref()).await?;
    let agent = recorded.agent(usize::MAX)?.log(log).error_store(database.errors());
    let spinner = progress::spinner();
    let agent = match Prompt::at_terminal(spinner.clone()) {
        Some(prompt) => agent.approver(prompt),
        None => agent,
    };
    let agent = recorded.build(agent.result_store(database.results()))?;
    let mut request = ResumeRequest::new(run).by(user()).cancelled_by(interrupt());
    if args.agent.is_some() {
        request = request.allow_other_agent();
    }
    let shown = tokio::spawn(progress::show(agent.subscribe(), spinner));
    let result = agent.resume(request).await;
    drop(agent);
    let _ = shown.await;
    let result = match result {
        Ok(outcome) => Ok(outcome),
        Err(ResumeError::Run(failure)) => Err(*failure),
        Err(error) => {
            database.close().await;
            return Err(error.into());
        }
    };
    conclude(&database, &result, args.json, &chosen).await
}
