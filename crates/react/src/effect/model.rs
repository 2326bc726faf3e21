//! One attempt of a model call. At its end it says whether another follows.

use std::sync::Arc;
use std::time::Duration;

use backstop_provider::{
    ModelRequest, ModelResponse, ModelSettings, OutputSchema, ProviderError, ToolChoice,
};
use backstop_retry::{Decision, Tried};
use layer0::event::{ModelFailed, ModelResponded};
use layer0::failure::{ErrorText, Failure, chain};
use layer0::usage::{Usage, nanousd};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::Instrument;

use super::effects::Effects;
use crate::endpoint::{AttemptRecord, AttemptRequest, Endpoint, Listeners};
use crate::journal::{Attempt, AttemptEnd, End};
use crate::recordable::{recordable_calls, recordable_reason, recordable_state, redact_shared};
use crate::shown::Shown;

/// Asks one provider once.
pub(super) async fn attempt(
    effects: Arc<Effects>,
    attempt: Box<Attempt>,
    stop: CancellationToken,
) -> End {
    if stop.is_cancelled() {
        return End::Attempt(AttemptEnd::NotBegun);
    }
    let (call, number) = (attempt.call.call, attempt.number());
    let record = |label, price| {
        let shown = Shown::new(&effects.agent.redactor);
        AttemptRecord::new(call, number, label, price, effects.listeners(), shown, &effects.agent)
    };
    let Some(endpoint) = effects.agent.models.get(attempt.provider) else {
        // The step is data, and may be that of an agent with more providers.
        let why = format!("the agent has no provider {}", attempt.provider + 1);
        let error = ProviderError::Other(why.into());
        return End::Attempt(given_up(&effects, &record("none".into(), None), error, false));
    };
    if attempt.made_here == 0 {
        endpoint.retry.begin();
    }
    let record = Arc::new(record(Arc::clone(&endpoint.label), endpoint.price));
    let request = ModelRequest {
        messages: attempt.messages.clone(),
        tools: Arc::clone(&attempt.tools),
        settings: settings_of(&effects.agent.settings, call).capped(attempt.output_left()),
        output: attempt.output_schema.clone().map(OutputSchema::new),
        sink: None,
    };
    let request = AttemptRequest { request, record: Arc::clone(&record) };
    let span = tracing::info_span!("model", call);
    let result = {
        let mut asked = endpoint.service.clone().oneshot(request).instrument(span);
        tokio::select! {
            biased;
            () = stop.cancelled() => None,
            result = &mut asked => Some(result),
        }
    };
    let took = record.elapsed();
    End::Attempt(match result {
        None => AttemptEnd::Cut(Box::new(record.attempted(record.billed(), None, None))),
        Some(Ok(response)) => {
            let attempted = record.attempted(Some(response.usage), None, None);
            AttemptEnd::Answered(Box::new((attempted, responded(&effects, call, response))))
        }
        Some(Err(error)) => failed(&effects, endpoint, attempt, &record, error, took),
    })
}

/// Returns the settings of a call. A tool that has to be called is called first: if it had to be called
/// for ever, no run would come to an answer.
fn settings_of(settings: &ModelSettings, call: u32) -> ModelSettings {
    let mut settings = settings.clone();
    if call > 1 && settings.tool_choice.as_ref().is_some_and(ToolChoice::forces_a_call) {
        settings.tool_choice = Some(ToolChoice::Auto);
    }
    settings
}

/// Decides what follows a failed attempt.
fn failed(
    effects: &Effects,
    endpoint: &Endpoint,
    mut attempt: Box<Attempt>,
    record: &AttemptRecord,
    error: ProviderError,
    took: Duration,
) -> AttemptEnd {
    attempt.count(endpoint, record, took);
    let billed = record.billed();
    let tried = attempt.tried(effects);
    let decision = endpoint.retry.decide(&error, tried);
    let mut error = decision.settle(error, tried);
    if let Decision::Again(delay) = decision {
        tracing::debug!(attempt = attempt.made_here, code = error.code(), ?delay, "retrying");
        let attempted = record.attempted(billed, Some(&error), Some(delay));
        attempt.elapsed = attempt.elapsed.saturating_add(delay);
        return AttemptEnd::Again(Box::new(attempted), delay, attempt);
    }
    if let Some(earlier) = &attempt.earlier {
        error.keep_earlier(earlier);
    }
    if let Decision::Next { .. } = decision {
        tracing::warn!(code = error.code(), "asking another provider");
        let mut attempted = record.attempted(billed, Some(&error), Some(Duration::ZERO));
        attempt.go_to_next_provider(&error);
        let next = effects.agent.models.get(attempt.provider);
        attempted.next_provider = next.map(|next| Arc::clone(&next.label));
        return AttemptEnd::Again(Box::new(attempted), Duration::ZERO, attempt);
    }
    given_up(effects, record, error, matches!(decision, Decision::Stop { is_limited: true, .. }))
}

