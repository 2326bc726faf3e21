//! Parts for serving one subscription.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use backstop_event_log::FeedRecord;
use layer0::code;
use layer0::event::EventKind;
use tokio_util::sync::CancellationToken;

use super::progress::StatusSender;
use crate::behavior::Behavior;
use crate::context::Means;

/// Delay before another attempt if another host has a subscription or the log fails.
pub(super) const AGAIN: Duration = Duration::from_millis(500);

/// A behaviour with its host's resources.
pub(crate) struct Serve {
    pub(crate) name: Arc<str>,
    pub(crate) pattern: Arc<str>,
    pub(crate) behavior: Arc<dyn Behavior>,
    /// The grants of its pack.
    pub(crate) grants: Arc<[String]>,
    pub(crate) means: Arc<Means>,
    pub(crate) progress: StatusSender,
    pub(crate) stop: CancellationToken,
    /// Whether the previous host died, until its open deliveries are counted.
    pub(super) is_takeover: AtomicBool,
}

impl Serve {
    /// Returns the parts that serve a behaviour until `stop` is cancelled.
    pub(crate) fn new(
        (behavior, grants): (Arc<dyn Behavior>, Arc<[String]>),
        means: Arc<Means>,
        progress: StatusSender,
        stop: CancellationToken,
    ) -> Self {
        let name = behavior.name().into();
        let pattern = behavior.patterns().to_string().into();
        let is_takeover = AtomicBool::new(false);
        Self { name, pattern, behavior, grants, means, progress, stop, is_takeover }
    }
}

/// Returns whether an event is to be delivered, judged by the event alone. Failures that end a loop are not.
pub(crate) fn is_wanted(
    behavior: &dyn Behavior,
    FeedRecord { run, record, .. }: &FeedRecord,
) -> bool {
    let is_own =
        backstop_event_log::parse_segment(run).is_some_and(|(name, _)| name == behavior.name());
    let ends_a_circle = record.event_type == "behavior.failed"
        && record.payload.text().is_some_and(|text| text.contains(code::BEHAVIOR_RECURSION))
        && matches!(
            record.decode(run).map(|event| event.kind),
            Ok(EventKind::BehaviorFailed(failed)) if failed.reason == *code::BEHAVIOR_RECURSION
        );
    !is_own && !ends_a_circle && behavior.patterns().matches(run, record)
}
