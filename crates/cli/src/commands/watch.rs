//! `backstop watch`

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::store::AnyDatabase;
use backstop_behaviors::Behavior;
use backstop_clock::{Clock, SystemClock};
use backstop_config::AgentFile;
use backstop_event_log::{Cursor, EventFilter, FeedRecord, Subscription, follow, parse_segment};
use layer0::event::EventKind;
use layer0::id::RunId;

use crate::args::WatchArgs;
use crate::assemble::fetch_credentials;
use crate::behaviors::{host, read_behaviors};
use crate::exit::CliError;
use crate::output::style::BAD;
use crate::output::{self, note};
use crate::{several, signals, store};

/// Delay before the next read of a log after a failure.
const AGAIN: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: WatchArgs) -> Result<ExitCode, CliError> {
    let mut files = several::read(&args.agents)?;
    check(&files)?;
    for (path, file) in &mut files {
        fetch_credentials(file, path).await?;
    }
    let chosen = several::choose_kept(&args.store, &files)?;
    let mut behaviors = Vec::new();
    for (path, file) in &files {
        behaviors.extend(read_behaviors(file, path)?);
    }
    let table = several::store_table(&files)?;
    let database = store::open(&chosen, &table).await?;
    let served = serve(&database, behaviors, args.json).await;
    database.close().await;
    served.map(|()| ExitCode::SUCCESS)
}

/// Refuses files whose behaviours have the same name, and files without any.
fn check(files: &[(&Path, AgentFile)]) -> Result<(), CliError> {
    let mut named: BTreeMap<&str, &Path> = BTreeMap::new();
    for (path, file) in files {
        for behavior in &file.behaviors {
            if let Some(other) = named.insert(behavior.name(), path) {
                let (name, one, other) = (behavior.name(), other.display(), path.display());
                let what = format!("behaviour `{name}` stands in {one} and in {other}");
                return Err(CliError::usage(what).with_hint("give one of them another name"));
            }
        }
    }
    if named.is_empty() {
        let paths: Vec<String> = files.iter().map(|(path, _)| path.display().to_string()).collect();
        let what = format!("there is no behaviour in {}", paths.join(" or "));
        return Err(CliError::usage(what)
            .with_hint("add one: `[[behavior]]` with `name`, `on`, and `command` or `url`"));
    }
    Ok(())
}

/// Serves behaviours until a stop is requested.
async fn serve(
    database: &AnyDatabase,
    behaviors: Vec<Arc<dyn Behavior>>,
    json: bool,
) -> Result<(), CliError> {
    let mut told = std::pin::pin!(signals::told_to_stop());
    let log = database.log();
    let names: Vec<String> = behaviors.iter().map(|behavior| behavior.name().to_owned()).collect();
    let filter = EventFilter::new().event_type("behavior.*");
    let mut feed = follow(log.clone(), filter, Cursor::now()).await?;
    let serving = host(database, behaviors)?.serve();
    let waiting = tokio::select! {
        _ = &mut told => return Ok(()),
        waiting = serving.wait_for_claims() => waiting,
    };
    for name in &names {
        let is_waiting = waiting.iter().any(|waiting| **waiting == **name);
        note(&describe_start(name, log.subscription(name).await?.as_ref(), is_waiting));
    }
    note("Ctrl-C stops; what is not delivered then is delivered when they are served again");
    let mut ends = Ends { names, json, delivered: HashMap::new() };
    let ended = loop {
        let next = tokio::select! {
            biased;
            _ = &mut told => break Ok(()),
            next = feed.next() => next,
        };
        match next {
            Ok(next) => {
                if let Err(error) = ends.take(&next) {
                    break Err(error);
                }
            }
            Err(error) if error.is_retryable() => SystemClock.sleep(AGAIN).await,
            Err(error) => break Err(error.into()),
        }
    };
    serving.stop().await;
    ended
}

/// Returns the note on the place from which a subscription is served.
fn describe_start(name: &str, stands: Option<&Subscription>, is_waiting: bool) -> String {
    match stands {
        _ if is_waiting => format!("waits for `{name}`: another process serves it"),
        None => format!("serves `{name}`"),
        Some(stands) => {
            let from = match stands.cursor.number() {
                None | Some(0) => "from the start".to_owned(),
                Some(number) => format!("behind event {number} of the store"),
            };
            format!("serves `{name}` {from}: {}", stands.pattern)
        }
    }
}

/// A printer for the ends of deliveries.
struct Ends {
    names: Vec<String>,
    json: bool,
    /// Types of the events whose delivery has begun.
    delivered: HashMap<(RunId, RunId, u64), String>,
}

impl Ends {
    fn take(&mut self, next: &FeedRecord) -> Result<(), CliError> {
        let FeedRecord { run: segment, record, .. } = next;
        let name = parse_segment(segment).map(|(name, _)| name);
        if !name.is_some_and(|name| self.names.iter().any(|served| served == name)) {
            return Ok(());
        }
        // An event of a later version cannot be read.
        let Ok(event) = record.decode(segment) else { return Ok(()) };
        match &event.kind {
            EventKind::BehaviorDelivered(of) => {
                let key = (segment.clone(), of.run.clone(), of.seq);
                self.delivered.insert(key, of.event.to_string());
                return Ok(());
            }
            EventKind::BehaviorCompleted(of) => {
                let what = self.what(segment, &of.run, of.seq);
                note(&format!("{} {} {what} ok", record.at, of.behavior));
            }
            EventKind::BehaviorFailed(of) => {
                let what = self.what(segment, &of.run, of.seq);
                let (at, reason, message) = (record.at, &of.reason, &of.message);
                output::note_styled(
                    BAD,
                    &format!("{at} {} {what} {reason}: {message}", of.behavior),
                );
            }
            _ => return Ok(()),
        }
        if self.json {
            let line = record.envelope(segment);
            output::json_line(&line.map_err(|error| CliError::internal("printing", error))?)?;
        }
        Ok(())
    }

    /// Returns the description of an event: its run, its number, and its type if known.
    fn what(&mut self, segment: &RunId, run: &RunId, seq: u64) -> String {
        match self.delivered.remove(&(segment.clone(), run.clone(), seq)) {
            Some(event) => format!("{run} {seq} {event}"),
            None => format!("{run} {seq}"),
        }
    }
}
