//! The calls of one answer: admission, executions, approvals, answers.

use layer0::event::{
    ApprovalDenied, ApprovalGranted, ApprovalRequested, ToolRequested, ToolResponded, WaitFor,
};
use layer0::id::CallId;

use super::budgets::UsedUp;
use super::due::{Due, DueAnswer};
use super::history::{Performed, own_executions};
use super::model::{Activity, Complaint, Judge};
use super::repeats::{result, signature};
use super::rules::CallStatus;

/// T3: refusals, which leave nothing open.
const REFUSALS: [&str; 7] = [
    "tool.approval_denied",
    "tool.done_elsewhere",
    "tool.invalid_input",
    "tool.not_found",
    "tool.permission_denied",
    "tool.repeated_failure",
    "tool.skipped",
];

impl Judge {
    /// Asks which calls may run, after the budgets.
    pub(super) fn look_at_calls(&mut self) {
        let room = self.budgets().effective();
        let crossed = self.exhausted(room, true, None);
        let own = self.executions_left(self.budgets().own, false);
        let left = self.executions_left(room, true);
        let can_help = crossed.is_some() || left < self.calls.len() as u64 && own > left;
        if can_help && self.may_be_given(None) {
            self.wait_for_budget();
            self.calls_ask_budget = true;
            return;
        }
        match crossed {
            Some(exhausted) => self.exhaust(exhausted),
            None => self.admit(self.calls.iter().map(|call| call.id.clone()).collect(), false),
        }
    }

    pub(super) fn admit(&mut self, calls: Vec<CallId>, approved: bool) {
        let max_executions = self.executions_left(self.budgets().effective(), true);
        self.due_effects.push(Performed::Admit { calls, max_executions, approved });
    }

    pub(super) fn place(&self, id: &CallId) -> Result<usize, Complaint> {
        let place = self.calls.iter().position(|call| call.id == *id);
        let is_open = matches!(self.activity, Activity::Calls);
        place.filter(|_| is_open).ok_or_else(|| format!("no open call {id}"))
    }

    /// D2, B2: a call runs once, and within the budget.
    pub(super) fn note_request(&mut self, it: &ToolRequested) -> Result<(), Complaint> {
        let place = self.place(&it.call_id)?;
        let arguments = it.arguments.get().to_owned();
        match &self.calls[place].status {
            CallStatus::Unadmitted => {}
            CallStatus::Approved { arguments: agreed, .. } if *agreed == arguments => {}
            other => return Err(format!("the call is {other:?}")),
        }
        if it.execution != own_executions(self.kinds()) {
            return Err("it is not the next execution".into());
        }
        self.check_executions()?;
        let requested = self.events.len();
        self.calls[place].status = CallStatus::Running { requested, arguments };
        self.due_effects.push(Performed::Run(it.call_id.clone()));
        Ok(())
    }

    /// B2: executions are never above the budget.
    pub(super) fn check_executions(&self) -> Result<(), Complaint> {
        let (used, limit) = (self.used().executions, self.budgets().effective().executions);
        match limit.is_some_and(|limit| used > limit) {
            true => Err(format!("{used} executions of {limit:?}")),
            false => Ok(()),
        }
    }

    /// T2: one answer per call; T14: which of them leave the outcome open.
    pub(super) fn note_tool_answer(&mut self, it: &ToolResponded) -> Result<(), Complaint> {
        let place = self.place(&it.call_id)?;
        if self.dispatches.iter().any(|open| open.call == it.call_id) {
            return Err("what it dispatched has not returned".into());
        }
        match self.calls[place].status.clone() {
            CallStatus::Running { arguments, .. } => {
                let key = signature(&self.calls[place].tool, &arguments);
                self.repetitions.note_execution(key, it);
                self.note_outcome(place, it.error.as_ref().map(|error| error.reason.as_str()));
                self.calls[place].settled = None;
            }
            CallStatus::Unadmitted | CallStatus::Approved { .. } => {
                let is_cancelled =
                    it.error.as_ref().is_some_and(|it| it.reason.as_str() == "tool.cancelled");
                self.has_cancelled |= is_cancelled;
            }
            other => return Err(format!("the call is {other:?}")),
        }
        self.calls[place].status = CallStatus::Answered { result: result(it) };
        let why = it.error.as_ref().map_or("approval.expired", |error| error.reason.as_str());
        self.close_question(place, why);
        match self.stops_after.take() {
            Some((call, reason)) if call == it.call_id => self.stop_by_hook(&reason),
            other => {
                self.stops_after = other;
                self.go_on();
            }
        }
        Ok(())
    }

    /// Notes whether the outcome of a call that began stays unknown.
    pub(super) fn note_outcome(&mut self, place: usize, failure: Option<&str>) {
        let (id, tool) = (self.calls[place].id.clone(), self.calls[place].tool.clone());
        let facts = self.rules.tool(&tool);
        // T14: a probe said it, or a person.
        let is_certain = self.probed.remove(&id) || self.calls[place].settled.is_some();
        let is_harmless = facts.is_idempotent || self.is_known_below(&id, facts.only_dispatches);
        if failure.is_some_and(|it| !REFUSALS.contains(&it)) && !is_certain && !is_harmless {
            self.unsettled.insert(id, tool);
        }
    }

