//! Executions that begin again, and runs below the run.

use backstop_react_machine::*;
use layer0::event::*;
use layer0::id::{CallId, RunId};
use layer0::usage::Usage;

use crate::world::{World, response};

impl World {
    pub(crate) fn retry(&mut self, pick: usize) {
        if self.open.is_empty() || !self.batches.is_empty() {
            return;
        }
        let run = &self.open[pick % self.open.len()];
        let attempted = ToolAttempted::new(
            run.call_id.clone(),
            run.execution,
            "tool.execution_failed",
            "busy",
            1,
        );
        let at = self.at();
        let before = self.machine.usage().tool_calls;
        if self.machine.executions_left() > 0 {
            self.accept(MachineInput::fact(at, attempted));
            assert_eq!(self.machine.usage().tool_calls, before + 1);
        } else if before == self.max_tool_calls() {
            self.refused(MachineInput::fact(at, attempted));
        }
    }

    pub(crate) fn dispatch(&mut self, pick: usize, used: u32) {
        if self.open.is_empty() || !self.batches.is_empty() {
            return;
        }
        let call_id = self.open[pick % self.open.len()].call_id.clone();
        let at = self.at();
        let Ok(grant) = self.machine.grant(at, &call_id, true, None) else { return };
        let (run, allowance) = (format!("run_{}", self.now), Box::new(grant.allowance));
        let mut dispatched = OperatorDispatched::new("child", run, 1, "d", allowance);
        dispatched.call_id = Some(call_id.clone());
        if self.machine.open_dispatches().len() > 2 {
            return self.return_dispatch(pick, used);
        }
        let unasked = CallId::from("never asked for");
        let mut stray = dispatched.clone();
        stray.call_id = Some(unasked);
        self.refused(MachineInput::fact(at, stray));
        self.accept(MachineInput::fact(at, dispatched.clone()));
        // The same attempt again, or the run for another call.
        self.refused(MachineInput::fact(at, dispatched.clone()));
        self.wait_below(&dispatched.run, pick);
        let below = self.machine.executions_left();
        let open = self.machine.open_dispatches().iter();
        let given: u32 = open.filter_map(|open| open.allowance.tool_calls).sum();
        let used = given + below + self.machine.usage().tool_calls;
        assert!(used <= self.max_tool_calls(), "nothing is given twice");
        // Its usage would be lost.
        self.refused(MachineInput::fact(at, response(call_id, true)));
    }

    /// Lets a child run wait, and gives it more budget.
    fn wait_below(&mut self, run: &RunId, pick: usize) {
        let at = self.at();
        let waiting = OperatorWaiting::new("child", run.clone(), WaitFor::Budget, Vec::new());
        let mut stray = waiting.clone();
        stray.run = "run_of_another".into();
        self.refused(MachineInput::fact(at, stray));
        if pick.is_multiple_of(2) {
            return;
        }
        self.accept(MachineInput::fact(at, waiting));
        self.machine.wait_below(at);
        self.drain();
        let allowance = self.machine.grant_more(at, run).ok().map(|grant| grant.allowance);
        self.accept(MachineInput::fact(at, BudgetGranted::new(run.clone(), allowance)));
    }

    pub(crate) fn return_dispatches_of(&mut self, call: &CallId) {
        let of_call = |open: &ChildDispatch| open.call_id == *call;
        while let Some(place) = self.machine.open_dispatches().iter().position(of_call) {
            self.return_dispatch(place, 2);
        }
    }

    pub(crate) fn return_dispatch(&mut self, pick: usize, used: u32) {
        let open = self.machine.open_dispatches();
        let Some(open) = open.get(pick % open.len().max(1)).cloned() else { return };
        let attempts = used.min(open.allowance.model_calls.unwrap_or(u32::MAX));
        let tokens = u64::from(attempts) * 5;
        let mut usage = Usage::default();
        (usage.model_calls, usage.model_attempts) = (attempts, attempts);
        usage.tool_calls = used.min(open.allowance.tool_calls.unwrap_or(u32::MAX));
        (usage.input_tokens, usage.total_tokens) = (tokens, tokens);
        let returned = OperatorReturned::new(
            open.operator,
            open.run,
            layer0::stop::Outcome::Completed,
            None,
            usage,
        );
        let at = self.at();
        let before = self.machine.usage();
        self.accept(MachineInput::fact(at, returned.clone()));
        self.below.add_dispatched(&usage);
        let after = self.machine.usage();
        assert_eq!(after.model_attempts, before.model_attempts + attempts);
        if self.finish.is_none() {
            self.refused(MachineInput::fact(at, returned));
        }
    }
}
