//! People, probes and runs below, as the world plays them.

use backstop_react_machine::*;
use layer0::event::*;
use layer0::id::CallId;
use layer0::stop::Outcome;
use layer0::usage::{Allowance, Usage};
use serde_json::json;

use super::history::Happening;
use super::player::Player;

/// Returns what a run below used of its share.
pub(super) fn used_of(share: &Allowance, attempts: u32) -> Usage {
    let mut usage = Usage::default();
    let tokens = [share.input_tokens, share.output_tokens, share.total_tokens];
    let tokens = tokens.into_iter().flatten().min().unwrap_or(4) / 4;
    usage.model_attempts = attempts.min(share.model_calls.unwrap_or(u32::MAX));
    usage.tool_calls = attempts.min(share.tool_calls.unwrap_or(u32::MAX));
    let used = if attempts == 0 { 0 } else { tokens };
    (usage.input_tokens, usage.output_tokens, usage.total_tokens) = (used, used, used + used);
    usage
}

impl Player {
    pub(super) fn decide(&mut self, pick: usize, verdict: u8) -> bool {
        let open: Vec<_> = self.machine.open_approvals().cloned().collect();
        let Some(asked) = open.get(pick % open.len().max(1)) else { return false };
        let (id, call) = (asked.id.clone(), asked.call_id.clone());
        let is_question = asked.is_asked_by_call();
        let denied = |reason: &'static str| {
            let mut denied = ApprovalDenied::new(id.clone(), call.clone(), "ops", reason);
            denied.message = Some("no".into());
            denied
        };
        match verdict {
            0..=2 => {
                let mut granted = ApprovalGranted::new(id, call, "ops");
                granted.data = asked.schema.as_ref().map(|_| json!({ "day": 1 }).into());
                if verdict == 2 && !is_question {
                    granted.arguments = Some(json!({ "index": 99 }).into());
                }
                self.accept(granted);
            }
            3 if asked.expires_at.is_some() => self.accept(denied("approval.expired")),
            _ => self.accept(denied("approval.denied")),
        }
        true
    }

    pub(super) fn settle(&mut self, pick: usize, happened: bool) -> bool {
        let unsettled: Vec<CallId> =
            self.machine.unsettled_calls().map(|(id, _)| id.clone()).collect();
        let Some(call) = unsettled.get(pick % unsettled.len().max(1)).cloned() else {
            return false;
        };
        let verdict = if happened { Verdict::Happened } else { Verdict::DidNot };
        let output = happened.then(|| json!("sent").into());
        let resolved = ToolResolved::new(call, "ops", verdict, output, "ops says so");
        self.accept(resolved.clone());
        assert!(!self.offer(resolved), "a call is settled once");
        true
    }

    pub(super) fn probe(&mut self, pick: usize, verdict: u8) -> bool {
        let verdict = [Verdict::Happened, Verdict::DidNot, Verdict::Unknown][usize::from(verdict)];
        let output = (verdict == Verdict::Happened).then(|| json!("sent").into());
        if self.machine.is_over() {
            let late = self.machine.probeable();
            let Some(call) = late.get(pick % late.len().max(1)) else { return false };
            self.accept(ToolProbed::new(call.clone(), verdict, output));
            return true;
        }
        if self.probing.is_empty() || !self.batches.is_empty() {
            return false;
        }
        let call = self.probing.remove(pick % self.probing.len());
        self.accept(ToolProbed::new(call.clone(), verdict, output.clone()));
        let tool = self.judge.tool_name(&call);
        let answer = self.machine.settlement(&call);
        let answer =
            answer.unwrap_or_else(|| ToolResponded::from_verdict(call, tool, verdict, output));
        self.accept(answer);
        true
    }

    pub(super) fn give_budget(&mut self, kind: u8) {
        let mut more = Allowance::without_bounds();
        (more.model_calls, more.tool_calls) = (Some(2), Some(u32::from(kind)));
        (more.input_tokens, more.output_tokens, more.total_tokens) = (Some(9), Some(9), Some(9));
        let more = (kind > 0).then_some(more);
        self.accept(BudgetGranted::new(self.rules.run, more));
    }

    pub(super) fn dispatch(&mut self, pick: usize, is_recorded: bool) -> bool {
        let call = self.pick(pick);
        let at = self.at();
        let Ok(grant) = self.machine.grant(at, &call, true, None) else { return false };
        if self.machine.settlement(&call).is_some() || self.machine.open_dispatches().len() > 2 {
            return false;
        }
        let (run, share) = (format!("below_{}", self.now), Box::new(grant.allowance));
        let mut dispatched = OperatorDispatched::new("child", run, 1, "d", share);
        dispatched.call_id = Some(call);
        dispatched.unrecorded = !is_recorded;
        self.accept(dispatched);
        true
    }

    pub(super) fn return_all(&mut self, call: &CallId) {
        let of_call = |open: &ChildDispatch| open.call_id == *call;
        while let Some(open) = self.machine.open_dispatches().iter().find(|open| of_call(open)) {
            let open = open.clone();
            self.return_one(&open, Outcome::Completed);
        }
    }

    fn return_one(&mut self, open: &ChildDispatch, outcome: Outcome) {
        let (operator, run) = (open.operator.clone(), open.run.clone());
        let returned =
            OperatorReturned::new(operator, run, outcome, None, used_of(&open.allowance, 1));
        self.accept(returned.clone());
        assert!(!self.offer(returned), "a run below returns once");
    }

    /// A run below waits, is given more, or returns.
    pub(super) fn move_below(&mut self, pick: usize, kind: u8) -> bool {
        let open = self.machine.open_dispatches();
        if self.machine.is_over() {
            return false;
        }
        let Some(open) = open.get(pick % open.len().max(1)).cloned() else { return false };
        let waits = match kind {
            0 | 1 => Some((WaitFor::Approval, vec!["apr_below".into()])),
            2 => Some((WaitFor::Budget, Vec::new())),
            3 => Some((WaitFor::Parked, Vec::new())),
            _ => None,
        };
        if let Some((r#for, approvals)) = waits {
            self.accept(OperatorWaiting::new("child", open.run, r#for, approvals));
            self.tell(Happening::WaitsBelow);
            let at = layer0::Timestamp::from_millis(self.now);
            self.machine.wait_below(at);
            self.drain();
            return true;
        }
        if kind > 5 {
            let outcome = if kind == 6 { Outcome::Completed } else { Outcome::Failed };
            self.return_one(&open, outcome);
            return true;
        }
        let at = self.at();
        let more = self.machine.grant_more(at, &open.run).ok().map(|grant| grant.allowance);
        self.accept(BudgetGranted::new(open.run, more));
        true
    }
}
