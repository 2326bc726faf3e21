//! Settlements by people of calls of unknown outcome.

use std::sync::Arc;

use backstop_event_log::{InboxMessage, Settlement};
use layer0::event::{EventKind, ToolResponded, Warning};
use layer0::id::CallId;

use super::tools::RunningExecution;
use super::{Run, StepPurpose};
use crate::agent::settle::{build_tool_resolved, read_settlement};
use crate::error::AgentError;

impl Run {
    /// Takes a settlement from the inbox. A running execution of a call that happened is stopped first, and its result
    /// until then is recorded. That a running call did not happen is not known to anyone, and does not count.
    pub(super) async fn settle(
        &mut self,
        row: u64,
        call: CallId,
        settlement: Settlement,
    ) -> Result<(), AgentError> {
        let at_work = self.in_flight.iter().find_map(|(id, of)| match of {
            StepPurpose::Execution(work) if *work.call_id() == call => Some(*id),
            _ => None,
        });
        if let Some(step) = at_work {
            if !settlement.happened {
                self.ledger.take_row(row);
                let by = &settlement.by;
                let early = format!("{by} settled call `{call}` while it was running");
                let early = self.ledger.fact(Warning::new(early));
                return self.ledger.step([early]).await;
            }
            self.tools.settle(call, row, settlement);
            self.ledger.stop(step);
            return Ok(());
        }
        self.tools.withdraw(&call);
        self.ledger.take_row(row);
        let facts = self.settlement_facts(&call, settlement, true);
        let facts: Vec<_> = facts.into_iter().map(|fact| self.ledger.fact(fact)).collect();
        self.ledger.step(facts).await
    }

    /// Returns the events of a settlement, with the answer of a call that has none; a warning if the outcome is known
    /// by now.
    pub(super) fn settlement_facts(
        &self,
        call: &CallId,
        settlement: Settlement,
        answers: bool,
    ) -> Vec<EventKind> {
        let machine = self.ledger.machine();
        let Some((_, tool)) = machine.unsettled_calls().find(|(id, _)| *id == call) else {
            if machine.is_over() {
                // No such event may follow the end of a run.
                return Vec::new();
            }
            let by = &settlement.by;
            let late = format!("{by} settled call `{call}` when its outcome was known already");
            return vec![Warning::new(late).into()];
        };
        let resolved = build_tool_resolved(call.clone(), tool, settlement);
        let answer = (answers && machine.is_running(call)).then(|| {
            let (output, verdict) = (resolved.output.clone(), resolved.verdict);
            ToolResponded::from_verdict(call.clone(), Arc::clone(tool), verdict, output)
        });
        let resolved = EventKind::from(resolved);
        std::iter::once(resolved).chain(answer.map(EventKind::from)).collect()
    }

    /// Records the settlements of calls that were stopped with the run.
    pub(super) async fn settle_stopped(&mut self) -> Result<(), AgentError> {
        for (call, row, settlement) in self.tools.take_settlements() {
            self.ledger.take_row(row);
            let facts = self.settlement_facts(&call, settlement, false);
            let facts: Vec<_> = facts.into_iter().map(|fact| self.ledger.fact(fact)).collect();
            self.ledger.step(facts).await?;
        }
        Ok(())
    }

    /// Records a settlement that arrived while the call was running, after the result of the call.
    pub(super) async fn settle_ended(&mut self, work: &RunningExecution) -> Result<(), AgentError> {
        let Some((row, settlement)) = self.tools.take_settlement(work.call_id()) else {
            return Ok(());
        };
        self.ledger.take_row(row);
        let facts = self.settlement_facts(work.call_id(), settlement, true);
        let facts: Vec<_> = facts.into_iter().map(|fact| self.ledger.fact(fact)).collect();
        self.ledger.step(facts).await
    }

    /// Records the settlements in the inbox of a run without a process; nothing is answered or run.
    pub(super) async fn settle_without_owner(
        &mut self,
        rows: Vec<InboxMessage>,
    ) -> Result<(), AgentError> {
        for row in rows {
            let id = row.id;
            let Some((call, settlement)) = read_settlement(row) else { continue };
            self.ledger.take_row(id);
            let facts = self.settlement_facts(&call, settlement, false);
            let facts: Vec<_> = facts.into_iter().map(|fact| self.ledger.fact(fact)).collect();
            self.ledger.step(facts).await?;
        }
        Ok(())
    }
}
