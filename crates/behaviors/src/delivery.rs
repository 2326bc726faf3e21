//! Deliveries and their ids.

use std::sync::Arc;

use layer0::code;
use layer0::event::Event;
use layer0::failure::{Effect, Facts, Failure};
use layer0::id::RunId;
use serde::Serialize;
use thiserror::Error;

/// An event for a behaviour. As JSON: `id`, `behavior`, `run`, `seq`, `event`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Delivery {
    /// Idempotency key: the same for each attempt, also after a restart.
    pub id: String,
    /// Name of the behaviour.
    pub behavior: Arc<str>,
    /// The run of the event; for an event of a subscription, its segment.
    pub run: RunId,
    /// Number of the event in the record.
    pub seq: u64,
    /// The recorded event.
    pub event: Event,
}

impl Delivery {
    pub(crate) fn new(behavior: Arc<str>, event: Event) -> Self {
        let (run, seq) = (event.run.clone(), event.seq);
        Self { id: delivery_id(&behavior, &run, seq), behavior, run, seq, event }
    }
}

/// Returns the id of a delivery: `<subscription>/<run>/<seq>`.
///
/// ```
/// use backstop_behaviors::{delivery_id, read_delivery_id};
///
/// let id = delivery_id("tell ops", &"run_1".into(), 7);
/// assert_eq!(id, "tell ops/run_1/7");
/// assert_eq!(read_delivery_id(&id)?, ("tell ops".to_owned(), "run_1".into(), 7));
/// # Ok::<(), backstop_behaviors::InvalidDeliveryId>(())
/// ```
#[must_use]
pub fn delivery_id(subscription: &str, run: &RunId, seq: u64) -> String {
    format!("{subscription}/{run}/{seq}")
}

/// Error of a text that is not the id of a delivery.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid delivery id `{0}`: expected `<subscription>/<run>/<seq>`")]
pub struct InvalidDeliveryId(String);

impl Failure for InvalidDeliveryId {
    fn facts(&self) -> Facts {
        Facts::never(code::INPUT_INVALID, Effect::None)
    }
}

/// Splits the id of a delivery into the subscription, the run and the number of the event.
///
/// # Errors
///
/// [`InvalidDeliveryId`] if the text is not such an id.
pub fn read_delivery_id(id: &str) -> Result<(String, RunId, u64), InvalidDeliveryId> {
    let read = || {
        let (rest, seq) = id.rsplit_once('/')?;
        // Names of behaviours have no slash.
        let (subscription, run) = rest.split_once('/')?;
        let is_whole = !subscription.is_empty() && !run.is_empty();
        is_whole.then_some((subscription.to_owned(), RunId::new(run), seq.parse().ok()?))
    };
    read().ok_or_else(|| InvalidDeliveryId(id.to_owned()))
}
