//! The moves of the world, where they fit.

use backstop_react_machine::*;
use layer0::Code;
use layer0::event::*;
use layer0::id::CallId;
use layer0::message::{StopReason, ToolCall};
use layer0::usage::TokenUsage;
use serde_json::json;

use super::moves::Move;
use super::player::Player;

impl Player {
    /// Takes the plain next step of whatever is open.
    pub(crate) fn step(&mut self) {
        if self.machine.is_over() {
            self.reopen(true, false);
        } else if self.machine.paused_at().is_some() {
            self.try_move(Move::Hooks(9));
        } else if self.memory.is_some() {
            self.try_move(Move::Memory { fails: false });
        } else if self.model.is_some() {
            self.try_move(Move::Answer { stop: 9, calls: 1, arguments: 0, text: 3 });
        } else if !self.batches.is_empty() {
            self.try_move(Move::Admit(0x0f));
        } else if self.machine.wants_budget().is_some() {
            self.try_move(Move::GiveBudget(3));
        } else if !self.probing.is_empty() {
            self.try_move(Move::Probe { pick: 0, verdict: 0 });
        } else if !self.running.is_empty() {
            self.try_move(Move::AnswerTool { pick: 0, result: 0 });
        } else if self.machine.open_approvals().next().is_some() {
            self.try_move(Move::Decide { pick: 0, verdict: 0 });
        } else if self.machine.parked_until().is_some() {
            self.try_move(Move::Resume(60_000));
        }
    }

    fn step_until(&mut self, is_there: impl Fn(&Self) -> bool) {
        for _ in 0..20 {
            if is_there(self) {
                return;
            }
            self.step();
        }
    }

    /// Makes a move. Returns whether it fits.
    pub(super) fn try_move(&mut self, next: Move) -> bool {
        let is_open = !self.machine.is_over();
        let is_paused = self.machine.paused_at().is_some();
        match next {
            Move::Next => self.step(),
            Move::Admit(bits) if !self.batches.is_empty() => self.admit(bits),
            Move::Answer { stop, calls, arguments, text } if self.model.is_some() => {
                self.answer(stop, calls, arguments, text);
            }
            Move::AnswerTool { pick, result } if self.can_run() => self.answer_tool(pick, result),
            Move::AskPerson(pick) if self.can_run() => {
                let call = self.pick(pick);
                let (question, schema) = ("when?".into(), json!({}).into());
                let at = self.at();
                let asked = self.machine.ask_person(at, &call, json!({}).into(), question, schema);
                self.drain();
                return asked.is_ok();
            }
            Move::Below { pick, kind } => return self.move_below(pick, kind),
            Move::Cancel if is_open => self.accept(SignalReceived::new(CANCEL, json!(null))),
            Move::Decide { pick, verdict } => return self.decide(pick, verdict),
            Move::Die if is_open => self.die(),
            Move::Dispatch { pick, is_recorded } if self.can_run() => {
                return self.dispatch(pick, is_recorded);
            }
            Move::FailAttempt { is_last } if self.has_attempts() => {
                self.attempt(Some("provider.transient"), is_last);
                if is_last {
                    // A process looks at once whether the budget allows another.
                    self.tick(0);
                }
            }
            Move::FailModel { by_limit } if self.model.is_some() => self.fail_model(by_limit),
            Move::GiveBudget(kind) if self.machine.wants_budget().is_some() => {
                self.give_budget(kind);
            }
            Move::HookOfTool { pick, is_after } if self.can_run() => {
                let (call, point) =
                    (self.pick(pick), if is_after { "after_tool" } else { "before_tool" });
                let (hook, reason) = ("h", "hook.failed");
                self.accept(HookFailed::new(hook, point, Some(call), reason, "broken", false));
            }
            Move::Hooks(kind) if is_paused => self.pass_hooks(kind),
            Move::Input { word } if is_open => {
                let data = [json!("hello"), json!("cancel"), json!("more"), json!({ "no": 1 })];
                let data = data[usize::from(word % 4)].clone();
                self.accept(SignalReceived::new(INPUT, data));
            }
            Move::Memory { fails } if self.memory.is_some() => self.answer_memory(fails),
            Move::Note if is_open => self.accept(Warning::new("note")),
            Move::Park(ms) if self.model.is_some() => {
                let until = layer0::Timestamp::from_millis(self.now + i64::from(ms));
                self.model = None;
                self.accept(RunParked::new(until, "provider.rate_limited", "busy"));
            }
            Move::Probe { pick, verdict } => return self.probe(pick, verdict),
            Move::Reopen { more, says } if !is_open => self.reopen(more, says),
            Move::Resume(ms) if is_open && self.machine.is_waiting() => {
                self.now += i64::from(ms);
                self.die();
            }
            Move::RetryTool(pick) if self.can_run() && self.machine.executions_left() > 0 => {
                let (call, execution) = (self.pick(pick), self.machine.next_execution());
                let reason = "tool.execution_failed";
                self.accept(ToolAttempted::new(call, execution, reason, "busy", 1));
            }
            Move::Settle { pick, happened } => return self.settle(pick, happened),
            Move::Tick(ms) => self.tick(ms),
            Move::TickToLimit { early } => return self.tick_to_limit(early),
            Move::UntilAsked => self.step_until(|player| player.model.is_some()),
            Move::UntilShort => {
                self.step_until(|player| player.machine.wants_budget().is_some());
            }
            _ => return false,
        }
        true
    }