    /// O3: the record of a run below says what happened; a run without a record is treated as a tool.
    pub(super) fn is_known_below(&self, call: &CallId, only_dispatches: bool) -> bool {
        only_dispatches && !self.acted_below.contains(call)
    }

    /// A3: what a running call asks is closed with it.
    pub(super) fn close_question(&mut self, place: usize, reason: &str) {
        if let Some(approval) = self.calls[place].asks.take() {
            self.due.push_back(Due::Closed { approval, reason: reason.to_owned() });
        }
    }

    /// Asks the model once all calls are answered, or waits for people.
    pub(super) fn go_on(&mut self) {
        if !self.calls.iter().all(|call| call.is_answered()) {
            return self.wait_if_idle();
        }
        self.repetitions.note_results(&self.calls);
        self.messages += u32::try_from(self.calls.len()).unwrap();
        self.calls.clear();
        let limit = self.budgets().effective().executions;
        let used = self.used().executions;
        match limit.filter(|limit| self.has_cancelled && used >= *limit) {
            Some(limit) => self.exhaust(UsedUp { budget: "tool_calls", limit, used }),
            None => self.next_turn(),
        }
    }

    /// T2: the run waits when nothing else is in flight.
    fn wait_if_idle(&mut self) {
        let is_idle = self.calls.iter().all(|call| call.is_answered() || call.is_held());
        if is_idle && !self.is_waiting {
            let approvals = self.held();
            self.due.push_back(Due::Waiting { r#for: WaitFor::Approval, approvals });
            self.is_waiting = true;
        }
    }

    pub(super) fn held(&self) -> Vec<String> {
        let held = self.calls.iter().filter_map(|call| match &call.status {
            CallStatus::Held { approval, .. } => Some(approval.clone()),
            _ => None,
        });
        held.collect()
    }

    /// A1, A3: a call waits for a person, or a running one asks.
    pub(super) fn note_approval_request(
        &mut self,
        it: &ApprovalRequested,
    ) -> Result<(), Complaint> {
        let (place, id) = (self.place(&it.call_id)?, it.approval_id.as_str().to_owned());
        if !self.approvals.insert(id.clone()) {
            return Err("the approval was asked for before".into());
        }
        self.due_effects.push(Performed::AskApproval(id.clone()));
        let call = &mut self.calls[place];
        if it.message.is_some() {
            if !call.is_running() || call.asks.is_some() {
                return Err("the call cannot ask".into());
            }
            call.asks = Some(id);
            self.is_waiting = false;
            return Ok(());
        }
        if call.status != CallStatus::Unadmitted {
            return Err(format!("the call is {:?}", call.status));
        }
        let expires = self.rules.tool(&call.tool).expires_after_ms.map(|after| self.now + after);
        if it.expires_at.map(|at| at.as_millis()) != expires {
            return Err(format!("it expires at {:?}, not {expires:?}", it.expires_at));
        }
        let arguments = it.arguments.get().to_owned();
        call.status = CallStatus::Held { approval: id, arguments };
        self.wait_if_idle();
        Ok(())
    }

    pub(super) fn note_grant(&mut self, it: &ApprovalGranted) -> Result<(), Complaint> {
        let place = self.place(&it.call_id)?;
        self.is_waiting = false;
        let id = Some(it.approval_id.as_str());
        if self.calls[place].asks.as_deref() == id {
            self.calls[place].asks = None;
            return Ok(());
        }
        let arguments = self.held_arguments(place, id)?;
        let changed = it.arguments.is_some();
        let arguments = it.arguments.as_ref().map_or(arguments, |new| new.get().to_owned());
        self.calls[place].status = CallStatus::Approved { arguments, changed };
        self.admit(vec![it.call_id.clone()], true);
        Ok(())
    }

    fn held_arguments(&self, place: usize, id: Option<&str>) -> Result<String, Complaint> {
        match &self.calls[place].status {
            CallStatus::Held { approval, arguments } if Some(&**approval) == id => {
                Ok(arguments.clone())
            }
            _ => Err("no such approval is open".into()),
        }
    }

    /// A2: the identical call is denied with it.
    pub(super) fn note_denial(&mut self, it: &ApprovalDenied) -> Result<(), Complaint> {
        let place = self.place(&it.call_id)?;
        self.is_waiting = false;
        let id = Some(it.approval_id.as_str());
        if self.calls[place].asks.as_deref() == id {
            self.calls[place].asks = None;
            return Ok(());
        }
        let denied = self.held_arguments(place, id)?;
        let tool = self.calls[place].tool.clone();
        let alike = (0..self.calls.len()).filter(|other| {
            let call = &self.calls[*other];
            let held =
                matches!(&call.status, CallStatus::Held { arguments, .. } if *arguments == denied);
            *other != place && held && call.tool == tool
        });
        let alike: Vec<_> = std::iter::once(place).chain(alike).collect();
        for place in alike {
            let (call, reason) = (self.calls[place].id.clone(), Some("tool.approval_denied"));
            self.answer_due(DueAnswer { call, reason, text: "Denied" });
        }
        self.goes_on_next = true;
        Ok(())
    }
}
