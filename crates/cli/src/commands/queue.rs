//! `backstop enqueue` and `backstop queue`

use std::process::ExitCode;
use std::time::Duration;

use backstop_config::StoreTable;
use backstop_store_postgres::{Enqueue, Queue, QueueEntry, QueueFilter, QueueState};
use layer0::id::RunId;
use layer0::operator::Task;
use serde_json::json;

use crate::args::{EnqueueArgs, QueueArgs, QueueCancelArgs, QueueCommand, QueueListArgs};
use crate::commands::run::check_labels;
use crate::exit::CliError;
use crate::output::{self, note};
use crate::store::{self, Chosen};
use crate::{agent_file, assemble, secrets, unworked};

/// Time for which appends are retried while the server is unreachable.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn enqueue(args: EnqueueArgs) -> Result<ExitCode, CliError> {
    check_labels(&args.labels)?;
    let file = agent_file::read(&args.agent)?;
    let input = assemble::input(args.input.as_deref(), &file, &args.agent)?;
    let url = file.store.url.as_deref();
    let chosen = store::choose(&args.store, url.map(|url| (url, &*args.agent)))?;
    let redactor = assemble::redactor(&file, &args.agent);
    let names = [("--queue", Some(&args.queue)), ("--session", args.session.as_ref())];
    for (flag, name) in names.into_iter().filter_map(|(flag, name)| Some((flag, name?))) {
        secrets::check_name(&redactor, flag, name)?;
    }
    let input = redactor.redact_held(&input).into_owned();
    let mut request =
        Enqueue::new(assemble::name(&file, &args.agent), Task::text(input)).queue(args.queue);
    request.session = args.session.map(Into::into);
    request.key = args.key.map(|key| secrets::stored_key(&redactor, key));
    request.not_before = args.not_before;
    for name in args.labels.iter().flat_map(|(key, value)| [key, value]) {
        secrets::check_name(&redactor, "--label", name)?;
    }
    request.labels = args.labels.into_iter().collect();
    let database = store::open_shared(&chosen, &file.store, PATIENCE).await?;
    let queue = database.queue();
    let put = queue.enqueue(&request).await;
    if put.as_ref().is_ok_and(|put| put.is_new) {
        // The run stays queued even if the note fails.
        let _ = unworked::note_queued(&queue, &request.queue, &request.agent).await;
    }
    database.close().await;
    let put = put?;
    match args.json {
        true => output::json(&put)?,
        false => output::line(put.run.as_str())?,
    }
    if !put.is_new {
        note("a run with this key and input was queued before");
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn run(args: QueueArgs) -> Result<ExitCode, CliError> {
    match args.command {
        QueueCommand::List(args) => list(args).await,
        QueueCommand::Cancel(args) => cancel(args).await,
    }
}

async fn list(args: QueueListArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let mut filter = QueueFilter::new().limit(usize::try_from(args.limit).unwrap_or(usize::MAX));
    filter.queue = args.queue;
    let listed = with_queue(&chosen, async |queue| {
        Ok((queue.list(&filter).await?, unworked::all(&queue).await?))
    });
    let (entries, unworked) = listed.await?;
    unworked.iter().for_each(|text| note(text));
    if args.json {
        entries.iter().try_for_each(output::json)?;
    } else if entries.is_empty() {
        note("nothing is queued");
    } else {
        let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
        output::table(&["RUN", "QUEUE", "AGENT", "STATE", "QUEUED", "SESSION"], &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(entry: &QueueEntry) -> Vec<String> {
    let state = match (entry.state, &entry.refused) {
        (QueueState::Refused, Some(refusal)) => format!("refused ({})", refusal.code),
        (QueueState::Queued, _) if entry.not_before > entry.queued_at => {
            format!("queued until {}", entry.not_before)
        }
        (state, _) => json!(state).as_str().unwrap_or_default().to_owned(),
    };
    vec![
        entry.run.to_string(),
        entry.queue.clone(),
        entry.agent.clone(),
        state,
        entry.queued_at.to_string(),
        entry.session.to_string(),
    ]
}

async fn cancel(args: QueueCancelArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let flag = chosen.flag();
    with_queue(&chosen, async |queue| {
        let run = find_queued_run(&queue, &args.run).await?;
        if queue.cancel(&run).await? {
            match args.json {
                true => output::json(&json!({"run": run, "cancelled": true}))?,
                false => note(&format!("run {run} was taken out of the queue")),
            }
            return Ok(ExitCode::SUCCESS);
        }
        Err(CliError::usage(format!("run {run} is at work already"))
            .with_hint(format!("cancel it with `backstop cancel {run}{flag}`")))
    })
    .await
}

/// Finds a queued run by its id or a unique prefix.
async fn find_queued_run(queue: &Queue, typed: &str) -> Result<RunId, CliError> {
    let found = queue.find(typed, 2).await?;
    match &found[..] {
        [run] => Ok(run.clone()),
        [run, ..] if run.as_str() == typed => Ok(run.clone()),
        [] => Err(CliError::usage(format!("no queued run is called `{typed}`"))
            .with_hint("`backstop queue list` shows what is queued")),
        _ => Err(CliError::usage(format!("several queued runs begin with `{typed}`"))
            .with_hint("type more of the id; `backstop queue list` shows them")),
    }
}

/// Opens the queue of a store, and closes the store afterwards, also after an error.
async fn with_queue<T>(
    chosen: &Chosen,
    use_it: impl AsyncFnOnce(Queue) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let database = store::open_shared(chosen, &StoreTable::default(), PATIENCE).await?;
    let used = use_it(database.queue()).await;
    database.close().await;
    used
}
