//! What a running call asks people through.

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
use crate::journal::{Ask, PersonAsk, Told};

/// How often a call may ask, so that a server that goes on asking lets go of the person.
const MAX_ASKS: u32 = 160;

/// A call that is running, as one that asks.
pub(super) struct AskingCall {
    call: CallId,
    arguments: JsonText,
    asks: Arc<Asks>,
    /// Is cancelled when the call is given up.
    given_up: CancellationToken,
    has_approver: bool,
    dispatcher: Arc<Dispatcher>,
    /// How often it asked. A call asks one thing at a time.
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
        // Nobody has less time to answer because the tool is to be quick.
        let _wait = self.dispatcher.ask_person();
        let withdraws = Withdraws(self);
        let told = self.asks.ask(Ask::Person(Box::new(ask))).await;
        std::mem::forget(withdraws);
        match told {
            Some(Told::Given(given)) => Ok(given),
            // The run closes what is asked before it lets go of a call that asks.
            _ => Ok(Given::NobodyThere),
        }
    }
}

/// Tells the run that a call asks no more, when it is dropped before there is an answer.
struct Withdraws<'a>(&'a AskingCall);

impl Drop for Withdraws<'_> {
    fn drop(&mut self) {
        let AskingCall { call, asks, given_up, .. } = self.0;
        // The answer of a call that is given up says it.
        if !given_up.is_cancelled() {
            asks.tell(Ask::NoPerson { call: call.clone() });
        }
    }
}
