//! What a step asks of its run while it is at work, as data.

use std::sync::Arc;

use backstop_react_machine::NothingLeft;
use backstop_tool::Given;
use layer0::JsonText;
use layer0::id::{CallId, RunId};
use layer0::operator::Waiting;
use layer0::usage::Allowance;
use serde::{Deserialize, Serialize};

use super::Child;

/// Names something that was asked; unique in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct AskId(pub(crate) u64);

/// Something that a step asks of its run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// A tool is about to dispatch an operator. Answered by [`Told::Child`].
    Dispatch(Box<Wanted>),
    /// The tool gave the dispatch of this number up before it learned of the answer. Not answered.
    NoDispatch { number: u64 },
    /// A run below is about to be tried again. Answered by [`Told::Noted`].
    Retry { run: RunId, attempt: u32 },
    /// A run below can do nothing but wait. Answered by [`Told::Leave`], if ever.
    Wait { run: RunId, waiting: Waiting },
    /// A run below goes on after it waited. Not answered.
    GoesOn { run: RunId },
    /// A running call asks a person. Answered by [`Told::Given`], unless the call ends before.
    Person(Box<PersonAsk>),
    /// A running call asks no more. Not answered.
    NoPerson { call: CallId },
    /// A run below wants more of the budget, which was given more so often. Answered by [`Told::More`].
    More { run: RunId, given: u32 },
}

/// An operator that a tool is about to dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) call: CallId,
    pub(crate) operator: Arc<str>,
    pub(crate) input_digest: Arc<str>,
    pub(crate) is_priced: bool,
    /// How many dispatches may be above it.
    pub(crate) max_depth: Option<u32>,
    /// Does it keep no record?
    #[serde(default)]
    pub(crate) unrecorded: bool,
    /// What it may use at most.
    pub(crate) at_most: Option<Allowance>,
    /// How many are dispatched at once that were not asked for yet, this one included.
    #[serde(default)]
    pub(crate) parts: Option<u32>,
    /// Names it among those that the run's tools ask for; 0 where the run itself does, before its tool begins.
    #[serde(default)]
    pub(crate) number: u64,
}

/// What a running call asks a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PersonAsk {
    pub(crate) call: CallId,
    pub(crate) arguments: JsonText,
    pub(crate) message: Arc<str>,
    pub(crate) schema: JsonText,
}

/// What a step is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Told {
    /// The run that the operator is to do its work under, or why it does not start.
    Child(Result<Box<Child>, NothingLeft>),
    Noted,
    /// What a person said.
    Given(Given),
    /// The run below is to leave; it is taken up later.
    Leave,
    /// What it may use beside what it was given before.
    More(Option<Allowance>),
}
