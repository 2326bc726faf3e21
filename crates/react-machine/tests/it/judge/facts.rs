//! Facts from outside, each with its effects.

use layer0::event::{EventKind, ToolResolved, Verdict};
use layer0::failure::Effect;
use layer0::id::CallId;
use layer0::stop::Outcome;

use super::due::Due;
use super::model::{Activity, Complaint, Judge, ModelTurn, Step};
use super::repeats::signature;

/// The consequence of a fact.
pub(super) type Read = Result<(), Complaint>;

impl Judge {
    pub(super) fn read_fact(&mut self, event: &EventKind) -> Read {
        if Self::completes_a_step(event) {
            self.crashes = 0;
        }
        match event {
            EventKind::RunReopened(it) => return self.reopen(it),
            EventKind::ToolResolved(it) => return self.settle(it),
            EventKind::ToolProbed(it) if matches!(self.activity, Activity::Over(_)) => {
                return self.settle_late(&it.call_id, it.verdict);
            }
            _ if matches!(self.activity, Activity::Over(_)) => {
                return Err("nothing comes after the end".into());
            }
            _ => {}
        }
        match event {
            EventKind::RunStarted(_) if matches!(self.activity, Activity::Unstarted) => {
                self.pause(Step::Start);
            }
            EventKind::ModelAttempted(it) => return self.note_attempt(it),
            EventKind::ModelResponded(it) => return self.note_answer(it),
            EventKind::ModelFailed(it) => {
                self.asking()?;
                self.fail(it.reason.as_str());
            }
            EventKind::BudgetExhausted(it) if it.reason.as_str() == "budget.cost_usd" => {
                // B4: a limit across runs refuses an attempt.
                self.asking()?;
                let text = self.last_text.clone();
                self.finish("budget_exhausted", Some("budget.cost_usd"), text);
            }
            EventKind::MemoryRead(_) | EventKind::MemoryDegraded(_)
                if matches!(self.activity, Activity::ReadingMemory) =>
            {
                self.begin_asking();
            }
            EventKind::MemoryWrote(_) | EventKind::MemoryDegraded(_) => {
                let Activity::WritingMemory(end) = self.activity.clone() else {
                    return Err("the memory is not asked".into());
                };
                self.end(end);
            }
            EventKind::HookPassed(it) => match self.activity.clone() {
                Activity::Hooks(point, step) if point == &*it.point => self.take_step(step),
                _ => return Err("no hook of this point is called".into()),
            },
            EventKind::HookFailed(it) if it.fail_open => {}
            EventKind::HookFailed(it) => {
                return self.note_hook(&it.point, it.call_id.as_ref(), "hook.rejected");
            }
            EventKind::HookAborted(it) => {
                return self.note_hook(&it.point, it.call_id.as_ref(), "hook.aborted");
            }
            EventKind::ToolRequested(it) => return self.note_request(it),
            EventKind::ToolResponded(it) => return self.note_tool_answer(it),
            EventKind::ToolAttempted(it) => return self.note_retry(&it.call_id, &it.reason),
            EventKind::ToolProbed(it) => {
                if it.verdict != Verdict::Unknown {
                    self.probed.insert(it.call_id.clone());
                }
            }
            EventKind::ApprovalRequested(it) => return self.note_approval_request(it),
            EventKind::ApprovalGranted(it) => return self.note_grant(it),
            EventKind::ApprovalDenied(it) => return self.note_denial(it),
            EventKind::RunRecovered(it) => return self.recover(it),
            EventKind::RunResumed(_) => self.resume(),
            EventKind::RunParked(it) => return self.park(it.until.as_millis()),
            EventKind::SignalReceived(it) if &*it.name == "cancel" => {
                if !matches!(self.activity, Activity::Hooks(_, Step::End(_))) {
                    self.cancel();
                }
            }
            EventKind::SignalReceived(it) if &*it.name == "input" => {
                self.has_further_input |= it.data.is_string();
            }
            EventKind::SignalReceived(_) | EventKind::Warning(_) => {}
            EventKind::OperatorDispatched(it) => return self.dispatch(it),
            EventKind::OperatorWaiting(it) => {
                let approvals = it.approvals.iter().map(|id| id.as_str().to_owned()).collect();
                self.below(&it.run)?.waits = Some((it.r#for, approvals));
                self.is_waiting = false;
            }
            EventKind::BudgetGranted(it) if it.run.as_str() == self.rules.run => {
                return self.take_grant();
            }
            EventKind::BudgetGranted(it) => {
                let open = self.below(&it.run)?;
                open.waits = None;
                if let Some(more) = &it.allowance {
                    open.share = open.share.plus(more);
                }
                self.is_waiting = false;
                return self.check_promises();
            }
            EventKind::OperatorReturned(it) => {
                let below = self.below(&it.run)?;
                let (call, is_unrecorded) = (below.call.clone(), below.is_unrecorded);
                let is_certain =
                    it.outcome == Outcome::Completed || it.effect == Some(Effect::None);
                if is_unrecorded && !is_certain {
                    self.acted_below.insert(call);
                }
                self.dispatches.retain(|open| open.run != it.run);
                self.is_waiting = false;
            }
            other => return Err(format!("{} is a decision that is not due", other.event_type())),
        }
        Ok(())
    }

    fn asking(&self) -> Result<ModelTurn, Complaint> {
        match self.activity {
            Activity::AskingModel(turn) => Ok(turn),
            _ => Err("no model call is open".into()),
        }
    }

    /// T9: a call that failed so often is not executed again; every execution counts.
    fn note_retry(&mut self, call: &CallId, reason: &layer0::Code) -> Read {
        let place = self.place(call)?;
        if !self.calls[place].is_running() {
            return Err("the call is not running".into());
        }
        self.close_question(place, reason.as_str());
        self.check_executions()
    }

    /// T14: each settlement takes effect once.
    fn settle(&mut self, it: &ToolResolved) -> Read {
        if self.unsettled.contains_key(&it.call_id) {
            return self.settle_late(&it.call_id, it.verdict);
        }
        let place = self.place(&it.call_id)?;
        let call = &mut self.calls[place];
        if !call.is_running() || call.settled.is_some() {
            return Err("the call is not unsettled".into());
        }
        let output = it.output.as_ref().map(|output| output.get().to_owned());
        call.settled = Some((it.verdict == Verdict::Happened, output));
        Ok(())
    }

    /// T14: an answer that was given stays; the model is told when it is asked next.
    fn settle_late(&mut self, call: &CallId, verdict: Verdict) -> Read {
        if !self.unsettled.contains_key(call) {
            return Err("the call is not unsettled".into());
        }
        if verdict != Verdict::Unknown {
            self.unsettled.remove(call);
            self.has_further_input = true;
        }
        Ok(())
    }

    fn take_grant(&mut self) -> Read {
        self.is_waiting = false;
        self.crashes = 0;
        match self.activity {
            Activity::AskingBudget(turn) => self.ask_model(turn),
            Activity::Calls if self.calls_ask_budget => {
                self.calls_ask_budget = false;
                match self.exhausted(self.budgets().effective(), true, None) {
                    Some(_) => self.look_at_calls(),
                    // Executions beyond the budget are not begun.
                    None => self.admit(self.calls.iter().map(|it| it.id.clone()).collect(), false),
                }
            }
            _ => return Err("the run asks for no budget".into()),
        }
        Ok(())
    }

    fn park(&mut self, until: i64) -> Read {
        self.parked_until = Some(until);
        match self.activity {
            Activity::AskingModel(turn) => {
                self.crashes = 0;
                let (r#for, approvals) = (layer0::event::WaitFor::Parked, Vec::new());
                self.due.push_back(Due::Waiting { r#for, approvals });
                self.is_waiting = true;
                self.activity = Activity::Parked(turn);
                Ok(())
            }
            Activity::Calls if self.is_waiting => Ok(()),
            _ => Err("nothing of the run waits for a time".into()),
        }
    }

    /// O5: a parked run asks its model once it is due.
    fn resume(&mut self) {
        let is_due = self.parked_until.is_some_and(|until| until <= self.now);
        if let Activity::Parked(turn) = self.activity
            && is_due
        {
            (self.is_waiting, self.parked_until) = (false, None);
            self.ask_model(turn);
        }
    }

    /// T9: returns whether the call failed too often to be executed.
    pub(crate) fn is_barred(&self, tool: &str, arguments: &str, limit: u64) -> bool {
        self.repetitions.failures(&signature(tool, arguments)) >= limit
    }
}