    /// Returns whether a tool is running, and nothing is to be admitted first.
    fn can_run(&self) -> bool {
        !self.running.is_empty() && self.batches.is_empty()
    }

    fn has_attempts(&self) -> bool {
        self.model.as_ref().is_some_and(|_| self.attempts_left())
    }

    pub(super) fn pick(&self, pick: usize) -> CallId {
        self.running[pick % self.running.len()].clone()
    }

    fn attempts_left(&self) -> bool {
        let usage = self.machine.usage().model_attempts;
        let limit = self.judge.attempts_limit();
        limit.is_none_or(|limit| u64::from(usage) < limit)
    }

    fn attempt(&mut self, code: Option<&'static str>, is_last: bool) {
        let Some(call) = &mut self.model else { return };
        call.attempts_before += 1;
        let mut attempted = ModelAttempted::new(call.call, call.attempts_before, "script");
        attempted.code = code.map(Code::new);
        attempted.delay_ms = (code.is_some() && !is_last).then_some(1);
        attempted.usage = Some(TokenUsage::new(3, 2));
        self.accept(attempted);
    }

    fn answer(&mut self, stop: u8, calls: usize, arguments: u8, text: u8) {
        if !self.attempts_left() {
            return self.fail_model(false);
        }
        self.attempt(None, true);
        let Some(call) = self.model.take() else { return };
        let stop_reason = match stop {
            0 => StopReason::MaxTokens,
            1 => StopReason::Refusal,
            2 => StopReason::Pause,
            3 => StopReason::ContextExceeded,
            4 => StopReason::Malformed,
            5 => StopReason::from_word("abducted"),
            6 => StopReason::End,
            7 => StopReason::ContentFilter,
            _ => StopReason::ToolUse,
        };
        let is_final = stop_reason == StopReason::End || arguments == 2 && stop < 8;
        let calls = if is_final { 0 } else { calls };
        // The second kind makes one call several times.
        let place = |index: usize| if arguments == 1 { 0 } else { index };
        let name = |index: usize| if index.is_multiple_of(2) { "look" } else { "send" };
        let calls = (0..calls).map(|index| {
            let id = format!("c{}", index % 3);
            let arguments = json!({ "index": place(index) / 2, "kind": arguments });
            ToolCall::new(id, name(place(index)), arguments)
        });
        let text = ["", " \n", "hm", "answer"][usize::from(text)];
        let usage = TokenUsage::default();
        self.accept(ModelResponded::new(call.call, text, calls.collect(), stop_reason, usage));
    }

