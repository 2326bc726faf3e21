//! `backstop trace --follow`

use std::process::ExitCode;
use std::sync::Arc;

use backstop_event_log::{
    Cursor, EventFilter, EventLog, EventWatch, FeedRecord, LogError, RunSummary, Verifier,
};
use backstop_store_sqlite::Database;
use layer0::id::RunId;

use super::printer::{Printer, event_of};
use crate::exit::CliError;
use crate::signals;

/// Prints what a run has recorded, and each event as it comes, until the run is over or the process is
/// told to stop. A run that waits for a person, or has no process, is followed on.
pub(super) async fn follow(
    database: &Database,
    run: &RunId,
    is_json: bool,
) -> Result<ExitCode, CliError> {
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let filter = EventFilter::new().run(run.clone());
    let mut removed = log.watch_events();
    let mut feed = backstop_event_log::follow(Arc::clone(&log), filter, Cursor::start()).await?;
    let mut following = Following::new(&*log, run, is_json).await?;
    let mut told = std::pin::pin!(signals::told_to_stop());
    loop {
        let next: FeedRecord = tokio::select! {
            biased;
            code = &mut told => return Ok(ExitCode::from(code)),
            next = feed.next() => next?,
            gone = is_removed(&*log, run, &mut removed) => return Err(gone),
        };
        if following.is_over_with(&next).await? {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// A run that is printed as it goes on.
struct Following<'log> {
    log: &'log dyn EventLog,
    printer: Printer<'log>,
    verifier: Verifier<'log>,
    /// The run, as far as it was known to go.
    summary: RunSummary,
}

impl<'log> Following<'log> {
    async fn new(
        log: &'log dyn EventLog,
        run: &'log RunId,
        is_json: bool,
    ) -> Result<Self, CliError> {
        let summary = summary_of(log, run).await?;
        let verifier = Verifier::new(&summary, log.key());
        Ok(Self { log, printer: Printer::new(run, is_json), verifier, summary })
    }

    /// Prints an event; says whether the run ended with it.
    async fn is_over_with(&mut self, next: &FeedRecord) -> Result<bool, CliError> {
        self.verifier.take(&next.record)?;
        let event = event_of(&next.record, &next.run)?;
        self.printer.print(&next.record, event.as_ref())?;
        let seq = next.record.seq;
        if seq > self.summary.last_seq {
            self.summary = summary_of(self.log, &next.run).await?;
        }
        if seq < self.summary.last_seq || self.summary.is_open() {
            return Ok(false);
        }
        self.verifier.finish(&self.summary)?;
        Ok(true)
    }
}

async fn summary_of(log: &dyn EventLog, run: &RunId) -> Result<RunSummary, CliError> {
    log.summary(run).await?.ok_or_else(|| LogError::NotFound(run.clone()).into())
}

/// Waits until a run is no longer there: nothing more comes of it.
async fn is_removed(log: &dyn EventLog, run: &RunId, changes: &mut EventWatch) -> CliError {
    loop {
        changes.changed().await;
        match log.summary(run).await {
            Ok(None) => return LogError::NotFound(run.clone()).into(),
            Ok(Some(_)) => {}
            Err(error) => return error.into(),
        }
    }
}
