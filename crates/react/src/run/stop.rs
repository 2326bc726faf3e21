//! Stopping a run in the middle: cancellation, time limits, and the steps in flight.

use backstop_event_log::{InboxMessage, InboxRequest};
use backstop_react_machine::{CANCEL, ChildDispatch};
use layer0::event::{EventKind, SignalReceived};
use layer0::{Code, code};
use serde_json::{Value, json};

use super::executions::stops_the_run;
use super::tools::RunningExecution;
use super::{Run, StepPurpose};
use crate::error::AgentError;
use crate::journal::{AttemptEnd, ExecutionEnd, Fact, PendingEvents, StepEnd};

impl Run {
    /// Ends the run because its time is up.
    pub(super) async fn time_is_up(&mut self) -> Result<(), AgentError> {
        self.stop_steps(code::BUDGET_WALL_TIME).await?;
        self.return_orphans().await?;
        self.ledger.tick().await
    }

    /// Ends the run on a person's request; every open call is answered. Requests that were accepted earlier are
    /// recorded before the end.
    pub(super) async fn cancel(
        &mut self,
        row: Option<&InboxMessage>,
        earlier: Vec<InboxMessage>,
    ) -> Result<(), AgentError> {
        self.stop_steps(code::RUN_CANCELLED).await?;
        if let Some(row) = row {
            self.ledger.take_row(row.id);
        }
        // The run may have waited for nothing but the steps in flight.
        if self.is_ending() {
            self.inbox.unread.extend(earlier);
            return Ok(());
        }
        self.return_orphans().await?;
        self.ledger.forget_effects();
        let mut facts: Vec<_> = earlier.into_iter().flat_map(|row| self.row_facts(row)).collect();
        facts.extend(self.facts_of_people(cancellation(row)));
        // Effects that were decided before do not begin.
        self.ledger.step_while_open(facts).await
    }

    /// Handles the rows that arrived while steps were being stopped.
    pub(super) async fn take_unread(&mut self) -> Result<(), AgentError> {
        if std::mem::take(&mut self.inbox.is_cancelled) && !self.is_ending() {
            let mut rows = std::mem::take(&mut self.inbox.unread);
            let place = rows.iter().position(is_cancel).unwrap_or(rows.len());
            let row = rows.split_off(place).into_iter().next();
            return self.cancel(row.as_ref(), rows).await;
        }
        match self.inbox.unread.is_empty() {
            true => Ok(()),
            false => {
                let rows = std::mem::take(&mut self.inbox.unread);
                self.take_rows(rows).await
            }
        }
    }

    /// Records requests from outside.
    pub(super) async fn take_rows(&mut self, rows: Vec<InboxMessage>) -> Result<(), AgentError> {
        if self.ledger.is_over() {
            return Ok(());
        }
        let place = rows.iter().position(is_cancel);
        if let Some(place) = place.filter(|_| !self.is_ending()) {
            let mut rows = rows;
            let row = rows.split_off(place).into_iter().next();
            return self.cancel(row.as_ref(), rows).await;
        }
        // Nothing stops a run that is ending, but its inputs and signals are still recorded.
        let is_meant = |row: &InboxMessage| !self.is_ending() || is_told(row);
        for row in rows.into_iter().filter(is_meant).collect::<Vec<_>>() {
            self.take_row(row).await?;
        }
        Ok(())
    }

