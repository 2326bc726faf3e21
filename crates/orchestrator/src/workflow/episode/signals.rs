//! Signals to a workflow's run: recorded, bounded, and passed to its code.

use backstop_event_log::{InboxMessage, InboxRequest};
use layer0::JsonText;
use layer0::event::SignalReceived;
use layer0::operator::Signal;
use serde_json::Value;

use super::Episode;
use crate::workflow::halt::{Closing, Halt};

/// Maximum number of signals that a run records, not counting cancellations: as many as an agent's run may have events.
pub(super) const MAX_RECORDED_SIGNALS: usize = 10_000;

impl Episode {
    /// Records a signal and passes it to the code. Returns whether it did: with one signal too many, the run ends.
    pub(super) fn take_signal(&mut self, signal: Signal) -> Result<bool, Halt> {
        let is_cancel = signal.name == Signal::CANCEL;
        if !is_cancel && self.ledger.progress().signals.len() >= MAX_RECORDED_SIGNALS {
            self.close(Closing::Full);
            return Ok(false);
        }
        let Signal { name, data, cause, .. } = signal;
        let data = self.redactor.redact_held_json(JsonText::from(data)).value();
        let name = self.redactor.redact_held(&name).into_owned();
        let mut received = SignalReceived::new(&*name, data.clone());
        received.cause = cause;
        self.ledger.note(received)?;
        match is_cancel {
            true => self.close(Closing::Cancelled),
            false => self.own_signals.push(Signal::new(name, data)),
        }
        Ok(true)
    }

    pub(super) fn take_rows(&mut self, messages: Vec<InboxMessage>) -> Result<(), Halt> {
        for InboxMessage { id, request, .. } in messages {
            let signal = match request {
                InboxRequest::Cancel { .. } => Signal::cancel(),
                InboxRequest::Input { text, .. } => Signal::new("input", Value::from(&*text)),
                InboxRequest::Signal { name, data, cause, .. } => {
                    let mut signal = Signal::new(&*name, data.read().unwrap_or_default());
                    signal.cause = cause;
                    signal
                }
                // A workflow itself has no approvals.
                _ => {
                    self.ledger.take_row(id);
                    continue;
                }
            };
            // A signal that is not recorded stays in the inbox.
            if self.take_signal(signal)? {
                self.ledger.take_row(id);
            }
        }
        Ok(())
    }
}
