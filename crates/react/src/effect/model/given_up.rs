//! The end of a call without another attempt.

use backstop_provider::{ProviderError, facts_by_code};
use layer0::event::{ModelAttempted, ModelFailed};
use layer0::failure::{Failure, chain};

use crate::effect::effects::Effects;
use crate::endpoint::{AttemptRecord, CountedUsage};
use crate::journal::AttemptEnd;

/// Ends a call with the failure of its last attempt.
pub(super) fn given_up(
    effects: &Effects,
    record: &AttemptRecord,
    billed: Option<CountedUsage>,
    error: ProviderError,
    is_limited: bool,
) -> AttemptEnd {
    let attempted = record.build_model_attempted(billed, Some(&error), None);
    gave_up(effects, attempted, error, is_limited)
}

/// Ends a call with a failure. The record keeps the retry facts that do not follow from its code.
pub(super) fn gave_up(
    effects: &Effects,
    attempted: ModelAttempted,
    error: ProviderError,
    is_limited: bool,
) -> AttemptEnd {
    let redact = |text: String| {
        let text = effects.agent.redactor.redact(&text);
        layer0::text::cut_message(&text).into_owned()
    };
    let chain: Vec<String> = chain(&error).into_iter().map(redact).collect();
    let mut failed = ModelFailed::new(attempted.call, error.code(), chain, attempted.attempt);
    // The facts that follow from the code are not recorded.
    let said = error.facts().retry_facts();
    let by_code = facts_by_code(error.code()).map(|facts| facts.retry_facts());
    failed.retry = Some(said).filter(|_| by_code != Some(said));
    effects.keep_model_error(error);
    AttemptEnd::Failed { attempted: Box::new((attempted, failed)), is_limited }
}