    /// Stops every step, and records the results until then. The run can be ending afterwards: the machine takes
    /// results until it is over.
    pub(super) async fn stop_steps(&mut self, why: &'static str) -> Result<(), AgentError> {
        self.ledger.forget_effects();
        if let Some(mut attempt) = self.asking.take_waiting() {
            attempt.give_back(&self.agent.models);
        }
        self.tools.forget();
        self.approvals.forget();
        for (id, _) in &self.in_flight {
            self.ledger.stop(*id);
        }
        let mut facts = Vec::new();
        while !self.in_flight.is_empty() {
            self.ledger.next(&mut facts).await?;
            for fact in facts.drain(..) {
                match fact {
                    Fact::Ended(id, end) => {
                        let of = self.take_in_flight(id).filter(|_| !self.is_ending());
                        if let Some(of) = of {
                            self.record_stopped(of, end, why).await?;
                        }
                    }
                    Fact::Inbox(rows) => self.inbox.unread.extend(rows),
                    Fact::Cancelled => self.inbox.is_cancelled = true,
                    Fact::Late(late) => self.tools.keep_late(late),
                    Fact::Signal(signal) if signal.name == CANCEL => self.inbox.is_cancelled = true,
                    // Nothing begins any more, and running child runs are being stopped.
                    Fact::Timer | Fact::Signal(_) | Fact::Asked(..) => {}
                }
            }
        }
        self.record_all_late().await?;
        self.settle_stopped().await?;
        // The machine's decisions on these results do not begin, except one that ends the run.
        if !self.ledger.machine().has_answer() {
            self.ledger.forget_effects();
        }
        Ok(())
    }

    async fn record_stopped(
        &mut self,
        of: StepPurpose,
        end: StepEnd,
        why: &'static str,
    ) -> Result<(), AgentError> {
        match end {
            StepEnd::Attempt(AttemptEnd::Cut(mut attempted)) => {
                attempted.code = Some(Code::new(why));
                self.record_attempt(*attempted).await
            }
            StepEnd::Attempt(answered @ AttemptEnd::Answered(_)) => {
                self.attempt_ended(answered).await
            }
            StepEnd::Attempt(AttemptEnd::Again(mut attempted, _, mut attempt)) => {
                attempt.give_back(&self.agent.models);
                attempted.delay_ms = None;
                self.record_attempt(*attempted).await
            }
            StepEnd::Attempt(AttemptEnd::Parked(mut parked)) => {
                parked.0.delay_ms = None;
                self.record_attempt(parked.0).await
            }
            StepEnd::Attempt(AttemptEnd::Failed { attempted, .. }) => {
                self.record_attempt(attempted.0).await
            }
            StepEnd::Execution(end) => match of {
                StepPurpose::Execution(work) => self.record_stopped_execution(&work, end).await,
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Records the result of a stopped execution, if it has one. A hook's order to stop the run is dropped: the run is
    /// being stopped already.
    async fn record_stopped_execution(
        &mut self,
        work: &RunningExecution,
        end: ExecutionEnd,
    ) -> Result<(), AgentError> {
        let ExecutionEnd { mut returned, facts: PendingEvents(facts), .. } = end;
        if returned.is_empty() && facts.is_empty() {
            return Ok(());
        }
        if !facts.is_empty() {
            // A call is answered once all that it dispatched has returned.
            let of_call = |open: &ChildDispatch| open.call_id == *work.call_id();
            let orphans = Box::pin(self.end_orphans(&returned, of_call)).await?;
            returned.extend(orphans);
        }
        let resumed = self.approvals.take_resumed().map(EventKind::from);
        let returned = returned.into_iter().map(EventKind::from);
        let facts = facts.into_iter().filter(|fact| !stops_the_run(fact));
        let facts = resumed.into_iter().chain(returned).chain(facts);
        let facts: Vec<_> = facts.map(|fact| self.ledger.fact(fact)).collect();
        self.ledger.step(facts).await
    }
}

/// Returns whether a row of the inbox stops the run: a request to cancel, or a signal named [`CANCEL`].
fn is_cancel(row: &InboxMessage) -> bool {
    match &row.request {
        InboxRequest::Cancel { .. } => true,
        InboxRequest::Signal { name, .. } => **name == *CANCEL,
        _ => false,
    }
}

/// Returns the signal that stops the run, in its recorded form.
fn cancellation(row: Option<&InboxMessage>) -> SignalReceived {
    let data = row.map_or(Value::Null, |row| json!({ "by": &*row.by }));
    let mut signal = SignalReceived::new(CANCEL, data);
    if let Some(InboxRequest::Signal { cause, .. }) = row.map(|row| &row.request) {
        signal.cause.clone_from(cause);
    }
    signal
}

fn is_told(row: &InboxMessage) -> bool {
    matches!(row.request, InboxRequest::Input { .. } | InboxRequest::Signal { .. })
        && !is_cancel(row)
}
