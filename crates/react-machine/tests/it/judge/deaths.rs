//! D5: what a new process does with what a dead one left open.

use layer0::event::RunRecovered;
use layer0::id::CallId;

use super::due::DueAnswer;
use super::facts::Read;
use super::history::Performed;
use super::model::{Activity, Judge, ModelTurn, RunEnd, Step};
use super::rules::{CallStatus, Room};

/// So many deaths in a row end the run.
const MAX_DEATHS: u32 = 3;

/// The running calls that a dead process left, each kind in call order.
#[derive(Debug, PartialEq)]
struct LostCalls {
    rerun: Vec<CallId>,
    probing: Vec<CallId>,
    interrupted: Vec<CallId>,
}

impl Judge {
    /// Repeats what is safe, answers what is not, and asks an open model call again.
    pub(super) fn recover(&mut self, it: &RunRecovered) -> Read {
        let lost = self.lost();
        let (rerun, probing) = (it.rerun.clone(), it.probing.clone());
        let named = LostCalls { rerun, probing, interrupted: it.interrupted.clone() };
        // An attempt that is recorded is not lost, and one that the budget had no room for never began.
        let in_flight = matches!(self.activity, Activity::AskingModel(turn) if !turn.is_recorded);
        let attempts = self.used().attempts - u64::from(it.models);
        let limit = self.budgets().effective().attempts;
        let models = u32::from(in_flight && limit.is_none_or(|limit| attempts < limit));
        if named != lost || it.models != models {
            return Err(format!("{it:?} does not say what was open: {lost:?}"));
        }
        self.check_executions()?;
        let names_some = it.rerun.len() + it.probing.len() + it.interrupted.len() > 0;
        let counts = names_some || !self.only_waits_below();
        self.crashes += u32::from(counts);
        if counts && self.crashes >= MAX_DEATHS {
            self.end_crash_loop();
            return Ok(());
        }
        for place in 0..self.calls.len() {
            self.close_question(place, "tool.interrupted");
        }
        match self.activity.clone() {
            Activity::AskingModel(turn) => {
                let attempts = turn.attempts + models;
                self.ask_model(ModelTurn { attempts, is_given_up: false, ..turn });
                return self.check_attempts();
            }
            Activity::Calls => self.work_again(&lost),
            Activity::Hooks(point, _) => self.due_effects.push(Performed::Hooks(point)),
            Activity::ReadingMemory => self.due_effects.push(Performed::ReadMemory),
            Activity::WritingMemory(_) => self.due_effects.push(Performed::WriteMemory),
            _ => {}
        }
        Ok(())
    }

    /// Returns the running calls that run again, are asked about, and are answered as interrupted.
    fn lost(&self) -> LostCalls {
        let is_last = self.crashes + 1 >= MAX_DEATHS && !self.only_waits_below();
        let (rerun, probing, interrupted) = (Vec::new(), Vec::new(), Vec::new());
        let mut lost = LostCalls { rerun, probing, interrupted };
        // The event itself is no room that is used yet.
        let room = self.budgets().effective();
        let mut left = self.left_before_recovery(room);
        for call in self.calls.iter().filter(|call| call.is_running() && call.settled.is_none()) {
            let facts = self.rules.tool(&call.tool);
            if self.resumes(&call.id, &call.tool) {
                continue;
            }
            if !is_last && facts.is_idempotent && left > 0 {
                left -= 1;
                lost.rerun.push(call.id.clone());
            } else if !is_last && facts.has_probe && !facts.is_idempotent {
                lost.probing.push(call.id.clone());
            } else {
                lost.interrupted.push(call.id.clone());
            }
        }
        lost
    }

    /// Returns the executions that were left before the `run.recovered` that was just read.
    fn left_before_recovery(&self, room: Room) -> u64 {
        let mut before = self.clone();
        before.events.pop();
        before.executions_left(room, true)
    }

