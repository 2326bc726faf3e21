//! The numbers of an agent, as SPEC names them, and the calls they are about.

use layer0::event::{BudgetGranted, EventKind, RunReopened};
use layer0::id::CallId;
use layer0::usage::{Allowance, BudgetIncrease};

/// The rules of one agent, as plain data.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) run: &'static str,
    /// G1.
    pub(crate) max_iterations: u32,
    /// G4.
    pub(crate) max_parallel_tools: usize,
    pub(crate) max_concurrent_tools: usize,
    /// G2.
    pub(crate) max_repeated_batch_steps: Option<u64>,
    pub(crate) max_observation_steps: Option<u64>,
    /// G3.
    pub(crate) max_stagnation_steps: Option<u64>,
    /// B1.
    pub(crate) budget: Room,
    /// The share of a caller's budget, of a run that has a caller.
    pub(crate) share: Option<Room>,
    pub(crate) has_memory: bool,
    pub(crate) has_hooks: bool,
    pub(crate) tools: Vec<ToolRules>,
}

/// The facts of a tool that a rule asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct ToolRules {
    pub(crate) name: &'static str,
    pub(crate) is_idempotent: bool,
    pub(crate) has_probe: bool,
    pub(crate) only_dispatches: bool,
    pub(crate) is_exploratory: bool,
    pub(crate) expires_after_ms: Option<i64>,
}

impl Rules {
    pub(crate) fn tool(&self, name: &str) -> ToolRules {
        self.tools.iter().find(|tool| tool.name == name).cloned().unwrap_or_default()
    }
}

/// An amount of each budget; `None` is without bound.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Room {
    pub(crate) attempts: Option<u64>,
    pub(crate) executions: Option<u64>,
    pub(crate) input_tokens: Option<u64>,
    pub(crate) output_tokens: Option<u64>,
    pub(crate) total_tokens: Option<u64>,
    pub(crate) wall_ms: Option<u64>,
    pub(crate) events: Option<u64>,
}

impl Room {
    fn each(self, other: Self, join: impl Fn(Option<u64>, Option<u64>) -> Option<u64>) -> Self {
        Self {
            attempts: join(self.attempts, other.attempts),
            executions: join(self.executions, other.executions),
            input_tokens: join(self.input_tokens, other.input_tokens),
            output_tokens: join(self.output_tokens, other.output_tokens),
            total_tokens: join(self.total_tokens, other.total_tokens),
            wall_ms: join(self.wall_ms, other.wall_ms),
            events: join(self.events, other.events),
        }
    }

    /// Returns the smaller amount of each.
    fn least(self, other: Self) -> Self {
        self.each(other, |own, other| match (own, other) {
            (Some(own), Some(other)) => Some(own.min(other)),
            (own, other) => own.or(other),
        })
    }

    /// Adds to what is bounded.
    fn plus(self, more: Self) -> Self {
        self.each(more, |own, more| own.map(|own| own + more.unwrap_or(0)))
    }

    pub(crate) fn from_allowance(allowance: &Allowance) -> Self {
        Self {
            attempts: allowance.model_calls.map(u64::from),
            executions: allowance.tool_calls.map(u64::from),
            input_tokens: allowance.input_tokens,
            output_tokens: allowance.output_tokens,
            total_tokens: allowance.total_tokens,
            wall_ms: None,
            events: None,
        }
    }

    fn from_increase(more: &BudgetIncrease) -> Self {
        Self {
            attempts: more.max_model_calls.map(u64::from),
            executions: more.max_tool_calls.map(u64::from),
            input_tokens: more.max_input_tokens,
            output_tokens: more.max_output_tokens,
            total_tokens: more.max_total_tokens,
            wall_ms: more.max_wall_ms,
            events: more.max_events,
        }
    }
}

/// The budgets of a run at one place of its history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budgets {
    /// The agent's own, with what reopenings added.
    pub(crate) own: Room,
    /// Share of the caller's budget, with later grants.
    pub(crate) share: Option<Room>,
    /// The number of answers of the caller.
    pub(crate) grants: u32,
    /// Whether the caller can still give more.
    pub(crate) may_grow: bool,
}

impl Budgets {
    /// Reads the budgets from the events until now.
    pub(crate) fn read<'e>(rules: &Rules, events: impl Iterator<Item = &'e EventKind>) -> Self {
        let mut budgets = Self {
            own: rules.budget,
            share: rules.share,
            grants: 0,
            may_grow: rules.share.is_some(),
        };
        for event in events {
            match event {
                EventKind::RunReopened(RunReopened { budget: Some(more), .. }) => {
                    budgets = budgets.increased(more);
                }
                EventKind::BudgetGranted(BudgetGranted { run, allowance, .. })
                    if run.as_str() == rules.run =>
                {
                    budgets.grants += 1;
                    match allowance {
                        Some(more) => {
                            let more = Room::from_allowance(more);
                            budgets.share = budgets.share.map(|share| share.plus(more));
                        }
                        None => budgets.may_grow = false,
                    }
                }
                _ => {}
            }
        }
        budgets
    }

    pub(crate) fn increased(mut self, more: &BudgetIncrease) -> Self {
        let more = Room::from_increase(more);
        self.own = self.own.plus(more);
        self.share = self.share.map(|share| share.plus(more));
        self
    }

    /// Returns what the run may use.
    pub(crate) fn effective(&self) -> Room {
        self.share.map_or(self.own, |share| self.own.least(share))
    }

    /// Returns what the run may use once it is reopened: its caller may give more than it gave.
    pub(crate) fn reopened(&self) -> Room {
        if self.share.is_some() && !self.may_grow { self.effective() } else { self.own }
    }
}

/// A call of the batch that is worked on.
#[derive(Debug, Clone)]
pub(crate) struct JudgedCall {
    pub(crate) id: CallId,
    pub(crate) tool: String,
    pub(crate) arguments: String,
    pub(crate) status: CallStatus,
    /// The approval that the running call asks for.
    pub(crate) asks: Option<String>,
    /// The verdict of a person on the running call, and the output with it.
    pub(crate) settled: Option<(bool, Option<String>)>,
}

/// The place of a call between the model's answer and its own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallStatus {
    Unadmitted,
    Held { approval: String, arguments: String },
    Approved { arguments: String, changed: bool },
    Running { requested: usize, arguments: String },
    Answered { result: String },
}

impl JudgedCall {
    pub(crate) const fn is_running(&self) -> bool {
        matches!(self.status, CallStatus::Running { .. })
    }

    pub(crate) const fn is_answered(&self) -> bool {
        matches!(self.status, CallStatus::Answered { .. })
    }

    pub(crate) const fn is_held(&self) -> bool {
        matches!(self.status, CallStatus::Held { .. })
    }
}