    fn fail_model(&mut self, by_limit: bool) {
        let Some(call) = self.model.take() else { return };
        if by_limit {
            let (reason, one) = ("budget.cost_usd", || 1.into());
            return self.accept(BudgetExhausted::new(reason, "cost_usd", one(), one(), "spent"));
        }
        let (reason, chain) = ("provider.transient", vec!["gave up".into()]);
        self.accept(ModelFailed::new(call.call, reason, chain, call.attempts_before));
    }

    /// The low bits say which calls run, the high bits which wait for a person.
    fn admit(&mut self, bits: u8) {
        let batch = self.batches.remove(0);
        for (index, call) in batch.calls.iter().enumerate() {
            let arguments = call.arguments.get();
            if bits & (16 << (index % 4)) != 0 && !batch.approved {
                let at = self.at();
                self.machine.hold(at, &call.id, call.arguments.clone()).unwrap();
                self.drain();
            } else if bits & (1 << (index % 4)) == 0 {
                self.refuse(call, "tool.permission_denied");
            } else if self.judge.is_barred(&call.name, arguments, 3) {
                assert!(self.machine.repeated_failure(&call.name, &call.arguments).is_some());
                self.refuse(call, "tool.repeated_failure");
            } else if self.machine.executions_left() == 0 {
                self.refuse(call, "tool.cancelled");
            } else {
                assert!(self.machine.repeated_failure(&call.name, &call.arguments).is_none());
                let (id, name) = (call.id.clone(), call.name.clone());
                let execution = self.machine.next_execution();
                self.accept(ToolRequested::new(id, name, call.arguments.clone(), execution));
            }
        }
    }

    fn refuse(&mut self, call: &ToolCall, reason: &'static str) {
        let (id, name) = (call.id.clone(), call.name.clone());
        self.accept(ToolResponded::refusal(id, name, reason, "Cancelled"));
    }

    fn answer_tool(&mut self, pick: usize, result: u8) {
        let call = self.pick(pick);
        let tool = self.judge.tool_name(&call);
        if let Some(answer) = self.machine.settlement(&call) {
            self.return_all(&call);
            return self.accept(answer);
        }
        // The answer of a call whose run below is open is refused.
        let early = ToolResponded::success(call.clone(), tool.clone(), json!("early"), 1);
        if self.machine.open_dispatches().iter().any(|open| open.call_id == call) {
            assert!(!self.offer(early), "what is below would be lost");
            self.return_all(&call);
        }
        let answer = match result {
            0 | 1 => ToolResponded::success(call, tool, json!(result), 1),
            2 | 3 => {
                let failure = ToolFailure::new("tool.execution_failed", "broken");
                ToolResponded::failure(call, tool, "broken", 1, failure)
            }
            4 => ToolResponded::refusal(call, tool, "tool.timeout", "timed out"),
            _ => ToolResponded::refusal(call, tool, "tool.invalid_input", "no"),
        };
        self.accept(answer);
    }

    fn pass_hooks(&mut self, kind: u8) {
        let Some(point) = self.machine.paused_at() else { return };
        let point = point.as_str();
        match kind {
            0 => {
                let reason = "hook.failed";
                self.accept(HookFailed::new("h", point, None, reason, "broken", false));
            }
            1 => {
                let reason = "hook.aborted";
                self.accept(HookAborted::new("h", point, None, reason, "not today", true));
            }
            _ => self.accept(HookPassed::new(point, None)),
        }
    }

    fn answer_memory(&mut self, fails: bool) {
        match self.memory.take() {
            Some(_) if fails => self.accept(MemoryDegraded::new("any", "memory.timeout", "m")),
            Some(true) => self.accept(MemoryRead::new(vec!["one".into()])),
            _ => self.accept(MemoryWrote::new(1)),
        }
    }
}
