//! The messages of a recorded run, read leniently.
//!
//! A session continues after runs of older versions, of other agents, and of processes that died. Their messages are
//! therefore not replayed but read from their events: unreadable parts are left out, and a call without an answer gets
//! one.

use std::collections::BTreeMap;
use std::sync::Arc;

use layer0::event::{EventKind, ModelResponded};
use layer0::id::CallId;
use layer0::message::{Message, StopReason};

use crate::conversation::append_text;
use crate::machine::{INPUT, INTERRUPTED};
use crate::text::late_verdict;
use crate::tool_message::tool_message;

/// Message between two answers if the first one was not accepted.
const NOT_TAKEN: &str = "The answer was not usable. Answer again.";

/// Returns the messages of a run for the next runs of its session: without instructions and memory, every call with its
/// answer.
#[must_use]
pub fn collect_messages<'a>(events: impl IntoIterator<Item = &'a EventKind>) -> Vec<Arc<Message>> {
    let mut history = HistoryFold::default();
    for event in events {
        history.take(event);
    }
    history.close_calls();
    history.messages.into_iter().map(Arc::new).collect()
}

#[derive(Default)]
struct HistoryFold {
    messages: Vec<Message>,
    /// Calls of the last answer, in order, each with its own answer.
    calls: Vec<(CallId, Option<Message>)>,
    /// Tools of the answered calls: later knowledge about a call is further input.
    tools: BTreeMap<CallId, Arc<str>>,
    /// Text for the model's next request.
    further_input: Option<Arc<str>>,
    /// Whether this is the run of a workflow.
    is_workflow: bool,
    /// Whether the last message is an answer that ends a run, if it is accepted.
    is_final: bool,
}

impl HistoryFold {
    fn take(&mut self, kind: &EventKind) {
        match kind {
            EventKind::RunStarted(started) => {
                let given = started.history.messages().iter();
                self.messages.extend(given.map(|message| Message::clone(message)));
                self.messages.push(Message::User {
                    content: Arc::clone(&started.input),
                    images: Arc::clone(&started.images),
                });
                self.is_workflow = started.agent.is_workflow();
            }
            // The text is from no model, but it is the answer in the session.
            EventKind::RunFinished(finished) if self.is_workflow => {
                self.messages
                    .push(Message::assistant(Arc::clone(&finished.output), Arc::default()));
            }
            EventKind::SignalReceived(signal) if &*signal.name == INPUT => {
                if let Some(text) = signal.data.as_str() {
                    self.add_further_input(text);
                }
            }
            EventKind::RunReopened(reopened) => {
                if let Some(text) = &reopened.message {
                    self.add_further_input(text);
                }
            }
            // A running call is answered with the settlement.
            EventKind::ToolResolved(resolved) if self.tools.contains_key(&resolved.call_id) => {
                self.add_further_input(&resolved.message);
            }
            EventKind::ToolProbed(probed) => {
                let tool = self.tools.get(&probed.call_id);
                if let Some(text) = tool.and_then(|tool| late_verdict(tool, probed)) {
                    self.add_further_input(&text);
                }
            }
            EventKind::ModelRequested(_) => {
                self.close_calls();
                if let Some(text) = self.further_input.take() {
                    self.messages.push(Message::user(text));
                    self.is_final = false;
                }
            }
            EventKind::ModelResponded(answer) if answer.is_said() => self.answer(answer),
            EventKind::ToolResponded(responded) => {
                self.tools.insert(responded.call_id.clone(), Arc::clone(&responded.tool));
                let call = self.calls.iter_mut().find(|(id, _)| *id == responded.call_id);
                if let Some((_, answer)) = call {
                    *answer = Some(tool_message(responded));
                }
            }
            _ => {}
        }
    }

    fn add_further_input(&mut self, text: &str) {
        self.further_input = Some(append_text(self.further_input.take(), text));
    }

    fn answer(&mut self, answer: &ModelResponded) {
        self.close_calls();
        if std::mem::take(&mut self.is_final) {
            self.messages.push(Message::user(NOT_TAKEN));
        }
        let tool_calls = Arc::clone(&answer.tool_calls);
        self.calls = tool_calls.iter().map(|call| (call.id.clone(), None)).collect();
        self.is_final = tool_calls.is_empty() && answer.stop_reason != StopReason::Pause;
        self.messages.push(Message::Assistant {
            content: Arc::clone(&answer.text),
            tool_calls,
            provider_state: answer.provider_state.clone(),
        });
    }

    /// Puts the answers after their calls, in the order of the calls.
    fn close_calls(&mut self) {
        for (id, answer) in std::mem::take(&mut self.calls) {
            self.messages.push(answer.unwrap_or_else(|| Message::tool(id, INTERRUPTED, true)));
        }
    }
}
