//! Whole runs, verified against their hash chains.

use layer0::event::Event;
use layer0::id::RunId;

use crate::chain::verify;
use crate::{EventLog, LogError, Record, RunSummary};

/// Reads a whole run, verified against its hash chain.
///
/// # Errors
///
/// [`LogError::NotFound`], [`LogError::Tampered`], [`LogError::KeyMissing`], [`LogError::Erased`],
/// [`LogError::Unreadable`], [`LogError::SchemaNewer`], and any other error of the log.
pub async fn read_events(
    log: &dyn EventLog,
    run: &RunId,
) -> Result<(RunSummary, Vec<Event>), LogError> {
    let (summary, records) = read_records(log, run).await?;
    let events = records.iter().map(|record| record.decode(run)).collect::<Result<_, _>>()?;
    Ok((summary, events))
}

/// Reads a whole run as stored, verified against its hash chain.
///
/// # Errors
///
/// [`LogError::NotFound`], [`LogError::Tampered`], [`LogError::KeyMissing`], and any other error of the log.
pub async fn read_records(
    log: &dyn EventLog,
    run: &RunId,
) -> Result<(RunSummary, Vec<Record>), LogError> {
    let summary = log.summary(run).await?.ok_or_else(|| LogError::NotFound(run.clone()))?;
    let records = read_verified_records(log, &summary).await?;
    Ok((summary, records))
}

/// Reads the records that a summary covers, verified against its head.
pub(crate) async fn read_verified_records(
    log: &dyn EventLog,
    summary: &RunSummary,
) -> Result<Vec<Record>, LogError> {
    let mut records = log.records(&summary.run, 1).await?;
    // Another process may have appended in between; records newer than the head are dropped.
    records.retain(|record| record.seq <= summary.last_seq);
    verify(&records, summary, log.key())?;
    Ok(records)
}
