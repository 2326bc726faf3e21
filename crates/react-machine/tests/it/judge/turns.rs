//! Model turns: hooks, budgets and the call before each, and the answer after it.

use layer0::event::{ModelAttempted, ModelResponded, WaitFor};
use layer0::message::StopReason;

use super::budgets::UsedUp;
use super::due::{Due, DueAnswer};
use super::history::Performed;
use super::model::{Activity, Beginning, Complaint, Judge, ModelTurn, RunEnd, Step};
use super::repeats::GuardTrip;
use super::rules::{CallStatus, JudgedCall};

/// P9: how often in a row a paused turn is sent again.
const MAX_PAUSES: u32 = 5;

impl Judge {
    /// Calls the hooks of a point, or takes the step at once.
    pub(super) fn pause(&mut self, step: Step) {
        let point = match step {
            Step::Start => "run_start",
            Step::Ask(_) => "before_model",
            Step::Read(..) => "after_model",
            Step::End(_) => "run_end",
        };
        if self.rules.has_hooks {
            self.due_effects.push(Performed::Hooks(point));
            self.activity = Activity::Hooks(point, step);
        } else {
            self.take_step(step);
        }
    }

    pub(super) fn take_step(&mut self, step: Step) {
        match step {
            Step::Start => self.check_input(),
            Step::Ask(turn) => match self.exhausted(self.budgets().effective(), false, None) {
                Some(exhausted) => self.exhaust(exhausted),
                None => self.request_model(turn),
            },
            Step::Read(turn, answer) => self.read_answer(turn, &answer),
            Step::End(end) => {
                self.due.push_back(Due::End(end.clone()));
                self.activity = Activity::Over(end);
            }
        }
    }

    /// H1: the input is looked at after the hooks of the start.
    fn check_input(&mut self) {
        let Some((_, layer0::event::EventKind::RunStarted(started))) = self.events.first() else {
            return;
        };
        if started.input.trim().is_empty() {
            return self.fail("input.invalid");
        }
        self.beginning = Beginning::Admitted;
        self.recall();
    }

    pub(super) fn recall(&mut self) {
        if self.rules.has_memory {
            self.due_effects.push(Performed::ReadMemory);
            self.activity = Activity::ReadingMemory;
        } else {
            self.begin_asking();
        }
    }

    pub(super) fn begin_asking(&mut self) {
        self.beginning = Beginning::Done;
        self.messages = self.instructions + 1;
        self.next_turn();
    }

    /// G1: at most so many model calls an episode.
    pub(super) fn next_turn(&mut self) {
        let (made, max) = (self.model_calls(), self.rules.max_iterations);
        if made - self.calls_before >= max {
            let (reason, count) = ("guard.max_iterations", u64::from(max));
            let trip = GuardTrip { reason, count, limit: count, evidence: None };
            self.due.push_back(Due::Guard(trip));
            return self.fail(reason);
        }
        self.ask_model(ModelTurn { call: made + 1, ..ModelTurn::default() });
    }

    /// B2: budgets are looked at before each attempt.
    pub(super) fn ask_model(&mut self, turn: ModelTurn) {
        match self.exhausted(self.budgets().effective(), false, None) {
            Some(exhausted) => self.ask_caller_or_exhaust(turn, exhausted, None),
            None => self.pause(Step::Ask(turn)),
        }
    }

    /// Asks the caller where only its share is used up, and it may give more.
    pub(super) fn ask_caller_or_exhaust(
        &mut self,
        turn: ModelTurn,
        exhausted: UsedUp,
        told: Option<i64>,
    ) {
        if !self.may_be_given(told) {
            return self.exhaust(exhausted);
        }
        self.wait_for_budget();
        self.activity = Activity::AskingBudget(turn);
    }

    pub(super) fn may_be_given(&self, told: Option<i64>) -> bool {
        let budgets = self.budgets();
        budgets.may_grow && self.exhausted(budgets.own, false, told).is_none()
    }

