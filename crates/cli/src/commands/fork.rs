//! `backstop fork`

use std::process::ExitCode;

use layer0::id::RunId;
use react::{ForkRequest, Source};

use crate::args::ForkArgs;
use crate::commands::run::{conclude_resumed, equipped};
use crate::exit::CliError;
use crate::progress;
use crate::recorded::Recorded;
use crate::signals;
use crate::store;

pub(crate) async fn run(args: ForkArgs) -> Result<ExitCode, CliError> {
    let run = RunId::from(args.run);
    let chosen = store::choose(&args.store, None)?;
    let (recorded, from) = Recorded::open(&chosen, &run, args.agent.as_deref()).await?;
    let until = usize::try_from(args.at).unwrap_or(usize::MAX);
    if args.at == 0 || until > recorded.events.len() {
        let last = recorded.events.len();
        from.close().await;
        let what = format!("run `{run}` has no event {}, its last one is {last}", args.at);
        return Err(CliError::storage(what));
    }
    let agent = recorded.agent(until)?;
    let mut request = ForkRequest::new(run, args.at).cancelled_by(signals::interrupt());
    if let Some(input) = args.input {
        request = request.input(input);
    }
    let (chosen, database) = match &args.to {
        None => (chosen, from.clone()),
        Some(url) => {
            let to = store::named(url)?;
            let database = store::open(&to, &recorded.file.store).await?;
            request = request.from(Source::of(&from));
            (to, database)
        }
    };
    let agent = recorded.build(equipped(agent, &database))?;
    let shown = tokio::spawn(progress::show(agent.subscribe()));
    let result = agent.fork(request).await;
    drop(agent);
    let _ = shown.await;
    if args.to.is_some() {
        from.close().await;
    }
    conclude_resumed(&database, result, args.json, &chosen).await
}
