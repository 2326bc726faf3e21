//! Resolution of typed ids: an id in full, a prefix of exactly one id, or `last`.

use crate::store::AnyDatabase;
use backstop_error_store::{ErrorFilter, ResultFilter};
use backstop_event_log::{OpenApproval, RunFilter, is_segment, parse_segment};
use layer0::id::{ErrorId, ResultId, RunId};

use crate::exit::CliError;
use crate::store::{self, Chosen};

/// Word for the newest id.
const LAST: &str = "last";
/// Number of candidates that an error names.
const NAMED: u32 = 5;

/// Opens the store to find a run in it.
pub(crate) async fn find_run(chosen: &Chosen, typed: &str) -> Result<RunId, CliError> {
    match store::open_read_only(chosen).await? {
        Some(database) => {
            let found = run(&database, typed).await;
            database.close().await;
            found
        }
        None => Err(CliError::no_run(typed.into())),
    }
}

/// Finds the records for a typed id: a run, the segments of a subscription in their order (`sub_NAME`), or one segment
/// (`sub_NAME.NUMBER`).
pub(crate) async fn records(database: &AnyDatabase, typed: &str) -> Result<Vec<RunId>, CliError> {
    match is_segment(&typed.into()) {
        true => segments(database, typed).await,
        false => Ok(vec![run(database, typed).await?]),
    }
}

/// Returns the only record, or an error if there are several.
pub(crate) fn one<'r>(typed: &str, records: &'r [RunId]) -> Result<&'r RunId, CliError> {
    match records {
        [one] => Ok(one),
        _ => {
            let newest = records.last().map(|newest| format!(", the newest is `{newest}`"));
            let what = format!("`{typed}` has {} segments", records.len());
            let hint = format!("name one of them{}", newest.unwrap_or_default());
            Err(CliError::usage(what).with_hint(hint))
        }
    }
}

/// Finds all segments of a subscription, or the named one.
async fn segments(database: &AnyDatabase, typed: &str) -> Result<Vec<RunId>, CliError> {
    let log = database.log();
    let subscriptions = log.subscriptions().await?;
    let is_known = |name: &str| subscriptions.iter().any(|known| &*known.name == name);
    let segment = RunId::new(typed);
    if parse_segment(&segment).is_some_and(|(name, _)| is_known(name))
        && log.kept_summary(&segment).await?.is_some()
    {
        return Ok(vec![segment]);
    }
    let names = || subscriptions.iter().map(|known| format!("sub_{}", known.name));
    let begin = match names().find(|name| name == typed) {
        Some(exact) => vec![exact],
        None => names().filter(|name| name.starts_with(typed)).collect(),
    };
    let chosen = IdKind::SUBSCRIPTION.choose(typed, begin, Vec::new())?;
    let filter = RunFilter::new().segments().id_prefix(format!("{chosen}."));
    let mut segments: Vec<(u64, RunId)> = Vec::new();
    for summary in log.runs(filter).await? {
        match parse_segment(&summary.run) {
            Some((name, number)) if chosen.strip_prefix("sub_") == Some(name) => {
                segments.push((number, summary.run.clone()));
            }
            _ => {}
        }
    }
    segments.sort();
    Ok(segments.into_iter().map(|(_, segment)| segment).collect())
}

/// Finds a run.
pub(crate) async fn run(database: &AnyDatabase, typed: &str) -> Result<RunId, CliError> {
    if is_segment(&typed.into()) {
        let what = format!("`{typed}` names the record of a subscription, which is no run");
        return Err(CliError::usage(what).with_hint(
            "`backstop trace`, `verify` and `export` take it; `backstop behaviors list` lists subscriptions",
        ));
    }
    let log = database.log();
    if typed != LAST && log.kept_summary(&typed.into()).await.is_ok_and(|found| found.is_some()) {
        return Ok(typed.into());
    }
    let list = async |filter: RunFilter| {
        let runs = log.runs(filter.limit(NAMED + 1)).await?;
        Ok::<_, CliError>(runs.into_iter().map(|run| run.run.to_string()).collect::<Vec<_>>())
    };
    // `last` is the newest run that no other run dispatched.
    let begin = match typed {
        LAST => list(RunFilter::new().roots()).await?,
        typed => list(RunFilter::new().id_prefix(typed)).await?,
    };
    if begin.is_empty()
        && typed != LAST
        && let Some(queued) = database.find_queued(typed).await?
    {
        let hint = format!(
            "`backstop queue list` shows it; `backstop queue cancel {queued}` takes it out of the queue"
        );
        return Err(CliError::usage(format!("run `{queued}` is queued: no worker has started it"))
            .with_hint(hint));
    }
    let newest = if begin.is_empty() { list(RunFilter::new()).await? } else { Vec::new() };
    IdKind::RUN.choose(typed, begin, newest).map(Into::into)
}

