//! Ends: budgets, cancellation, hooks, the time, and what opens a run again.

use layer0::event::{EventKind, RunReopened};
use layer0::usage::BudgetIncrease;

use super::budgets::UsedUp;
use super::due::{Due, DueAnswer};
use super::history::Performed;
use super::model::{Activity, Beginning, Complaint, Judge, RunEnd, Step};
use super::rules::CallStatus;

/// D12: ends whose next episode begins with a word.
const NEEDS_A_WORD: [&str; 5] = [
    "guard.loop_detected",
    "guard.max_iterations",
    "guard.parallel_tool_limit",
    "guard.stagnation",
    "run.cancelled",
];

impl Judge {
    /// B2: exactly one event, every open call answered, partial output kept.
    pub(super) fn exhaust(&mut self, UsedUp { budget, limit, used }: UsedUp) {
        self.due.push_back(Due::Exhausted { budget, limit, used });
        self.answer_open();
        let text = self.last_text.clone();
        self.finish("budget_exhausted", Some(&format!("budget.{budget}")), text);
    }

    /// B3: every open call is answered.
    pub(super) fn cancel(&mut self) {
        self.answer_open();
        let text = self.last_text.clone();
        self.finish("cancelled", Some("run.cancelled"), text);
    }

    pub(super) fn stop_by_hook(&mut self, reason: &str) {
        self.answer_open();
        self.fail(reason);
    }

    /// Ends the run; the memory keeps a completed or incomplete one.
    pub(super) fn finish(&mut self, outcome: &'static str, reason: Option<&str>, output: String) {
        let reason = reason.map(str::to_owned);
        let end = RunEnd { outcome, reason, output, evidence: None };
        if self.rules.has_memory && ["completed", "incomplete"].contains(&outcome) {
            self.due_effects.push(Performed::WriteMemory);
            self.activity = Activity::WritingMemory(end);
        } else {
            self.end(end);
        }
    }

    pub(super) fn end(&mut self, end: RunEnd) {
        (self.is_waiting, self.parked_until) = (false, None);
        if self.messages == 0 {
            self.messages = self.instructions + 1;
        }
        self.pause(Step::End(end));
    }

    /// Answers every open call: settled ones as settled, begun ones as what may have acted.
    pub(super) fn answer_open(&mut self) {
        if let Activity::Hooks(_, Step::Read(_, answer)) = &self.activity {
            let answer = answer.clone();
            return self.give_up_answer(&answer);
        }
        if !matches!(self.activity, Activity::Calls) {
            return;
        }
        for place in 0..self.calls.len() {
            if self.calls[place].settled.is_some() {
                self.answer_settled(place);
            }
        }
        let begun = self.begun();
        let mut questions = Vec::new();
        for place in 0..self.calls.len() {
            let call = &mut self.calls[place];
            questions.extend(call.asks.take());
            if call.is_answered() {
                continue;
            }
            let has_begun = begun.contains(&place);
            let text = if has_begun { "may already have acted" } else { "Cancelled" };
            let (call, reason) = (call.id.clone(), Some("tool.cancelled"));
            self.answer_due(DueAnswer { call, reason, text });
            if has_begun {
                self.note_outcome(place, Some("tool.cancelled"));
            }
        }
        for approval in questions {
            let reason = "tool.cancelled".to_owned();
            self.due.push_back(Due::Closed { approval, reason });
        }
        self.messages += u32::try_from(self.calls.len()).unwrap();
        self.calls.clear();
    }

    /// T14: tools begin in the order of their requests, so many at a time; one that waits for a run below
    /// makes room. Returns the begun ones that are not safe to repeat.
    fn begun(&self) -> Vec<usize> {
        let mut running: Vec<(usize, usize)> = Vec::new();
        for (place, call) in self.calls.iter().enumerate() {
            if let CallStatus::Running { requested, .. } = call.status {
                running.push((requested, place));
            }
        }
        running.sort_unstable();
        let dispatched =
            |place: usize| self.dispatches.iter().any(|open| open.call == self.calls[place].id);
        let waiting = running.iter().filter(|(_, place)| dispatched(*place)).count();
        let places = running.iter().map(|(_, place)| *place);
        let begun = places.take(self.rules.max_concurrent_tools + waiting);
        begun
            .filter(|place| {
                let facts = self.rules.tool(&self.calls[*place].tool);
                let id = &self.calls[*place].id;
                !facts.is_idempotent && !self.is_known_below(id, facts.only_dispatches)
            })
            .collect()
    }

    /// Answers a running call as a person settled it.
    pub(super) fn answer_settled(&mut self, place: usize) {
        let call = &mut self.calls[place];
        let Some((happened, output)) = call.settled.clone() else { return };
        let (id, reason) = (call.id.clone(), (!happened).then_some("tool.interrupted"));
        let text = if happened { "" } else { "did not happen" };
        call.status = CallStatus::Answered { result: output.unwrap_or_default() };
        self.answer_due(DueAnswer { call: id, reason, text });
        self.note_outcome(place, reason);
        self.calls[place].settled = None;
        self.close_question(place, reason.unwrap_or("approval.expired"));
    }

    /// B3, O2: a process told the time. Of a wait, only the time before it counts.
    pub(super) fn tell(&mut self, at: i64) {
        let is_ending = matches!(
            self.activity,
            Activity::Unstarted
                | Activity::WritingMemory(_)
                | Activity::Over(_)
                | Activity::Hooks(_, Step::End(_))
        );
        if is_ending {
            return;
        }
        let room = self.budgets().effective();
        let exhausted = match self.activity {
            Activity::AskingModel(turn) if turn.is_given_up => {
                self.exhausted(room, false, Some(at))
            }
            _ => None,
        };
        let wall = self.wall_ms(Some(at));
        let over = room.wall_ms.filter(|limit| wall >= *limit);
        let over = over.map(|limit| UsedUp { budget: "wall_time", limit, used: wall });
        let exhausted = exhausted.filter(|it| !["wall_time", "events"].contains(&it.budget));
        let Some(exhausted) = exhausted.or(over) else { return };
        self.now = self.now.max(at);
        match self.activity {
            Activity::AskingModel(turn) if turn.is_given_up => {
                self.ask_caller_or_exhaust(turn, exhausted, Some(at));
            }
            _ => self.exhaust(exhausted),
        }
    }

