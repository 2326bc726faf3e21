//! `backstop behaviors`

use std::process::ExitCode;

use crate::store::AnyDatabase;
use backstop_behaviors::{FailedDelivery, RedeliverError, newest_failures};
use backstop_event_log::{Cursor, EventLog, LogError, Record, Subscription, segment_id};
use layer0::event::EventKind;
use serde::Serialize;
use serde_json::json;

use crate::args::{
    BehaviorsArgs, BehaviorsCommand, BehaviorsFailuresArgs, BehaviorsListArgs,
    BehaviorsRedeliverArgs,
};
use crate::assemble::fetch_credentials;
use crate::behaviors::{host, read_behaviors};
use crate::exit::{self, CliError};
use crate::output::{format_count, style::BAD};
use crate::{agent_file, output, store};

pub(crate) async fn run(args: BehaviorsArgs) -> Result<ExitCode, CliError> {
    match args.command {
        BehaviorsCommand::List(args) => list(args).await,
        BehaviorsCommand::Failures(args) => failures(args).await,
        BehaviorsCommand::Redeliver(args) => redeliver(args).await,
    }
}

/// A subscription, for the list.
#[derive(Serialize)]
struct ListedSubscription {
    name: String,
    pattern: String,
    segment: String,
    cursor: Cursor,
    /// Number of ended deliveries in its newest segment.
    delivered: usize,
    failed: usize,
}

impl ListedSubscription {
    async fn read(log: &dyn EventLog, subscription: Subscription) -> Result<Self, LogError> {
        let segment = segment_id(&subscription.name, subscription.segment);
        let records = log.records(&segment, 1).await?;
        let ends = records.iter().filter_map(read_end);
        let (completed, failed): (Vec<_>, Vec<_>) =
            ends.partition(|end| *end == DeliveryEnd::Completed);
        let refused = failed.iter().filter(|end| **end == DeliveryEnd::Refused).count();
        Ok(Self {
            name: subscription.name.to_string(),
            pattern: subscription.pattern.to_string(),
            segment: segment.to_string(),
            cursor: subscription.cursor,
            delivered: completed.len() + failed.len() - refused,
            failed: failed.len(),
        })
    }
}

/// The end of a delivery.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeliveryEnd {
    Completed,
    Failed,
    /// The behaviour was not called.
    Refused,
}

fn read_end(record: &Record) -> Option<DeliveryEnd> {
    match EventKind::decode(&record.event_type, record.payload.text()?).ok()? {
        EventKind::BehaviorCompleted(_) => Some(DeliveryEnd::Completed),
        EventKind::BehaviorFailed(failed) if failed.attempts == 0 => Some(DeliveryEnd::Refused),
        EventKind::BehaviorFailed(_) => Some(DeliveryEnd::Failed),
        _ => None,
    }
}

async fn list(args: BehaviorsListArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let listed = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let listed = all(&database).await;
            database.close().await;
            listed?
        }
        None => Vec::new(),
    };
    if args.json {
        listed.iter().try_for_each(output::json)?;
    } else if listed.is_empty() {
        output::note(&format!("no subscriptions in {}", chosen.describe()));
    } else {
        let rows: Vec<Vec<String>> = listed.into_iter().map(row).collect();
        let header = ["NAME", "SEGMENT", "CURSOR", "DELIVERED", "FAILED", "PATTERN"];
        output::table(&header, &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn all(database: &AnyDatabase) -> Result<Vec<ListedSubscription>, LogError> {
    let log = database.log();
    let mut listed = Vec::new();
    for subscription in log.subscriptions().await? {
        listed.push(ListedSubscription::read(&*log, subscription).await?);
    }
    Ok(listed)
}

fn row(listed: ListedSubscription) -> Vec<String> {
    let ListedSubscription { name, pattern, segment, cursor, delivered, failed } = listed;
    let numbers = [cursor.to_string(), delivered.to_string(), failed.to_string()];
    [name, segment].into_iter().chain(numbers).chain([pattern]).collect()
}

async fn failures(args: BehaviorsFailuresArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let failed = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
            let failed = newest_failures(&*database.log(), limit).await;
            database.close().await;
            failed?
        }
        None => Vec::new(),
    };
    if args.json {
        failed.iter().try_for_each(output::json)?;
    } else if failed.is_empty() {
        output::note(&format!("no delivery failed in {}", chosen.describe()));
    } else {
        for FailedDelivery { id, at, failed, .. } in &failed {
            let attempts = format_count(failed.attempts.into(), "attempt");
            output::line(&format!("{id}  {at}, {attempts}: {}", failed.reason))?;
            output::lines(&format!("  {}", failed.message))?;
        }
        output::note("deliver one again with `backstop behaviors redeliver ID --agent FILE`");
    }
    Ok(ExitCode::SUCCESS)
}

async fn redeliver(args: BehaviorsRedeliverArgs) -> Result<ExitCode, CliError> {
    let mut file = agent_file::read(&args.agent)?;
    fetch_credentials(&mut file, &args.agent).await?;
    let url = file.store.url.as_deref().map(|url| (url, args.agent.as_path()));
    let chosen = store::choose(&args.store, url)?;
    let behaviors = read_behaviors(&file, &args.agent)?;
    let Some(database) = store::open_existing(&chosen).await? else {
        return Err(explain_error(RedeliverError::NotFound(args.id)));
    };
    let redelivered = match host(&database, behaviors) {
        Ok(host) => host.redeliver(&args.id).await.map_err(explain_error),
        Err(error) => Err(error),
    };
    database.close().await;
    let redelivered = redelivered?;
    let (id, attempts) = (args.id, redelivered.attempts);
    let failed = redelivered.result.err();
    if redelivered.was_completed && !args.json {
        output::note(&format!("an earlier delivery of {id} had completed"));
    }
    if args.json {
        let (reason, message) = (
            failed.as_ref().map(|error| error.facts().code),
            failed.as_ref().map(|error| error.message()),
        );
        let mut report = json!({
            "id": id, "ok": failed.is_none(), "attempts": attempts, "reason": reason,
            "message": message,
        });
        if redelivered.was_completed {
            report["was_completed"] = true.into();
        }
        output::json(&report)?;
    } else if let Some(error) = &failed {
        let what = format!("{}: {}", error.facts().code, error.message());
        output::alert_styled(BAD, "error: ", &what);
        if let Some(hint) = error.hint() {
            output::alert(&format!("  hint: {hint}"));
        }
    } else {
        output::line(&format!("{id} delivered in {}", format_count(attempts.into(), "attempt")))?;
    }
    Ok(match failed {
        Some(_) => ExitCode::from(exit::FAILED),
        None => ExitCode::SUCCESS,
    })
}

/// Returns the error of a repeated delivery.
fn explain_error(error: RedeliverError) -> CliError {
    match error {
        RedeliverError::Log(error @ LogError::Claimed(_)) => CliError::from(error).with_hint(
            "another process serves the subscription: stop that `backstop watch` or wait for that run first",
        ),
        RedeliverError::Log(error) => error.into(),
        RedeliverError::UnknownBehavior(name) => {
            CliError::usage(format!("the agent file has no behaviour `{name}`"))
                .with_hint("name the file that has it with --agent FILE")
        }
        error => CliError::refused(error)
            .with_hint("`backstop behaviors failures` lists deliveries that failed"),
    }
}
