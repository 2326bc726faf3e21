//! Reasons that an ended run cannot be reopened.

use std::borrow::Cow;

use layer0::failure::{Effect, Facts, Failure};
use layer0::{Code, code};
use serde_json::Number;
use thiserror::Error;

use crate::budget::ExhaustedBudget;

/// Message to the model of a reopened run if its end requires one and the person gave none.
pub const CONTINUE: &str = "continue";

/// The reason that a run cannot be reopened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotReopenable {
    /// The run completed: there is nothing to continue.
    ///
    /// Retry: never. Effect: none.
    #[error("the run completed")]
    Completed,
    /// The run ended for a reason that is the same in every episode.
    ///
    /// Retry: never. Effect: none.
    #[error("the run ended with `{0}`, which is final")]
    Final(Code),
    /// The run has not ended.
    ///
    /// Retry: never. Effect: none.
    #[error("the run is not over")]
    Open,
    /// The run has another end than the request names.
    ///
    /// Retry: never. Effect: none.
    #[error("the run did not end with {}", or_completed(_0.as_ref()))]
    OtherEnd(Option<Code>),
    /// A copy of a completed run needs an input for its model.
    ///
    /// Retry: never. Effect: none.
    #[error("the copy is over, and nothing is said to its model")]
    Silent,
    /// A budget that the run needs to continue is exhausted.
    ///
    /// Retry: never. Effect: none.
    #[error("{used} of {limit} of the run's {} are used", dimension.replace('_', " "))]
    #[non_exhaustive]
    UsedUp {
        /// Name of the budget, as in its code.
        dimension: &'static str,
        /// The limit, with the requested increase.
        limit: Number,
        /// Amount used.
        used: Number,
    },
}

fn or_completed(reason: Option<&Code>) -> String {
    reason.map_or("an answer".to_owned(), |reason| format!("`{reason}`"))
}

impl NotReopenable {
    /// Returns the key under which the exhausted budget is increased: `max_model_calls`.
    #[must_use]
    pub fn budget_key(&self) -> Option<&'static str> {
        let Self::UsedUp { dimension, .. } = self else { return None };
        Some(match *dimension {
            "model_calls" => "max_model_calls",
            "tool_calls" => "max_tool_calls",
            "input_tokens" => "max_input_tokens",
            "output_tokens" => "max_output_tokens",
            "total_tokens" => "max_total_tokens",
            "cost_usd" => "max_cost_usd",
            "wall_time" => "max_wall_ms",
            "events" => "max_events",
            _ => "max_depth",
        })
    }
}

impl From<ExhaustedBudget> for NotReopenable {
    fn from(exhausted: ExhaustedBudget) -> Self {
        let ExhaustedBudget { reason, limit, used } = exhausted;
        Self::UsedUp { dimension: reason.trim_start_matches("budget."), limit, used }
    }
}

impl Failure for NotReopenable {
    fn facts(&self) -> Facts {
        match self {
            Self::Open => Facts::never(code::RUN_OPEN, Effect::None),
            Self::Silent => Facts::never(code::INPUT_INVALID, Effect::None),
            Self::Completed | Self::Final(_) | Self::OtherEnd(_) | Self::UsedUp { .. } => {
                Facts::never(code::RUN_NOT_REOPENABLE, Effect::None)
            }
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::Completed => {
                "go on in its session, or copy it and say something to the copy: `backstop fork`"
                    .into()
            }
            Self::Final(_) => "start a new run".into(),
            Self::Open => "go on with it as it is: `backstop resume RUN`".into(),
            Self::OtherEnd(_) => "look at how it ended: `backstop trace RUN`".into(),
            Self::Silent => "say something to its model: `--input TEXT`".into(),
            Self::UsedUp { .. } => {
                let key = self.budget_key().unwrap_or_default();
                format!("give it more: `--budget {key}=+N`").into()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: D12. The hint names the key under which a person gives more.
    #[test]
    fn used_up_budget_names_its_key() {
        for (reason, key) in [
            (code::BUDGET_MODEL_CALLS, "max_model_calls"),
            (code::BUDGET_TOOL_CALLS, "max_tool_calls"),
            (code::BUDGET_INPUT_TOKENS, "max_input_tokens"),
            (code::BUDGET_OUTPUT_TOKENS, "max_output_tokens"),
            (code::BUDGET_TOTAL_TOKENS, "max_total_tokens"),
            (code::BUDGET_COST_USD, "max_cost_usd"),
            (code::BUDGET_WALL_TIME, "max_wall_ms"),
            (code::BUDGET_EVENTS, "max_events"),
        ] {
            let exhausted = ExhaustedBudget { reason, limit: 1.into(), used: 1.into() };
            let refused = NotReopenable::from(exhausted);
            assert_eq!(refused.budget_key(), Some(key));
            let hint = refused.hint().unwrap();
            assert_eq!(hint, format!("give it more: `--budget {key}=+N`"));
        }
        assert_eq!(NotReopenable::Completed.budget_key(), None);
    }

    #[test]
    fn other_end_is_named() {
        let other = |reason| NotReopenable::OtherEnd(reason).to_string();
        assert_eq!(other(Some(Code::new("a.b"))), "the run did not end with `a.b`");
        assert_eq!(other(None), "the run did not end with an answer");
    }
}
