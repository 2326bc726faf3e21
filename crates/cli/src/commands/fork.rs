//! `backstop fork`

use std::process::ExitCode;

use backstop_config::ProviderName;
use backstop_react::{ForkRequest, RecordedTools, Source};

use crate::advice::Advice;
use crate::args::{ForkArgs, ForkTools};
use crate::behaviors::{Behaviors, read_behaviors};
use crate::commands::resume::sum;
use crate::commands::run::equip_agent;
use crate::conclude::ReportContext;
use crate::exit::CliError;
use crate::ids;
use crate::output;
use crate::progress::{self, PrintedResult, Results};
use crate::prompt::user;
use crate::recorded::RecordedAgentFile;
use crate::signals;
use crate::store;

pub(crate) async fn run(args: ForkArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let run = ids::find_run(&chosen, &args.run).await?;
    let (mut recorded, from) =
        RecordedAgentFile::open(&chosen, &run, args.agent.as_deref(), Some(args.at)).await?;
    if args.model.is_some() {
        if recorded.file.model.provider == ProviderName::Script {
            from.close().await;
            return Err(CliError::usage("--model: the answers of the agent come from a script")
                .with_hint("name a file with another model: --agent FILE"));
        }
        let model = &mut recorded.file.model;
        model.model = args.model;
        let before = model.pool.len() + model.fallback.len();
        model.pool.retain(|endpoint| endpoint.model.is_none());
        model.fallback.clear();
        let left = before - model.pool.len();
        if left > 0 {
            let left = u64::try_from(left).unwrap_or(u64::MAX);
            let left = output::format_count(left, "other model");
            output::note(&format!("--model leaves out {left} of the agent's pool and fallbacks"));
        }
    }
    let until = usize::try_from(args.at).unwrap_or(usize::MAX);
    if args.at == 0 || until > recorded.events.len() {
        let last = recorded.events.len();
        from.close().await;
        let what = format!("run `{run}` has no event {}, its last one is {last}", args.at);
        return Err(CliError::usage(what).with_hint("`backstop trace` numbers the events of a run"));
    }
    // Problems of the agent are reported before another store is created.
    drop(recorded.agent(&from)?);
    let mut request = ForkRequest::new(run, args.at)
        .by(user())
        .budget(sum(&args.budget))
        .cancelled_by(signals::interrupt());
    if let Some(input) = args.input {
        request = request.input(input);
    }
    let (chosen, database) = match &args.to {
        None => (chosen, from.clone()),
        Some(url) => {
            let to = store::choose_from_flag(url, "--to")?;
            let database = store::open(&to, &recorded.file.store).await?;
            request = request.from(Source::from_store(&from));
            (to, database)
        }
    };
    let agent = match args.tools {
        // Recorded answers need no server.
        Some(ForkTools::Recorded) => {
            let agent = recorded.agent(&database)?;
            agent.recorded_tools(RecordedTools::from_events(&recorded.events))
        }
        None => recorded.served_agent(&database).await?,
    };
    let agent = recorded.build(equip_agent(agent, &database))?;
    let behaviors = read_behaviors(&recorded.file, &recorded.path)?;
    let behaviors = Behaviors::serve(behaviors, &database).await?;
    let results = if args.json { Results::None } else { Results::Answer };
    let shown = tokio::spawn(progress::show(agent.subscribe(), results));
    let result = agent.fork(request).await;
    drop(agent);
    let answer = shown.await.ok().flatten();
    if args.to.is_some() {
        from.close().await;
    }
    let advice = Advice::new(&recorded.file, args.agent.as_deref());
    let (database, chosen, json) = (&database, &chosen, args.json);
    let ending = ReportContext { database, chosen, json, advice, behaviors };
    ending.conclude_resumed(PrintedResult { result, answer }).await
}
