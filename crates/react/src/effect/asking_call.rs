//! Questions of a running call to a person.

use std::sync::Arc;

use async_trait::async_trait;
use backstop_react_machine::ToolRun;
use backstop_tool::{Given, People, Schema, ToolContext, ToolError};
use layer0::JsonText;
use layer0::id::CallId;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::asks::Asks;
use super::effects::Effects;
use crate::dispatch::Dispatcher;
use crate::journal::{PersonAsk, StepReply, StepRequest};

/// Maximum number of questions in one call, so that a server that keeps asking releases the person.
const MAX_ASKS: u32 = 160;

/// A running call that can ask a person.
pub(super) struct AskingCall {
    call: CallId,
    arguments: JsonText,
    asks: Arc<Asks>,
    /// Cancelled when the call is given up.
    given_up: CancellationToken,
    has_approver: bool,
    dispatcher: Arc<Dispatcher>,
    /// Number of questions so far. The lock allows one question at a time.
    asked: Mutex<u32>,
}

impl AskingCall {
    pub(super) fn new(
        effects: &Effects,
        run: &ToolRun,
        context: &ToolContext,
        dispatcher: &Arc<Dispatcher>,
    ) -> Self {
        Self {
            call: run.call_id.clone(),
            arguments: run.arguments.clone(),
            asks: Arc::clone(&effects.asks),
            given_up: context.cancellation.clone(),
            has_approver: effects.agent.approver.is_some(),
            dispatcher: Arc::clone(dispatcher),
            asked: Mutex::default(),
        }
    }
}

#[async_trait]
impl People for AskingCall {
    async fn ask(&self, message: &str, schema: JsonText) -> Result<Given, ToolError> {
        if let Err(error) = Schema::new(&schema.value()) {
            let why = format!("what it asks a person for is no JSON Schema: {error}");
            return Err(ToolError::ExecutionFailed(why));
        }
        if !self.has_approver {
            return Ok(Given::NobodyThere);
        }
        let mut asked = self.asked.lock().await;
        if *asked >= MAX_ASKS {
            let why = format!("it asked a person {MAX_ASKS} times, and asks again");
            return Err(ToolError::ExecutionFailed(why));
        }
        *asked += 1;
        let (call, arguments) = (self.call.clone(), self.arguments.clone());
        let ask = PersonAsk { call, arguments, message: message.into(), schema };
        // The tool's time limit does not shorten the time to answer.
        let _wait = self.dispatcher.ask_person();
        let withdraws = Withdraws(self);
        let told = self.asks.ask(StepRequest::Person(Box::new(ask))).await;
        std::mem::forget(withdraws);
        match told {
            Some(StepReply::Given(given)) => Ok(given),
            // The run closes the question before it releases the call.
            _ => Ok(Given::NobodyThere),
        }
    }
}

/// Guard of a question: when dropped before the answer, asks the run to close the question.
struct Withdraws<'a>(&'a AskingCall);

impl Drop for Withdraws<'_> {
    fn drop(&mut self) {
        let AskingCall { call, asks, given_up, .. } = self.0;
        // The answer of a call that was given up closes its question.
        if !given_up.is_cancelled() {
            asks.tell(StepRequest::NoPerson { call: call.clone() });
        }
    }
}
