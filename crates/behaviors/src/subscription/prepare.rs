//! Decides from the record whether an event is delivered.

use std::sync::Arc;

use backstop_event_log::{FeedRecord, LogError};
use layer0::code;
use layer0::event::Cause;
use layer0::failure::{Failure, chain};

use crate::cause::MAX_CHAIN;
use crate::context::Means;
use crate::delivery::Delivery;

pub(crate) enum DeliveryPlan {
    /// The behaviour caused the event itself.
    Skip,
    /// The event is not delivered, which is recorded as a failure.
    Refuse { reason: &'static str, message: String, exception_type: &'static str },
    /// The event is delivered; events that follow have this cause.
    Deliver(Box<Delivery>, Cause),
}

/// Finds the cause of an event, and decides whether to deliver it.
///
/// # Errors
///
/// Retryable errors of the log.
pub(crate) async fn prepare(
    means: &Means,
    name: &Arc<str>,
    record: &FeedRecord,
) -> Result<DeliveryPlan, LogError> {
    let event = match record.record.decode(&record.run) {
        Ok(event) => event,
        Err(error) => {
            let (reason, message) = (error.code(), chain(&error).join(": "));
            return Ok(DeliveryPlan::Refuse { reason, message, exception_type: "LogError" });
        }
    };
    let cause = match means.causes.find(&*means.log, &event).await {
        Ok(cause) => cause,
        Err(error) if error.is_retryable() => return Err(error),
        // An event delivered without its cause could lead to an endless loop.
        Err(error) => {
            let (reason, message) = (error.code(), chain(&error).join(": "));
            return Ok(DeliveryPlan::Refuse { reason, message, exception_type: "LogError" });
        }
    };
    if cause.as_ref().is_some_and(|cause| cause.subscription == *name) {
        return Ok(DeliveryPlan::Skip);
    }
    let length = cause.as_ref().map_or(0, |cause| cause.length);
    if length >= MAX_CHAIN {
        let message = format!("{length} deliveries led to one another; that is as many as may");
        let exception_type = "Recursion";
        return Ok(DeliveryPlan::Refuse {
            reason: code::BEHAVIOR_RECURSION,
            message,
            exception_type,
        });
    }
    let cause = Cause::new(Arc::clone(name), event.run.clone(), event.seq, length + 1);
    Ok(DeliveryPlan::Deliver(Box::new(Delivery::new(Arc::clone(name), event)), cause))
}
