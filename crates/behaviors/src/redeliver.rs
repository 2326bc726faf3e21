//! Repeated deliveries.

use std::sync::Arc;

use backstop_event_log::{
    Cursor, EventLog, FeedRecord, LogError, Record, Subscription, segment_id,
};
use layer0::code;
use layer0::event::{BehaviorCompleted, BehaviorDelivered, EventKind};
use layer0::failure::{Effect, Facts, Failure};
use layer0::id::RunId;
use thiserror::Error;

use crate::behavior::Behavior;
use crate::call::call;
use crate::context::{BehaviorContext, Means};
use crate::delivery::InvalidDeliveryId;
use crate::error::BehaviorError;
use crate::segment::Segment;
use crate::subscription::{DeliveryPlan, acquire, is_wanted, prepare};

/// The result of a repeated delivery.
#[derive(Debug)]
#[non_exhaustive]
pub struct Redelivered {
    /// Number of attempts; 0 if the delivery was refused.
    pub attempts: u32,
    /// The recorded result.
    pub result: Result<(), BehaviorError>,
    /// Whether an earlier delivery of the event had completed.
    pub was_completed: bool,
}

/// Error of a repeated delivery that was not started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RedeliverError {
    /// The id does not name a delivery.
    ///
    /// Retry: never. Effect: none.
    #[error("nothing was delivered")]
    InvalidId(#[from] InvalidDeliveryId),
    /// The log failed, or another host serves the subscription.
    ///
    /// Retry: as the log says. Effect: as it says.
    #[error("the subscription cannot be used")]
    Log(#[from] LogError),
    /// The event does not match the behaviour's pattern, and was never delivered to it.
    ///
    /// Retry: never. Effect: none.
    #[error(
        "behaviour `{behavior}` is not shown `{event}` events like this: its pattern is `{pattern}`"
    )]
    NotMatched {
        /// Name of the behaviour.
        behavior: String,
        /// Type of the event.
        event: String,
        /// Pattern of the behaviour.
        pattern: String,
    },
    /// The subscription or the event does not exist.
    ///
    /// Retry: never. Effect: none.
    #[error("there is no delivery `{0}`")]
    NotFound(String),
    /// The behaviour caused the event itself, so it is not delivered to it.
    ///
    /// Retry: never. Effect: none.
    #[error("behaviour `{0}` caused this event itself")]
    OwnEvent(String),
    /// The host has no behaviour of this name.
    ///
    /// Retry: never. Effect: none.
    #[error("the host has no behaviour `{0}`")]
    UnknownBehavior(String),
}

impl Failure for RedeliverError {
    fn facts(&self) -> Facts {
        match self {
            Self::InvalidId(_)
            | Self::NotFound(_)
            | Self::NotMatched { .. }
            | Self::OwnEvent(_)
            | Self::UnknownBehavior(_) => Facts::never(code::INPUT_INVALID, Effect::None),
            Self::Log(error) => error.facts(),
        }
    }
}