/// Says that no other attempt follows.
fn given_up(
    effects: &Effects,
    record: &AttemptRecord,
    error: ProviderError,
    is_limited: bool,
) -> AttemptEnd {
    let attempted = record.attempted(record.billed(), Some(&error), None);
    let redact = |text: String| effects.agent.redactor.redact(&text).into_owned();
    let chain: Vec<String> = chain(&error).into_iter().map(redact).collect();
    let failed = ModelFailed {
        call: record.call,
        reason: error.code().into(),
        message: chain.first().map_or("", String::as_str).into(),
        chain,
        attempts: record.number,
    };
    effects.keep_model_error(error);
    AttemptEnd::Failed { attempted: Box::new((attempted, failed)), is_limited }
}

/// Returns an answer as the record may hold it.
fn responded(effects: &Effects, call: u32, mut response: ModelResponse) -> ModelResponded {
    let redactor = &effects.agent.redactor;
    recordable_calls(redactor, &mut response.tool_calls);
    ModelResponded {
        call,
        text: redact_shared(redactor, response.text),
        thinking: response.thinking.map(|text| redact_shared(redactor, text)),
        provider_state: response.provider_state.and_then(|state| recordable_state(redactor, state)),
        tool_calls: response.tool_calls,
        stop_reason: recordable_reason(redactor, response.stop_reason),
        usage: response.usage,
    }
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

impl Attempt {
    /// Counts this attempt among those that were made.
    fn count(&mut self, endpoint: &Endpoint, record: &AttemptRecord, took: Duration) {
        self.made = self.made.saturating_add(1);
        self.made_here = self.made_here.saturating_add(1);
        self.elapsed = self.elapsed.saturating_add(took);
        let billed = record.billed().unwrap_or_default();
        self.spent.add_tokens(billed);
        if let Some(price) = endpoint.price {
            self.spent.add_cost(price.of_attempt(&billed));
        }
    }

    /// Describes what was tried at this provider. Asking a model again does nothing to the world.
    fn tried(&self, effects: &Effects) -> Tried {
        let mut tried = Tried::new(self.made_here, self.elapsed, true);
        let made_before = self.made.saturating_sub(self.made_here);
        // Tokens and cost are looked at before every attempt, retries and other providers included.
        tried.max_attempts = match self.is_used_up() {
            true => Some(0),
            false => self.call.left.model_calls.map(|max| max.saturating_sub(made_before)),
        };
        tried.has_next = self.provider + 1 < effects.agent.models.len();
        tried
    }

    fn go_to_next_provider(&mut self, error: &ProviderError) {
        self.provider += 1;
        self.made_here = 0;
        self.elapsed = Duration::ZERO;
        self.earlier = Some(ErrorText::of(error));
    }

    /// Do tokens or money leave no room for another attempt?
    fn is_used_up(&self) -> bool {
        let (left, spent) = (&self.call.left, &self.spent);
        let reached = |left: Option<u64>, spent: u64| left.is_some_and(|left| spent >= left);
        reached(left.input_tokens, spent.input_tokens)
            || reached(left.output_tokens, spent.output_tokens)
            || reached(left.total_tokens, spent.total_tokens)
            || reached(left.cost_nanousd, nanousd(spent.cost_usd.unwrap_or_default()))
    }

    /// Returns how many tokens the answer may have.
    fn output_left(&self) -> Option<u64> {
        let (left, spent): (_, &Usage) = (&self.call.left, &self.spent);
        let output = left.output_tokens.map(|left| left.saturating_sub(spent.output_tokens));
        let total = left.total_tokens.map(|left| left.saturating_sub(spent.total_tokens));
        output.into_iter().chain(total).min()
    }
}
