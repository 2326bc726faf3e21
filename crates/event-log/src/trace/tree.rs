//! The lines of a run together with those of its child runs.

use std::collections::BTreeMap;

use layer0::Timestamp;
use layer0::event::{Event, EventKind};
use layer0::id::RunId;

use super::{LinePosition, Trace};
use crate::Record;

/// Indentation of a child run.
const INDENT: &str = "  ";

/// Formats the events of a run and of all its descendants, in the order of appends, each as [`Trace`] does.
///
/// A line of a child run is indented and begins with the name of its operator; a second run of the same operator is
/// `name.2`. Time counts from the start of the root run.
///
/// ```
/// use backstop_event_log::TreeTrace;
/// use layer0::Timestamp;
/// use layer0::event::{Actor, Event, EventKind, OperatorDispatched, Warning};
/// use layer0::usage::Allowance;
///
/// let allowance = Box::new(Allowance::without_bounds());
/// let dispatched = OperatorDispatched::new("hosts", "run_2", 1, "digest", allowance);
/// let event = |run: &str, kind: EventKind| Event::new(run, 1, Timestamp::default(), Actor::Runtime, kind);
///
/// let mut trace = TreeTrace::new("run_1".into());
/// assert!(trace.line(&event("run_1", dispatched.into())).ends_with("hosts as run_2"));
/// assert!(trace.line(&event("run_2", Warning::new("late").into())).contains("s    hosts: warning"));
/// ```
#[derive(Debug, Clone)]
pub struct TreeTrace {
    runs: BTreeMap<RunId, Branch>,
    /// Number of uses of each name.
    names: BTreeMap<String, u32>,
    began: Option<Timestamp>,
}

#[derive(Debug, Clone, Default)]
struct Branch {
    trace: Trace,
    /// Its caller and the name in its lines; `None` for the root run.
    below: Option<(RunId, String)>,
}

impl TreeTrace {
    /// Creates a trace before the first event of the root run.
    #[must_use]
    pub fn new(top: RunId) -> Self {
        let runs = BTreeMap::from([(top, Branch::default())]);
        Self { runs, names: BTreeMap::new(), began: None }
    }

    /// Returns the line of the next event. Runs that it dispatches become child runs of its run.
    pub fn line(&mut self, event: &Event) -> String {
        let mut place = self.place(&event.run, event.at);
        // The run is registered first, so that a run that dispatches itself is not its own child.
        self.runs.entry(event.run.clone()).or_default();
        if let EventKind::OperatorDispatched(dispatched) = &event.kind {
            let is_new = !self.runs.contains_key(&dispatched.run);
            let name = self.name(&event.run, &dispatched.run, &dispatched.operator);
            if is_new && name != *dispatched.operator {
                place.behind = format!(", {name} here");
            }
        }
        self.runs.entry(event.run.clone()).or_default().trace.line_at(event, &place)
    }

    /// Returns the line of the next event of a run, whose payload was erased.
    pub fn erased_line(&mut self, run: &RunId, record: &Record) -> String {
        let place = self.place(run, record.at);
        self.runs.entry(run.clone()).or_default().trace.erased_at(record, &place)
    }

    fn place(&mut self, run: &RunId, at: Timestamp) -> LinePosition {
        let began = Some(*self.began.get_or_insert(at));
        let above = std::iter::successors(self.below(run), |(caller, _)| self.below(caller));
        let before = match (above.count(), self.below(run)) {
            (depth, Some((_, name))) => format!("{}{name}: ", INDENT.repeat(depth)),
            (_, None) => String::new(),
        };
        LinePosition { began, before, behind: String::new() }
    }

    fn below(&self, run: &RunId) -> Option<&(RunId, String)> {
        self.runs.get(run)?.below.as_ref()
    }

