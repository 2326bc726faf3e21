//! Acquisition of a subscription by a host.

use std::sync::Arc;

use backstop_event_log::{Cursor, LogError, Subscription, segment_id};

use crate::behavior::{Behavior, Start};
use crate::context::Means;
use crate::segment::Segment;

/// A subscription that this host acquired.
pub(crate) struct Acquired {
    pub(crate) segment: Segment,
    /// Its recorded position.
    pub(crate) stands: Subscription,
    /// Whether the previous host died.
    pub(crate) is_takeover: bool,
}

/// Claims a subscription at its recorded position.
///
/// # Errors
///
/// [`LogError::Claimed`] and [`LogError::Conflict`] if another host has it, and other errors of the log.
pub(crate) async fn acquire(
    behavior: &dyn Behavior,
    means: &Means,
    (name, pattern): (&Arc<str>, &Arc<str>),
) -> Result<Acquired, LogError> {
    let (log, clock) = (&means.log, &means.clock);
    let Some(stands) = log.subscription(name).await? else {
        let cursor = match behavior.start() {
            Start::Start => Cursor::start(),
            Start::Now => {
                let filter = behavior.patterns().event_filter();
                log.read_feed(&filter, &Cursor::now()).await?.cursor
            }
        };
        let segment = Segment::first(log, clock, (name, pattern), cursor).await?;
        let stands = Subscription::new(Arc::clone(name), Arc::clone(pattern), 1, cursor);
        return Ok(Acquired { segment, stands, is_takeover: false });
    };
    let newest = segment_id(name, stands.segment);
    let claim = log.claim(&newest).await?;
    let is_takeover = claim.is_takeover();
    // The previous host may have started another segment, or moved the position, before this host had the claim.
    let stands = log.subscription(name).await?.unwrap_or(stands);
    if segment_id(name, stands.segment) != newest {
        return Err(LogError::Claimed(newest));
    }
    let summary = log.summary(&newest).await?.ok_or(LogError::NotFound(newest))?;
    let mut segment = Segment::resume(log, clock, (summary, claim), &stands).await?;
    if stands.pattern != *pattern {
        segment.roll(Some(Arc::clone(pattern))).await?;
    }
    Ok(Acquired { segment, stands, is_takeover })
}
