//! Facts about calls that arrive after their answers.

use super::{Run, StepPurpose};
use crate::effect::admit;
use crate::error::AgentError;
use crate::journal::{ExecutionEnd, Fact, PendingEvents, Step, StepEnd};

impl Run {
    /// Records the late answers of calls that are over; those of open calls wait for the end of their calls.
    pub(super) async fn record_late(&mut self) -> Result<(), AgentError> {
        let machine = self.ledger.machine();
        let late = self.tools.take_late(|call| !machine.is_running(call));
        if late.is_empty() || self.ledger.is_over() {
            return Ok(());
        }
        let late: Vec<_> = late.into_iter().map(|late| self.ledger.fact(late)).collect();
        self.ledger.step(late).await
    }

    /// Records all late answers of a stopped run, which also answers its open calls.
    pub(super) async fn record_all_late(&mut self) -> Result<(), AgentError> {
        let late = self.tools.take_late(|_| true);
        if late.is_empty() || self.ledger.is_over() {
            return Ok(());
        }
        let late: Vec<_> = late.into_iter().map(|late| self.ledger.fact(late)).collect();
        self.ledger.step(late).await
    }

    /// Probes answered calls of unknown outcome, before a finished run is reopened.
    pub(super) async fn probe_answered(&mut self) -> Result<(), AgentError> {
        for call in self.ledger.machine().probeable() {
            let run = self.recorded_execution(&call)?;
            let admitted = admit(&self.agent, &run.tool, run.arguments.clone()).ok();
            let execution = self.execution(run, admitted);
            self.start(Step::LateProbe(execution), StepPurpose::LateProbe);
        }
        let mut facts = Vec::new();
        while !self.in_flight.is_empty() {
            self.ledger.next(&mut facts).await?;
            for fact in facts.drain(..) {
                self.take_while_probing(fact).await?;
            }
        }
        Ok(())
    }

    /// Handles a fact before the run is reopened; a request to stop waits until then.
    async fn take_while_probing(&mut self, fact: Fact) -> Result<(), AgentError> {
        match fact {
            Fact::Ended(id, end) => {
                self.take_in_flight(id);
                let StepEnd::Execution(ExecutionEnd { facts: PendingEvents(facts), .. }) = end
                else {
                    return Ok(());
                };
                let facts: Vec<_> = facts.into_iter().map(|fact| self.ledger.fact(fact)).collect();
                self.ledger.step(facts).await
            }
            Fact::Inbox(rows) => {
                self.inbox.unread.extend(rows);
                Ok(())
            }
            Fact::Cancelled => {
                self.inbox.is_cancelled = true;
                for (id, _) in &self.in_flight {
                    self.ledger.stop(*id);
                }
                Ok(())
            }
            Fact::Asked(..) | Fact::Late(_) | Fact::Signal(_) | Fact::Timer => Ok(()),
        }
    }
}