    /// D12: returns whether the run can be reopened with so much more.
    pub(super) fn may_reopen(&self, more: Option<&BudgetIncrease>) -> bool {
        let Activity::Over(end) = &self.activity else { return false };
        let Some(reason) = &end.reason else { return false };
        if reason == "input.invalid" {
            return false;
        }
        let budgets = more.map_or_else(|| self.budgets(), |more| self.budgets().increased(more));
        let mut room = budgets.reopened();
        // The event that opens it counts.
        room.events = room.events.map(|limit| limit.saturating_sub(1));
        let used = self.used().executions;
        let lacks =
            reason == "budget.tool_calls" && room.executions.is_some_and(|limit| used >= limit);
        !lacks && self.exhausted(room, false, None).is_none()
    }

    pub(super) fn reopen(&mut self, it: &RunReopened) -> Result<(), Complaint> {
        let Activity::Over(end) = self.activity.clone() else {
            return Err("the run is open".into());
        };
        let reason = end.reason.clone().ok_or("the run completed")?;
        if it.reason.as_ref().map(|reason| reason.as_str()) != Some(&*reason) {
            return Err(format!("the run ended with {reason}"));
        }
        let calls = self.model_calls();
        let needs = NEEDS_A_WORD.contains(&&*reason) || end.outcome == "incomplete";
        if needs && calls > 0 && it.message.is_none() {
            return Err(format!("nothing is said after {reason}"));
        }
        if let Some(evidence) = &end.evidence {
            self.repetitions.forgive(evidence);
        }
        self.has_further_input |= it.message.is_some();
        self.calls_before = calls;
        self.dispatches.clear();
        (self.is_waiting, self.crashes) = (false, 0);
        match self.beginning {
            Beginning::Unadmitted => self.pause(Step::Start),
            Beginning::Admitted => self.recall(),
            Beginning::Done => self.next_turn(),
        }
        Ok(())
    }

    /// H1: a hook stops the run, or lets it go on.
    pub(super) fn note_hook(
        &mut self,
        point: &str,
        call: Option<&layer0::id::CallId>,
        reason: &'static str,
    ) -> Result<(), Complaint> {
        match &self.activity {
            Activity::Hooks(_, Step::End(end)) if point == "run_end" => {
                let failed = reason.to_owned();
                let end = match end.outcome {
                    "failed" => end.clone(),
                    _ => RunEnd {
                        outcome: "failed",
                        reason: Some(failed),
                        output: String::new(),
                        evidence: None,
                    },
                };
                self.take_step(Step::End(end));
            }
            Activity::Hooks(at, _) if *at == point => self.stop_by_hook(reason),
            Activity::Calls if ["before_tool", "after_tool"].contains(&point) => {
                let running = call.filter(|id| {
                    self.calls.iter().any(|call| call.id == **id && call.is_running())
                });
                match running.filter(|_| point == "after_tool") {
                    Some(id) if self.stops_after.is_none() => {
                        self.stops_after = Some((id.clone(), reason.to_owned()));
                    }
                    Some(_) => {}
                    None => self.stop_by_hook(reason),
                }
            }
            _ => return Err("no hook of this point is called".into()),
        }
        Ok(())
    }

    /// O2, A1: the run and all that is below it do nothing but wait.
    pub(super) fn wait_below(&mut self) {
        if self.is_waiting || !matches!(self.activity, Activity::Calls) {
            return;
        }
        let waits = |call: &super::rules::JudgedCall| {
            let mut below = self.dispatches.iter().filter(|open| open.call == call.id).peekable();
            below.peek().is_some() && below.all(|open| open.waits.is_some())
        };
        let is_idle = self.calls.iter().all(|call| {
            call.is_answered()
                || call.is_held()
                || call.is_running() && call.asks.is_none() && waits(call)
        });
        if !is_idle {
            return;
        }
        let below: Vec<_> = self.dispatches.iter().filter_map(|open| open.waits.clone()).collect();
        let mut approvals = self.held();
        approvals.extend(below.iter().flat_map(|(_, approvals)| approvals.clone()));
        let r#for = match (approvals.is_empty(), below.first()) {
            (false, _) => layer0::event::WaitFor::Approval,
            (true, Some((r#for, _))) => *r#for,
            (true, None) => return,
        };
        self.due.push_back(Due::Waiting { r#for, approvals });
        self.is_waiting = true;
    }

    /// D5: returns whether an event completes a step, so that deaths are counted anew.
    pub(super) fn completes_a_step(event: &EventKind) -> bool {
        match event {
            EventKind::HookFailed(failed) => !failed.fail_open,
            EventKind::ApprovalDenied(_)
            | EventKind::ApprovalGranted(_)
            | EventKind::BudgetExhausted(_)
            | EventKind::HookAborted(_)
            | EventKind::HookPassed(_)
            | EventKind::MemoryDegraded(_)
            | EventKind::MemoryRead(_)
            | EventKind::MemoryWrote(_)
            | EventKind::ModelAttempted(_)
            | EventKind::ModelFailed(_)
            | EventKind::ModelResponded(_)
            | EventKind::ToolAttempted(_)
            | EventKind::ToolResponded(_) => true,
            _ => false,
        }
    }
}
