//! Requests of running steps to their run, as data.

use std::sync::Arc;

use backstop_react_machine::NoBudgetLeft;
use backstop_tool::Given;
use layer0::JsonText;
use layer0::id::{CallId, RunId};
use layer0::operator::Waiting;
use layer0::usage::Allowance;
use serde::{Deserialize, Serialize};

use super::Child;

/// The id of a request; unique in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct AskId(pub(crate) u64);

/// A request of a step to its run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum StepRequest {
    /// A tool is about to dispatch an operator. Answered by [`StepReply::Child`].
    Dispatch(Box<DispatchRequest>),
    /// The tool gave up the dispatch of this number before its answer. Not answered.
    NoDispatch { number: u64 },
    /// A child run is about to be retried. Answered by [`StepReply::Noted`].
    Retry { run: RunId, attempt: u32 },
    /// A child run only waits. Answered by [`StepReply::Leave`], if ever.
    Wait { run: RunId, waiting: Waiting },
    /// A child run continues after a wait. Not answered.
    GoesOn { run: RunId },
    /// A running call asks a person. Answered by [`StepReply::Given`], unless the call ends before.
    Person(Box<PersonAsk>),
    /// A running call withdraws its question. Not answered.
    NoPerson { call: CallId },
    /// A child run wants more budget, after so many earlier grants. Answered by [`StepReply::More`].
    More { run: RunId, given: u32 },
}

/// An operator that a tool is about to dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DispatchRequest {
    pub(crate) call: CallId,
    pub(crate) operator: Arc<str>,
    pub(crate) input_digest: Arc<str>,
    pub(crate) is_priced: bool,
    /// Maximum number of dispatches above it.
    pub(crate) max_depth: Option<u32>,
    /// Whether it keeps no record.
    #[serde(default)]
    pub(crate) unrecorded: bool,
    /// Upper bound of its budget.
    pub(crate) at_most: Option<Allowance>,
    /// Number of concurrent dispatches that are not requested yet, including this one.
    #[serde(default)]
    pub(crate) parts: Option<u32>,
    /// Its number among the dispatches of the run's tools; 0 for a dispatch of the run itself, before its tool begins.
    #[serde(default)]
    pub(crate) number: u64,
}

/// The question of a running call to a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PersonAsk {
    pub(crate) call: CallId,
    pub(crate) arguments: JsonText,
    pub(crate) message: Arc<str>,
    pub(crate) schema: JsonText,
}

/// The answer to a request of a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum StepReply {
    /// The child run for the operator, or the reason why it does not start.
    Child(Result<Box<Child>, NoBudgetLeft>),
    Noted,
    /// A person's answer.
    Given(Given),
    /// The child run is to be suspended; it is resumed later.
    Leave,
    /// The budget in addition to earlier grants.
    More(Option<Allowance>),
}
