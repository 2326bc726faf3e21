//! `backstop trace --follow`

use std::collections::BTreeMap;
use std::process::ExitCode;

use crate::store::AnyDatabase;
use backstop_event_log::{EventLog, FeedRecord, LogError, RunSummary, Verifier};
use layer0::id::RunId;

use super::printer::{EventPrinter, decode_event};
use super::tree::Tree;
use crate::args::TraceArgs;
use crate::exit::CliError;
use crate::signals;

/// Prints the recorded events of a run and its child runs, then new events as they are appended, until the run is over
/// or a stop is requested. A run that waits for a person, or has no process, is still followed.
pub(super) async fn follow(
    database: &AnyDatabase,
    run: &RunId,
    args: &TraceArgs,
) -> Result<ExitCode, CliError> {
    let log = database.log();
    let mut watch = log.watch_events();
    let mut tree = Tree::new(&*log, run);
    let mut printer = EventPrinter::new(run, args);
    let mut followed = BTreeMap::from([(run.clone(), FollowedRun::new(&*log, run).await?)]);
    let mut told = std::pin::pin!(signals::told_to_stop());
    let mut is_over = false;
    while !is_over {
        tokio::select! {
            biased;
            code = &mut told => return Ok(ExitCode::from(code)),
            () = watch.wait_for_change() => {}
        }
        let read = tree.read().await?;
        for next in read.iter().filter(|next| !args.is_alone() || next.run == *run) {
            if !followed.contains_key(&next.run) {
                followed.insert(next.run.clone(), FollowedRun::new(&*log, &next.run).await?);
            }
            let Some(of_run) = followed.get_mut(&next.run) else { continue };
            of_run.verifier.take(&next.record)?;
            let event = decode_event(&next.record, &next.run)?;
            printer.print(&next.run, &next.record, event.as_ref())?;
            is_over |= of_run.is_over_with(&*log, next).await? && next.run == *run;
        }
        if read.is_empty() {
            // Returns an error if the run was removed, because then no event follows.
            read_summary(&*log, run).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A run whose events are printed while it runs.
struct FollowedRun<'log> {
    verifier: Verifier<'log>,
    /// The last known summary of the run.
    summary: RunSummary,
}

impl<'log> FollowedRun<'log> {
    async fn new(log: &'log dyn EventLog, run: &RunId) -> Result<Self, CliError> {
        let summary = read_summary(log, run).await?;
        Ok(Self { verifier: Verifier::new(&summary, log.key()), summary })
    }

    /// Returns whether the run ended with an event.
    async fn is_over_with(
        &mut self,
        log: &dyn EventLog,
        next: &FeedRecord,
    ) -> Result<bool, CliError> {
        let seq = next.record.seq;
        if seq > self.summary.last_seq {
            self.summary = read_summary(log, &next.run).await?;
        }
        if seq < self.summary.last_seq || self.summary.is_open() {
            return Ok(false);
        }
        self.verifier.finish(&self.summary)?;
        Ok(true)
    }
}

async fn read_summary(log: &dyn EventLog, run: &RunId) -> Result<RunSummary, CliError> {
    log.summary(run).await?.ok_or_else(|| LogError::NotFound(run.clone()).into())
}
