//! `backstop resume`

use std::process::ExitCode;

use layer0::id::RunId;
use react::ResumeRequest;

use crate::args::ResumeArgs;
use crate::commands::run::{conclude_resumed, equipped, interrupt};
use crate::exit::CliError;
use crate::progress;
use crate::prompt::user;
use crate::recorded::Recorded;
use crate::store;

pub(crate) async fn run(args: ResumeArgs) -> Result<ExitCode, CliError> {
    let run = RunId::from(args.run);
    let chosen = store::choose(&args.store, None)?;
    let (recorded, database) = Recorded::open(&chosen, &run, args.agent.as_deref()).await?;
    let spinner = progress::spinner();
    let agent =
        recorded.build(equipped(recorded.agent(usize::MAX)?, &database, spinner.clone()))?;
    let mut request = ResumeRequest::new(run).by(user()).cancelled_by(interrupt());
    if args.agent.is_some() {
        request = request.allow_other_agent();
    }
    let shown = tokio::spawn(progress::show(agent.subscribe(), spinner));
    let result = agent.resume(request).await;
    drop(agent);
    let _ = shown.await;
    conclude_resumed(&database, result, args.json, &chosen).await
}