/// Delivers an event to a behaviour, under the claim of its subscription.
pub(crate) async fn redeliver(
    (behavior, grants): &(Arc<dyn Behavior>, Arc<[String]>),
    means: &Arc<Means>,
    (id, run, seq): (&str, &RunId, u64),
) -> Result<Redelivered, RedeliverError> {
    let missing = || RedeliverError::NotFound(id.to_owned());
    let name: Arc<str> = behavior.name().into();
    let subscription = means.log.subscription(&name).await?.ok_or_else(missing)?;
    let record = find_record(&*means.log, run, seq).await?.ok_or_else(missing)?;
    let event_type = record.record.event_type.clone();
    let earlier = earlier_end(&*means.log, &subscription, (run, seq)).await?;
    // A delivery under an earlier pattern may be repeated.
    if earlier.is_none() && !is_wanted(&**behavior, &record) {
        return Err(RedeliverError::NotMatched {
            behavior: name.to_string(),
            event: event_type.into_owned(),
            pattern: behavior.patterns().to_string(),
        });
    }
    let was_completed = earlier == Some(EarlierEnd::Completed);
    let verdict = prepare(means, &name, &record).await?;
    if matches!(verdict, DeliveryPlan::Skip) {
        return Err(RedeliverError::OwnEvent(name.to_string()));
    }
    let pattern: Arc<str> = behavior.patterns().to_string().into();
    let mut segment = acquire(&**behavior, means, (&name, &pattern)).await?.segment;
    let mut delivered = BehaviorDelivered::new(Arc::clone(&name), run.clone(), seq, &*event_type);
    let (delivery, cause) = match verdict {
        DeliveryPlan::Deliver(delivery, cause) => (*delivery, cause),
        DeliveryPlan::Skip => return Err(RedeliverError::OwnEvent(name.to_string())),
        DeliveryPlan::Refuse { reason, message, exception_type } => {
            let error = BehaviorError::from_refusal(reason, message, exception_type);
            end(&mut segment, error.to_event(&delivered, 0, &means.redactor)).await?;
            return Ok(Redelivered { attempts: 0, result: Err(error), was_completed });
        }
    };
    delivered.length = cause.length;
    segment.note(delivered.clone());
    drop(segment.commit().await?);
    let context =
        BehaviorContext::new((Arc::clone(means), Arc::clone(grants)), Arc::clone(&name), cause);
    let (clock, lease) = (Arc::clone(&means.clock), segment.lease());
    let made = call(Arc::clone(behavior), delivery, context, clock, lease).await;
    match &made.result {
        Ok(()) => {
            let completed = BehaviorCompleted::new(name, run.clone(), seq, made.attempts);
            end(&mut segment, completed).await?;
        }
        Err(error) => {
            let failed = error.to_event(&delivered, made.attempts, &means.redactor);
            end(&mut segment, failed).await?;
        }
    }
    Ok(Redelivered { attempts: made.attempts, result: made.result, was_completed })
}

async fn end(segment: &mut Segment, kind: impl Into<EventKind>) -> Result<(), LogError> {
    segment.note(kind);
    segment.commit().await.map(drop)
}

/// The result of an earlier delivery of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EarlierEnd {
    Completed,
    Failed,
}

/// Returns the result of the last delivery of an event, from the record of the subscription; `None` if there was none.
async fn earlier_end(
    log: &dyn EventLog,
    subscription: &Subscription,
    event: (&RunId, u64),
) -> Result<Option<EarlierEnd>, LogError> {
    for number in (1..=subscription.segment).rev() {
        let segment = segment_id(&subscription.name, number);
        // Segments are removed from the oldest on, so that earlier ones are gone too.
        if log.summary(&segment).await?.is_none() {
            return Ok(None);
        }
        let records = log.records(&segment, 1).await?;
        let end = records.iter().rev().find_map(|record| end_in(record, event));
        if end.is_some() {
            return Ok(end);
        }
    }
    Ok(None)
}

fn end_in(record: &Record, event: (&RunId, u64)) -> Option<EarlierEnd> {
    let text = record.payload.text()?;
    match EventKind::decode(&record.event_type, text).ok()? {
        EventKind::BehaviorCompleted(it) => {
            ((&it.run, it.seq) == event).then_some(EarlierEnd::Completed)
        }
        EventKind::BehaviorFailed(it) => ((&it.run, it.seq) == event).then_some(EarlierEnd::Failed),
        _ => None,
    }
}

/// Reads one event of a run; `None` if the run has no such event.
async fn find_record(
    log: &dyn EventLog,
    run: &RunId,
    seq: u64,
) -> Result<Option<FeedRecord>, LogError> {
    if seq == 0 || log.summary(run).await?.is_none_or(|summary| summary.last_seq < seq) {
        return Ok(None);
    }
    let mut records = log.records(run, seq).await?.into_iter();
    let record = records.find(|record| record.seq == seq);
    Ok(record.map(|record| FeedRecord::new(run.clone(), record, Cursor::start())))
}
