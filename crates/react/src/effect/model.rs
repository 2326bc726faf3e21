//! One attempt of a model call. Its end includes whether another attempt follows.

mod given_up;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use backstop_provider::{
    ModelRequest, ModelResponse, ModelSettings, OutputSchema, ProviderError, ToolChoice,
};
use layer0::Code;
use layer0::event::{ModelAttempted, ModelResponded};
use layer0::failure::Failure;
use layer0::usage::TokenUsage;
use tower::ServiceExt;
use tracing::Instrument;

use super::effects::Effects;
use super::spending;
use super::stop::StopFlag;
use super::token_count::{count_answer, count_lost};
use crate::endpoint::{AttemptRecord, AttemptRequest, CountedUsage, Listeners};
use crate::journal::{AttemptEnd, ModelAttempt, StepEnd};
use crate::pool::Picked;
use crate::record::recordable::{
    recordable_calls, recordable_reason, recordable_state, redact_shared,
};
use crate::shown::PieceRedactor;

use given_up::gave_up;
use verdict::{At, handle_failure};

/// Sends one request to a provider.
pub(super) async fn attempt(
    effects: Arc<Effects>,
    mut attempt: Box<ModelAttempt>,
    stop: StopFlag,
) -> StepEnd {
    if stop.is_stopped() {
        attempt.give_back(&effects.agent.models);
        return StepEnd::Attempt(AttemptEnd::NotBegun);
    }
    let (call, number) = (attempt.call.call, attempt.number());
    let agent = &effects.agent;
    let picked = async {
        let pool = agent.models.get(attempt.provider)?;
        Some((pool, pool.pick(attempt.picking(&effects)).await?))
    };
    let picked = tokio::select! {
        biased;
        () = stop.wait() => None,
        picked = picked => Some(picked),
    };
    let Some(picked) = picked else {
        attempt.give_back(&effects.agent.models);
        return StepEnd::Attempt(AttemptEnd::NotBegun);
    };
    let Some((pool, Picked { endpoint, place, taken, waited })) = picked else {
        // The step is data, and may come from an agent with more providers.
        return StepEnd::Attempt(no_provider(&effects, &attempt));
    };
    attempt.elapsed = attempt.elapsed.saturating_add(waited);
    // A request that is not sent costs nothing.
    let reserved = match taken {
        Ok(_) => spending::reserve(&effects, &attempt, endpoint.price).await,
        Err(_) => Ok(None),
    };
    let reserved = match reserved {
        Ok(reserved) => reserved,
        Err(end) => return StepEnd::Attempt(end),
    };
    let shown = PieceRedactor::new(&agent.redactor);
    let listeners = effects.listeners();
    let (clock, redactor) = (&agent.clock, &agent.redactor);
    let mut record = AttemptRecord::new(call, number, endpoint, listeners, shown, clock, redactor);
    record.is_sent = taken.is_ok();
    let record = Arc::new(record);
    let at = At { pool, endpoint, place, record: &record, billed: None };
    if attempt.made_here == 0 {
        endpoint.retry.begin();
    }
    let _taken = match taken {
        Ok(taken) => taken,
        // A request that was not sent takes no time.
        Err(error) => {
            return StepEnd::Attempt(handle_failure(&effects, &at, attempt, error, Duration::ZERO));
        }
    };
    let settings =
        adapt_settings(&effects.agent.settings, call).cap_output_tokens(attempt.output_left());
    let mut request = ModelRequest::new(attempt.messages.clone())
        .tools(Arc::clone(&attempt.tools))
        .settings(settings)
        .run(effects.run().clone());
    request.output = attempt.output_schema.clone().map(OutputSchema::new);
    let request = AttemptRequest { request, record: Arc::clone(&record) };
    let span = tracing::info_span!("model", call);
    // A stopped step does not begin; a finished answer counts.
    let result = if stop.is_stopped() {
        None
    } else {
        let mut asked = endpoint.service.clone().oneshot(request).instrument(span);
        tokio::select! {
            biased;
            result = &mut asked => Some(result),
            () = stop.wait() => None,
        }
    };
    record.end();
    let took = record.elapsed_time();
    let end = match result {
        None => {
            let billed = count_lost(endpoint, &attempt, &record);
            endpoint.rate.record_usage(billed.map_or(0, |billed| tokens(&billed.usage)));
            AttemptEnd::Cut(Box::new(record.build_model_attempted(billed, None, None)))
        }
        Some(Ok(response)) => {
            let billed = count_answer(endpoint, &attempt, &response);
            endpoint.rate.record_usage(tokens(&billed.usage));
            let attempted = record.build_model_attempted(Some(billed), None, None);
            let responded = build_model_responded(&effects, call, response, billed);
            AttemptEnd::Answered(Box::new((attempted, responded)))
        }
        Some(Err(error)) => {
            let billed = count_lost(endpoint, &attempt, &record);
            endpoint.rate.record_usage(billed.map_or(0, |billed| tokens(&billed.usage)));
            handle_failure(&effects, &At { billed, ..at }, attempt, error, took)
        }
    };
    spending::settle(&effects, reserved, &end).await;
    StepEnd::Attempt(end)
}

/// Returns the number of tokens that an answer takes from an endpoint's rate limit.
const fn tokens(usage: &TokenUsage) -> u64 {
    usage.input_tokens.saturating_add(usage.output_tokens)
}

/// Returns the settings of a call. A forced tool call applies to the first call only: otherwise no run would reach an
/// answer.
fn adapt_settings(settings: &ModelSettings, call: u32) -> ModelSettings {
    let mut settings = settings.clone();
    if call > 1 && settings.tool_choice.as_ref().is_some_and(ToolChoice::forces_a_call) {
        settings.tool_choice = Some(ToolChoice::Auto);
    }
    settings
}

/// Returns the end of an attempt without a provider.
fn no_provider(effects: &Effects, attempt: &ModelAttempt) -> AttemptEnd {
    let why = format!("the agent has no provider {}", attempt.provider + 1);
    let error = ProviderError::Other(why.into());
    let mut attempted = ModelAttempted::new(attempt.call.call, attempt.number(), "none");
    attempted.code = Some(Code::new(error.code()));
    gave_up(effects, attempted, error, false)
}

/// Returns an answer in its recorded form.
fn build_model_responded(
    effects: &Effects,
    call: u32,
    mut response: ModelResponse,
    billed: CountedUsage,
) -> ModelResponded {
    let redactor = &effects.agent.redactor;
    recordable_calls(redactor, &mut response.tool_calls);
    let text = redact_shared(redactor, response.text);
    let reason = recordable_reason(redactor, response.stop_reason);
    let mut responded = ModelResponded::new(call, text, response.tool_calls, reason, billed.usage);
    responded.usage_estimated = billed.is_estimated;
    responded.answer = response.answer.map(|text| redact_shared(redactor, text));
    responded.thinking = response.thinking.map(|text| redact_shared(redactor, text));
    responded.provider_state =
        response.provider_state.and_then(|state| recordable_state(redactor, state));
    responded
}

impl Effects {
    fn listeners(&self) -> Listeners {
        Listeners {
            run: self.context.run.clone(),
            hub: Arc::clone(&self.agent.hub),
            feed: self.feed.clone(),
            is_streamed: self.agent.stream,
            holds_secrets: self.agent.redactor.holds_secrets(),
        }
    }
}
