//! Which delivery led to an event.

use backstop_event_log::{EventLog, LogError};
use layer0::event::{Cause, Event, EventKind};
use layer0::id::RunId;

/// How many deliveries may lead to one another.
pub(crate) const MAX_CHAIN: u32 = 8;
/// How many callers of a run are looked at.
const MAX_CALLERS: usize = 64;

/// Returns the delivery that led to an event: the one that is named last before it in its record or in those of
/// its callers; of a failed delivery, that one.
pub(crate) async fn cause_of(log: &dyn EventLog, event: &Event) -> Result<Option<Cause>, LogError> {
    let EventKind::BehaviorFailed(failed) = &event.kind else {
        return named_before(log, &event.run, event.seq).await;
    };
    let led_to_it = named_before(log, &failed.run, failed.seq).await?;
    let length = led_to_it.map_or(0, |cause| cause.length) + 1;
    Ok(Some(Cause::new(failed.behavior.clone(), failed.run.clone(), failed.seq, length)))
}

async fn named_before(
    log: &dyn EventLog,
    run: &RunId,
    seq: u64,
) -> Result<Option<Cause>, LogError> {
    let (mut next, mut before) = (Some(run.clone()), seq);
    for _ in 0..MAX_CALLERS {
        let Some(run) = next else { return Ok(None) };
        let Some(summary) = log.summary(&run).await? else { return Ok(None) };
        let named = summary.causes.into_iter().rev().find(|(at, _)| *at <= before);
        if let Some((_, cause)) = named {
            return Ok(Some(cause));
        }
        // What its caller was told since may have led to it as well.
        (next, before) = (summary.parent, u64::MAX);
    }
    Ok(None)
}
