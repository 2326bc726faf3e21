//! Stopping a run in the middle: cancellation, time, and what is in flight then.

use backstop_event_log::{InboxMessage, InboxRequest};
use backstop_react_machine::CANCEL;
use layer0::event::SignalReceived;
use layer0::{Code, code};
use serde_json::{Value, json};

use super::Run;
use crate::error::AgentError;
use crate::journal::{AttemptEnd, End, ExecutionEnd, Fact};

impl Run {
    /// Ends the run because its time is up.
    pub(super) async fn time_is_up(&mut self) -> Result<(), AgentError> {
        self.stop_steps(code::BUDGET_WALL_TIME).await?;
        self.return_orphans().await?;
        self.ledger.tick().await
    }

    /// Ends the run because people want it to; every open call is answered.
    pub(super) async fn cancel(&mut self, row: Option<&InboxMessage>) -> Result<(), AgentError> {
        self.stop_steps(code::RUN_CANCELLED).await?;
        self.return_orphans().await?;
        let data = row.map_or(Value::Null, |row| json!({ "by": &*row.by }));
        if let Some(row) = row {
            self.ledger.take_row(row.id);
        }
        let signal = SignalReceived::new(CANCEL, data);
        let facts = self.facts_of_people(signal);
        self.ledger.step(facts).await
    }

    /// Takes in what came while something was stopped.
    pub(super) async fn take_unread(&mut self) -> Result<(), AgentError> {
        if std::mem::take(&mut self.inbox.is_cancelled) && !self.is_ending() {
            let rows = std::mem::take(&mut self.inbox.unread);
            return self.cancel(rows.iter().find(|row| is_cancel(row))).await;
        }
        match self.inbox.unread.is_empty() {
            true => Ok(()),
            false => {
                let rows = std::mem::take(&mut self.inbox.unread);
                self.take_rows(rows).await
            }
        }
    }

    /// Records what came from outside.
    pub(super) async fn take_rows(&mut self, rows: Vec<InboxMessage>) -> Result<(), AgentError> {
        if self.is_ending() {
            return Ok(());
        }
        if let Some(row) = rows.iter().find(|row| is_cancel(row)) {
            return self.cancel(Some(row)).await;
        }
        for row in rows {
            self.take_row(row).await?;
        }
        Ok(())
    }

    /// Tells every step to end, and records what those that began came to until then.
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
                        if self.ended(id).is_some() {
                            self.record_stopped(end, why).await?;
                        }
                    }
                    Fact::Inbox(rows) => self.inbox.unread.extend(rows),
                    Fact::Cancelled => self.inbox.is_cancelled = true,
                    Fact::Late(late) => {
                        let late = self.ledger.fact(late);
                        self.ledger.step([late]).await?;
                    }
                    Fact::Signal(signal) if signal.name == CANCEL => self.inbox.is_cancelled = true,
                    // Nothing is begun any more, and what runs below is told to end.
                    Fact::Timer | Fact::Signal(_) | Fact::Asked(..) => {}
                }
            }
        }
        self.settle_stopped().await?;
        // What the machine decided on this is not begun any more.
        self.ledger.forget_effects();
        Ok(())
    }

    async fn record_stopped(&mut self, end: End, why: &'static str) -> Result<(), AgentError> {
        match end {
            End::Attempt(AttemptEnd::Cut(mut attempted)) => {
                attempted.code = Some(Code::new(why));
                self.record_attempt(*attempted).await
            }
            End::Attempt(AttemptEnd::Answered(answered)) => self.record_attempt(answered.0).await,
            End::Attempt(AttemptEnd::Again(mut attempted, _, mut attempt)) => {
                attempt.give_back(&self.agent.models);
                attempted.delay_ms = None;
                self.record_attempt(*attempted).await
            }
            End::Attempt(AttemptEnd::Parked(mut parked)) => {
                parked.0.delay_ms = None;
                self.record_attempt(parked.0).await
            }
            End::Attempt(AttemptEnd::Failed { attempted, .. }) => {
                self.record_attempt(attempted.0).await
            }
            End::Execution(ExecutionEnd { returned, .. }) if !returned.is_empty() => {
                let facts: Vec<_> =
                    returned.into_iter().map(|returned| self.ledger.fact(returned)).collect();
                self.ledger.step(facts).await
            }
            _ => Ok(()),
        }
    }
}

fn is_cancel(row: &InboxMessage) -> bool {
    matches!(row.request, InboxRequest::Cancel { .. })
}