/// Finds a stored error.
pub(crate) async fn error(database: &AnyDatabase, typed: &str) -> Result<ErrorId, CliError> {
    let errors = database.errors();
    let found = errors.find(&typed.into()).await?;
    if found.is_expired() || found.into_item().is_some() {
        return Ok(typed.into());
    }
    let list = async |filter: ErrorFilter| {
        let errors = errors.list(filter.limit(NAMED + 1)).await?;
        Ok::<_, CliError>(errors.iter().map(|error| error.id().to_string()).collect::<Vec<_>>())
    };
    let begin = match typed {
        LAST => list(ErrorFilter::new()).await?,
        typed => list(ErrorFilter::new().id_prefix(typed)).await?,
    };
    let newest = if begin.is_empty() { list(ErrorFilter::new()).await? } else { Vec::new() };
    IdKind::ERROR.choose(typed, begin, newest).map(Into::into)
}

/// Finds a stored result.
pub(crate) async fn result(database: &AnyDatabase, typed: &str) -> Result<ResultId, CliError> {
    let results = database.results();
    let found = results.find(&typed.into()).await?;
    if found.is_expired() || found.into_item().is_some() {
        return Ok(typed.into());
    }
    let list = async |filter: ResultFilter| {
        let results = results.list(filter.limit(NAMED + 1)).await?;
        Ok::<_, CliError>(results.iter().map(|result| result.id.to_string()).collect::<Vec<_>>())
    };
    let begin = match typed {
        LAST => list(ResultFilter::new()).await?,
        typed => list(ResultFilter::new().id_prefix(typed)).await?,
    };
    let newest = if begin.is_empty() { list(ResultFilter::new()).await? } else { Vec::new() };
    IdKind::RESULT.choose(typed, begin, newest).map(Into::into)
}

/// Finds an approval among the open ones, which are ordered from the oldest.
pub(crate) fn approval(open: Vec<OpenApproval>, typed: &str) -> Result<OpenApproval, CliError> {
    let exact = open.iter().position(|open| open.id.as_str() == typed);
    let newest = || open.iter().rev().map(|open| open.id.to_string());
    let begin = match (exact, typed) {
        (Some(_), typed) => vec![typed.to_owned()],
        (None, LAST) => newest().collect(),
        (None, typed) => newest().filter(|id| id.starts_with(typed)).collect(),
    };
    let id = IdKind::APPROVAL.choose(typed, begin, newest().collect())?;
    open.into_iter()
        .find(|open| open.id.as_str() == id)
        .ok_or_else(|| CliError::usage(IdKind::APPROVAL.missing(typed)))
}

/// Refuses `last` if several approvals are open, because no terminal shows which one is meant.
pub(crate) fn check_approval(open: &[OpenApproval], typed: &str) -> Result<(), CliError> {
    if typed != LAST || open.len() < 2 {
        return Ok(());
    }
    let ids: Vec<String> = open.iter().rev().map(|open| open.id.to_string()).collect();
    Err(CliError::usage(format!("{} approvals are open", open.len()))
        .with_hint(format!("name the one that was seen: {}", join_ids(&ids))))
}

/// The kind of the target of an id.
struct IdKind {
    /// Beginning of the error for an unknown id.
    none: &'static str,
    one: &'static str,
    many: &'static str,
    /// Hint that names the command with the list.
    hint: &'static str,
}

impl IdKind {
    const APPROVAL: Self = Self {
        none: "no open approval",
        one: "approval",
        many: "approvals",
        hint: "`backstop approvals` lists what is open; an approval is decided once",
    };
    const ERROR: Self = Self {
        none: "no error",
        one: "error",
        many: "errors",
        hint: "`backstop errors list` lists the errors of the store",
    };
    const RESULT: Self = Self {
        none: "no result",
        one: "result",
        many: "results",
        hint: "`backstop results list` lists the results of the store",
    };
    const RUN: Self = Self {
        none: "no run",
        one: "run",
        many: "runs",
        hint: "`backstop runs` lists the runs of the store",
    };
    const SUBSCRIPTION: Self = Self {
        none: "no subscription",
        one: "subscription",
        many: "subscriptions",
        hint: "`backstop behaviors list` lists the subscriptions of the store",
    };

    fn missing(&self, typed: &str) -> String {
        format!("{} `{typed}`", self.none)
    }

    /// Chooses the id from those that begin as typed, newest first. If there is none, the error names `newest`.
    fn choose(
        &self,
        typed: &str,
        mut begin: Vec<String>,
        newest: Vec<String>,
    ) -> Result<String, CliError> {
        match begin.len() {
            1 => Ok(begin.remove(0)),
            2.. if typed == LAST => Ok(begin.remove(0)),
            0 if newest.is_empty() || typed == LAST => {
                Err(CliError::usage(self.missing(typed)).with_hint(self.hint))
            }
            0 => Err(CliError::usage(self.missing(typed)).with_hint(format!(
                "the newest {} {}: {}; {}",
                if newest.len() == 1 { self.one } else { self.many },
                if newest.len() == 1 { "is" } else { "are" },
                join_ids(&newest),
                self.hint
            ))),
            _ => Err(CliError::usage(format!("`{typed}` is not one {} but several", self.one))
                .with_hint(format!("{} that begin so: {}", self.many, join_ids(&begin)))),
        }
    }
}

/// Joins some of the ids, with an ellipsis if there are more.
fn join_ids(ids: &[String]) -> String {
    let most = usize::try_from(NAMED).unwrap_or(usize::MAX);
    let more = if ids.len() > most { ", …" } else { "" };
    let ids: Vec<&str> = ids.iter().take(most).map(String::as_str).collect();
    format!("{}{more}", ids.join(", "))
}