    pub(super) fn wait_for_budget(&mut self) {
        let given = self.budgets().grants;
        self.due.push_back(Due::Waiting { r#for: WaitFor::Budget, approvals: Vec::new() });
        self.due_effects.push(Performed::AskBudget { given });
        self.is_waiting = true;
    }

    fn request_model(&mut self, turn: ModelTurn) {
        let further = u32::from(std::mem::take(&mut self.has_further_input));
        self.messages += further;
        let (call, messages) = (turn.call, self.messages);
        self.due.push_back(Due::ModelRequested { call, messages });
        let attempts_before = turn.attempts;
        self.due_effects.push(Performed::CallModel { call, attempts_before });
        self.activity =
            Activity::AskingModel(ModelTurn { is_given_up: false, is_recorded: false, ..turn });
    }

    pub(super) fn note_attempt(&mut self, attempted: &ModelAttempted) -> Result<(), Complaint> {
        let Activity::AskingModel(turn) = &mut self.activity else {
            return Err("no model call is open".into());
        };
        turn.attempts += 1;
        if (attempted.call, attempted.attempt) != (turn.call, turn.attempts) {
            return Err("it is not the next attempt".into());
        }
        turn.is_recorded = attempted.code.is_none() || attempted.delay_ms.is_none();
        turn.is_given_up = attempted.code.is_some() && attempted.delay_ms.is_none();
        self.check_attempts()
    }

    /// B2: attempts are never above the budget.
    pub(super) fn check_attempts(&self) -> Result<(), Complaint> {
        let (used, limit) = (self.used().attempts, self.budgets().effective().attempts);
        match limit.is_some_and(|limit| used > limit) {
            true => Err(format!("{used} attempts of {limit:?}")),
            false => Ok(()),
        }
    }

    pub(super) fn note_answer(&mut self, answer: &ModelResponded) -> Result<(), Complaint> {
        let Activity::AskingModel(turn) = self.activity else {
            return Err("no model call is open".into());
        };
        if answer.call != turn.call {
            return Err("it answers another call".into());
        }
        // D5: a repeated id gets a suffix.
        for call in &*answer.tool_calls {
            if !self.call_ids.insert(call.id.clone()) {
                return Err(format!("call {} was made before", call.id));
            }
        }
        if !answer.text.trim().is_empty() {
            self.last_text = answer.text.to_string();
        }
        self.pause(Step::Read(turn, Box::new(answer.clone())));
        Ok(())
    }

    fn read_answer(&mut self, turn: ModelTurn, answer: &ModelResponded) {
        let is_pause = matches!(answer.stop_reason, StopReason::Pause);
        let count = if is_pause { 0 } else { self.repetitions.count_text(&answer.text) };
        let is_blank = answer.text.trim().is_empty();
        let (calls, text) = (answer.tool_calls.len(), answer.text.to_string());
        match &answer.stop_reason {
            StopReason::End | StopReason::ToolUse if calls > 0 => self.begin_calls(answer, count),
            StopReason::End | StopReason::ToolUse if is_blank => {
                self.ask_once_more(turn, "provider.invalid_response");
            }
            StopReason::End | StopReason::ToolUse => {
                self.messages += 1;
                self.finish("completed", None, text);
            }
            StopReason::ContextExceeded => {
                self.cancel_unread(answer);
                self.fail("provider.context_overflow");
            }
            StopReason::Malformed => {
                self.cancel_unread(answer);
                self.ask_once_more(turn, "provider.invalid_response");
            }
            StopReason::Pause => self.go_on_after_pause(turn, answer),
            cut => {
                let reason = match cut {
                    StopReason::MaxTokens => "model.max_tokens",
                    StopReason::Refusal => "model.refusal",
                    StopReason::ContentFilter => "model.content_filter",
                    _ => "model.unknown_stop",
                };
                self.cancel_unread(answer);
                self.count_said(answer, !text.is_empty());
                self.finish("incomplete", Some(reason), text);
            }
        }
    }

    /// P9: a pause is resent, not an iteration.
    fn go_on_after_pause(&mut self, turn: ModelTurn, answer: &ModelResponded) {
        self.cancel_unread(answer);
        self.count_said(answer, !answer.text.trim().is_empty());
        if turn.pauses >= MAX_PAUSES {
            let text = self.last_text.clone();
            return self.finish("incomplete", Some("model.pause"), text);
        }
        self.ask_model(ModelTurn { pauses: turn.pauses + 1, ..turn });
    }

    /// G6: an unusable answer is asked for once more.
    fn ask_once_more(&mut self, turn: ModelTurn, reason: &'static str) {
        if turn.is_second_try {
            return self.fail(reason);
        }
        self.ask_model(ModelTurn { pauses: 0, is_second_try: true, ..turn });
    }

    fn count_said(&mut self, answer: &ModelResponded, has_text: bool) {
        let calls = u32::try_from(answer.tool_calls.len()).unwrap();
        self.messages += u32::from(has_text || calls > 0) + calls;
    }

    /// P9: calls of an answer that was cut never run.
    fn cancel_unread(&mut self, answer: &ModelResponded) {
        for call in &*answer.tool_calls {
            let (call, reason) = (call.id.clone(), Some("tool.cancelled"));
            self.answer_due(DueAnswer { call, reason, text: "Cancelled" });
        }
    }

    /// Answers the calls of an answer that is never read.
    pub(super) fn give_up_answer(&mut self, answer: &ModelResponded) {
        self.cancel_unread(answer);
        if answer.is_said() {
            self.count_said(answer, true);
        }
    }

    fn begin_calls(&mut self, answer: &ModelResponded, count: u64) {
        self.messages += 1;
        let calls = answer.tool_calls.iter().map(|call| JudgedCall {
            id: call.id.clone(),
            tool: call.name.to_string(),
            arguments: call.arguments.get().to_owned(),
            status: CallStatus::Unadmitted,
            asks: None,
            settled: None,
        });
        self.calls = calls.collect();
        (self.calls_ask_budget, self.has_cancelled, self.stops_after) = (false, false, None);
        let text = (&*answer.text, count);
        if let Some(tripped) = self.repetitions.count_batch(&self.rules, &self.calls, text) {
            self.messages += u32::try_from(self.calls.len()).unwrap();
            self.calls.clear();
            // The guard comes first, then the answers.
            self.due.push_back(Due::Guard(tripped.clone()));
            self.cancel_unread(answer);
            return self.fail_with(tripped.reason, tripped.evidence);
        }
        self.activity = Activity::Calls;
        self.look_at_calls();
    }

    pub(super) fn fail(&mut self, reason: &str) {
        self.fail_with(reason, None);
    }

    fn fail_with(&mut self, reason: &str, evidence: Option<String>) {
        let reason = Some(reason.to_owned());
        self.end(RunEnd { outcome: "failed", reason, output: String::new(), evidence });
    }
}
