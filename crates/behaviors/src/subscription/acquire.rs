//! How a host takes a subscription.

use std::sync::Arc;

use backstop_event_log::{Cursor, LogError, Subscription, segment_id};

use crate::behavior::{Behavior, Start};
use crate::context::Means;
use crate::segment::Segment;

/// A subscription that this host has taken.
pub(crate) struct Acquired {
    pub(crate) segment: Segment,
    /// Its place at that time.
    pub(crate) stands: Subscription,
    /// Whether the host that had it before died.
    pub(crate) is_takeover: bool,
}

/// Takes a subscription, from where it stands.
///
/// # Errors
///
/// [`LogError::Claimed`] and [`LogError::Conflict`] when another host has it; and what the log fails with.
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
    // The host before may have begun another segment, or moved on, until the claim was ours.
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