    /// Returns the name in the lines of a run that its caller dispatches.
    fn name(&mut self, caller: &RunId, run: &RunId, operator: &str) -> String {
        if let Some(branch) = self.runs.get(run) {
            return branch.below.as_ref().map_or_else(String::new, |(_, name)| name.clone());
        }
        let operator = super::one_line(operator);
        let mut name = operator.clone();
        while self.names.contains_key(&name) {
            let number = self.names.entry(operator.clone()).or_insert(1);
            *number += 1;
            name = format!("{operator}.{number}");
        }
        self.names.insert(name.clone(), 1);
        let below = Some((caller.clone(), name.clone()));
        self.runs.insert(run.clone(), Branch { trace: Trace::new(), below });
        name
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use layer0::event::{Actor, BudgetGranted, OperatorDispatched, OperatorReturned};
    use layer0::event::{OperatorWaiting, RunWaiting, WaitFor, Warning};
    use layer0::stop::Outcome;
    use layer0::usage::{Allowance, Usage};

    use super::*;

    fn event(run: &str, seq: u64, kind: impl Into<EventKind>) -> Event {
        let at = Timestamp::from_millis(i64::try_from(seq).unwrap() * 10);
        Event::new(run, seq, at, Actor::Runtime, kind)
    }

    fn dispatched(operator: &str, run: &str, allowance: Allowance) -> OperatorDispatched {
        OperatorDispatched::new(operator, run, 1, "digest", Box::new(allowance))
    }

    /// Spec: D10, O3
    #[test]
    fn runs_below_are_nested_and_named() {
        let mut some = Allowance::without_bounds();
        (some.model_calls, some.input_tokens) = (Some(4), Some(900));
        some.cost_nanousd = Some(1_500_000_000);
        let mut used = Usage::default();
        (used.model_attempts, used.total_tokens, used.cost_usd) = (1, 30, Some(0.25));
        let approvals = vec!["apr_1".into(), "apr_2".into()];
        let waits =
            |r#for, approvals: &[_]| OperatorWaiting::new("a", "run_a", r#for, approvals.to_vec());
        let code: Option<layer0::Code> = Some(layer0::code::PROVIDER_TIMEOUT.into());
        let returned = OperatorReturned::new("a", "run_a", Outcome::Failed, code, used);
        let events = [
            event("run_1", 1, dispatched("a", "run_a", some)),
            event("run_1", 2, dispatched("a", "run_b", Allowance::without_bounds())),
            event("run_b", 1, dispatched("c", "run_c", Allowance::without_bounds())),
            event("run_c", 1, Warning::new("deep")),
            event("run_a", 1, RunWaiting::new(WaitFor::Budget, Vec::new())),
            event("run_1", 3, waits(WaitFor::Budget, &[])),
            event("run_1", 4, BudgetGranted::new("run_a", Some(some))),
            event("run_1", 5, BudgetGranted::new("run_a", None)),
            event("run_1", 6, waits(WaitFor::Approval, &approvals)),
            event("run_1", 7, RunWaiting::new(WaitFor::Parked, approvals)),
            event("run_1", 8, returned),
        ];
        let mut trace = TreeTrace::new("run_1".into());
        let lines: Vec<String> = events.iter().map(|event| trace.line(event)).collect();
        let expected = [
            "   1      0.000s  operator.dispatched             a as run_a, may use 4 model calls, 900 tokens in, $1.5000",
            "   2      0.010s  operator.dispatched             a as run_b, a.2 here",
            "   1      0.000s    a.2: operator.dispatched             c as run_c",
            "   1      0.000s      c: warning                         deep",
            "   1      0.000s    a: run.waiting                     waits for budget",
            "   3      0.020s  operator.waiting                a waits for budget",
            "   4      0.030s  budget.granted                  4 model calls, 900 tokens in, $1.5000 to run_a",
            "   5      0.040s  budget.granted                  nothing to run_a",
            "   6      0.050s  operator.waiting                a waits for 2 decisions: apr_1 apr_2",
            "   7      0.060s  run.waiting                     waits for the end of a pause, and for 2 decisions: apr_1 apr_2",
            "   8      0.070s  operator.returned               a failed (provider.timeout): 1 model call, 30 tokens, $0.2500",
        ];
        assert_eq!(lines, expected);
        // A record in which a run is its own descendant is not a tree, and is printed all the same.
        let own: Arc<str> = "run_c".into();
        trace.line(&event("run_c", 2, dispatched("b", &own, Allowance::without_bounds())));
        trace.line(&event("run_x", 1, dispatched("x", "run_y", Allowance::without_bounds())));
        trace.line(&event("run_y", 1, dispatched("y", "run_x", Allowance::without_bounds())));
        let line = trace.line(&event("run_x", 2, Warning::new("late")));
        assert!(line.ends_with("s  warning                         late"), "{line}");
    }
}