    /// O3: a call that only dispatches goes on with what it dispatched.
    pub(super) fn resumes(&self, call: &CallId, tool: &str) -> bool {
        let mut open = self.dispatches.iter();
        self.rules.tool(tool).only_dispatches
            && !open.any(|open| open.call == *call && open.is_unrecorded)
    }

    /// Returns whether nothing is in flight but runs below, which count their own deaths.
    fn only_waits_below(&self) -> bool {
        matches!(self.activity, Activity::Calls)
            && !self.dispatches.is_empty()
            && self.calls.iter().all(|call| match call.status {
                CallStatus::Answered { .. } | CallStatus::Held { .. } => true,
                CallStatus::Running { .. } => {
                    call.asks.is_none() && self.resumes(&call.id, &call.tool)
                }
                _ => false,
            })
    }

    fn work_again(&mut self, LostCalls { probing, interrupted, .. }: &LostCalls) {
        let mut unadmitted = Vec::new();
        let (mut agreed, mut changed_calls) = (Vec::new(), Vec::new());
        for call in &self.calls {
            match &call.status {
                CallStatus::Unadmitted => unadmitted.push(call.id.clone()),
                CallStatus::Approved { changed: true, .. } => changed_calls.push(call.id.clone()),
                CallStatus::Approved { .. } => agreed.push(call.id.clone()),
                CallStatus::Held { approval, .. } => {
                    self.due_effects.push(Performed::AskApproval(approval.clone()));
                }
                CallStatus::Running { .. } if call.settled.is_some() => {}
                CallStatus::Running { .. } if probing.contains(&call.id) => {
                    self.due_effects.push(Performed::Probe(call.id.clone()));
                }
                CallStatus::Running { .. } if !interrupted.contains(&call.id) => {
                    self.due_effects.push(Performed::Rerun(call.id.clone()));
                }
                _ => {}
            }
        }
        if self.calls_ask_budget {
            unadmitted.clear();
        }
        for (calls, approved) in [(unadmitted, false), (agreed, true), (changed_calls, true)] {
            if !calls.is_empty() {
                self.admit(calls, approved);
            }
        }
        self.answer_what_is_known(interrupted);
    }

    /// Answers settled calls, then those that may have acted.
    fn answer_what_is_known(&mut self, interrupted: &[CallId]) {
        let settled = (0..self.calls.len()).filter(|it| self.calls[*it].settled.is_some());
        let open = (0..self.calls.len()).filter(|it| interrupted.contains(&self.calls[*it].id));
        for place in settled.chain(open).collect::<Vec<_>>() {
            let id = self.calls[place].id.clone();
            if self.calls[place].settled.is_some() {
                self.answer_settled(place);
            } else {
                self.answer_interrupted(place);
            }
            if let Some((_, reason)) = self.stops_after.take_if(|(after, _)| *after == id) {
                return self.stop_by_hook(&reason);
            }
        }
        self.continue_once_answered();
    }

    fn answer_interrupted(&mut self, place: usize) {
        let (call, reason) = (self.calls[place].id.clone(), Some("tool.interrupted"));
        let text = "may already have acted";
        self.answer_due(DueAnswer { call, reason, text });
        self.note_outcome(place, reason);
        self.calls[place].status = CallStatus::Answered { result: String::new() };
        self.close_question(place, "tool.interrupted");
    }

    /// D5: the run fails; what was open is answered, nothing is done again.
    fn end_crash_loop(&mut self) {
        for place in 0..self.calls.len() {
            if self.calls[place].settled.is_some() {
                self.answer_settled(place);
            } else if self.calls[place].is_running() {
                self.answer_interrupted(place);
            }
        }
        let is_ending = matches!(self.activity, Activity::Hooks(_, Step::End(_)));
        self.answer_open();
        if is_ending {
            let (outcome, reason) = ("failed", Some("run.crash_loop".to_owned()));
            let (output, evidence) = (String::new(), None);
            self.take_step(Step::End(RunEnd { outcome, reason, output, evidence }));
        } else {
            self.fail("run.crash_loop");
        }
    }
}
