//! Which delivery led to an event.

use backstop_event_log::{EventLog, LogError, RunSummary, read_events};
use layer0::Timestamp;
use layer0::event::{Cause, Event, EventKind};
use layer0::id::RunId;

/// How many deliveries may lead to one another.
pub(crate) const MAX_CHAIN: u32 = 8;
/// How many callers of a run are looked at.
const MAX_CALLERS: usize = 64;

/// Returns the delivery that led to an event: the one that is named last before it in its record or in those of
/// its callers; of a failed delivery, that one.
pub(crate) async fn cause_of(log: &dyn EventLog, event: &Event) -> Result<Option<Cause>, LogError> {
    if let EventKind::BehaviorFailed(failed) = &event.kind {
        let (behavior, run) = (failed.behavior.clone(), failed.run.clone());
        return Ok(Some(Cause::new(behavior, run, failed.seq, failed.length)));
    }
    let (mut next, mut seq) = (Some(event.run.clone()), event.seq);
    for _ in 0..MAX_CALLERS {
        let Some(run) = next else { return Ok(None) };
        let Some(summary) = log.summary(&run).await? else { return Ok(None) };
        if let Some(cause) = named_before(log, &summary, (seq, event.at)).await? {
            return Ok(Some(cause));
        }
        // Of its callers, what they were told before it happened.
        (next, seq) = (summary.parent, u64::MAX);
    }
    Ok(None)
}

/// Returns the delivery that a run names last before an event.
async fn named_before(
    log: &dyn EventLog,
    summary: &RunSummary,
    (seq, at): (u64, Timestamp),
) -> Result<Option<Cause>, LogError> {
    let is_before = |named: u64, then: Timestamp| named <= seq && then <= at;
    let mut causes = summary.causes.iter().rev();
    let found = causes.find(|(named, then, _)| is_before(*named, *then));
    if found.is_some() || summary.causes.len() < RunSummary::MAX_CAUSES {
        return Ok(found.map(|(.., cause)| cause.clone()));
    }
    // It names more than are kept at a glance.
    named_in_record(log, &summary.run, is_before).await
}

async fn named_in_record(
    log: &dyn EventLog,
    run: &RunId,
    is_before: impl Fn(u64, Timestamp) -> bool,
) -> Result<Option<Cause>, LogError> {
    let (_, events) = read_events(log, run).await?;
    let before = events.iter().rev().filter(|event| is_before(event.seq, event.at));
    Ok(before.filter_map(|event| event.kind.cause()).next().cloned())
}
