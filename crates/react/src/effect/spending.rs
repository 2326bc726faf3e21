//! Reservations under the agent's spend limits for the expected cost of attempts.

use backstop_react_machine::Price;
use layer0::event::ModelFailed;
use layer0::failure::{Failure, chain};
use layer0::usage::TokenUsage;

use super::effects::Effects;
use super::token_count::prompt_tokens;
use crate::journal::{AttemptEnd, ModelAttempt};
use crate::spend_limits::{NotReserved, SpendReservation};

/// Expected number of tokens of an answer if the agent sets no maximum.
const ANSWER_TOKENS: u64 = 1_000;

/// Reserves the expected cost of an attempt at this price; `None` for an agent without limits. The error is the end of
/// an attempt for which nothing can be reserved.
pub(super) async fn reserve(
    effects: &Effects,
    attempt: &ModelAttempt,
    price: Option<Price>,
) -> Result<Option<SpendReservation>, AttemptEnd> {
    let Some(limits) = &effects.agent.spend_limits else { return Ok(None) };
    let may_cost = price.map_or(0, |price| price.of_attempt(&estimate_tokens(effects, attempt)));
    match limits.reserve(&effects.context, &attempt.labels, may_cost).await {
        Ok(reserved) => Ok(Some(reserved)),
        Err(NotReserved::Refused(exhausted)) => Err(AttemptEnd::Limited(Box::new(exhausted))),
        Err(NotReserved::Failed(limit, error)) => {
            let redact = |text: String| effects.agent.redactor.redact(&text).into_owned();
            let mut texts = vec![format!("the {limit} could not be looked at")];
            texts.extend(chain(&error).into_iter().map(redact));
            let made = attempt.number().saturating_sub(1);
            let mut failed = ModelFailed::new(attempt.call.call, error.code(), texts, made);
            failed.retry = Some(error.facts().retry_facts());
            Err(AttemptEnd::Unreserved(Box::new(failed)))
        }
    }
}

/// Replaces the reservation with the cost of the attempt.
pub(super) async fn settle(
    effects: &Effects,
    reserved: Option<SpendReservation>,
    end: &AttemptEnd,
) {
    if let (Some(limits), Some(reserved)) = (&effects.agent.spend_limits, reserved) {
        limits.settle(reserved, end.billed_nanousd()).await;
    }
}

/// Returns the expected number of tokens of an attempt.
fn estimate_tokens(effects: &Effects, attempt: &ModelAttempt) -> TokenUsage {
    let answer = effects.agent.settings.max_output_tokens.map_or(ANSWER_TOKENS, u64::from);
    let answer = attempt.output_left().map_or(answer, |left| left.min(answer));
    TokenUsage::new(prompt_tokens(attempt), answer)
}
