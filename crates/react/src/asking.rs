//! Model calls: through the retry stack, with each attempt in the log before the next.

use std::sync::Arc;

use layer0::event::{EventKind, ModelFailed, ModelResponded};
use layer0::failure::{Failure, chain};
use layer0::{Code, code};
use provider::ModelRequest;
use react_machine::{Input, Machine, ModelCall};
use tower::ServiceExt;
use tracing::Instrument;

use crate::driver::Driver;
use crate::error::AgentError;
use crate::model::{AttemptedCall, CallRecord};
use crate::redacting::{recordable_calls, recordable_state, redact_shared};

impl Driver {
    /// Asks the model through the retry stack. Each attempt that is followed by another is appended
    /// while the stack waits; if that fails, the call is dropped.
    pub(crate) async fn call_model(
        &mut self,
        machine: &mut Machine,
        call: ModelCall,
    ) -> Result<(), AgentError> {
        let record =
            Arc::new(CallRecord::new(&self.agent, self.run.clone(), &call, self.noted.clone()));
        let request = ModelRequest {
            messages: call.messages,
            tools: Arc::clone(&self.definition.tools),
            settings: self.agent.settings.capped(call.max_output_tokens),
            sink: None,
        };
        let max_attempts = call.max_attempts;
        let attempted =
            AttemptedCall { request, record: Arc::clone(&record), max_attempts, made_before: 0 };
        let span = tracing::info_span!("model", call = call.call);
        let mut response = self.agent.stack.clone().oneshot(attempted).instrument(span);
        let recorded_before = machine.usage().model_attempts;
        let cancellation = self.request.cancellation.clone();
        let result = loop {
            let clock = &self.agent.clock;
            let cut = tokio::select! {
                biased;
                () = cancellation.cancelled() => code::RUN_CANCELLED,
                () = self.alarm.rings_at(machine.deadline(), clock) => code::BUDGET_WALL_TIME,
                Some(note) = self.notes.recv() => {
                    self.take_note(machine, note).await?;
                    continue;
                }
                result = &mut response => break result,
            };
            drop(response);
            while let Ok(note) = self.notes.try_recv() {
                self.take_note(machine, note).await?;
            }
            // The attempt in flight may be billed, so it counts.
            if record.made() > machine.usage().model_attempts - recorded_before {
                let cut = record.cut(Code::new(cut));
                self.step(machine, [Input::answer(self.agent.clock.now(), call.id, cut)]).await?;
            }
            return match cut {
                code::RUN_CANCELLED => self.cancel(machine).await,
                _ => self.tick(machine).await,
            };
        };
        // The stack held the conversation; the machine is about to append to it.
        drop(response);
        let now = self.agent.clock.now();
        let last = Input::answer(now, call.id, record.attempted(result.as_ref(), None));
        let answer = match result {
            Ok(mut response) => {
                let redactor = &self.agent.redactor;
                recordable_calls(redactor, &mut response.tool_calls);
                EventKind::from(ModelResponded {
                    call: call.call,
                    text: redact_shared(redactor, response.text),
                    thinking: response.thinking.map(|text| redact_shared(redactor, text)),
                    provider_state: response
                        .provider_state
                        .and_then(|state| recordable_state(redactor, state)),
                    tool_calls: response.tool_calls,
                    stop_reason: response.stop_reason,
                    usage: response.usage,
                })
            }
            // The budget's end is what stopped the run, not the attempt before it.
            Err(_) if record.was_limited() => {
                self.step(machine, [last]).await?;
                return self.tick(machine).await;
            }
            Err(error) => {
                let redact = |text: String| self.agent.redactor.redact(&text).into_owned();
                let chain: Vec<String> = chain(&error).into_iter().map(redact).collect();
                let failed = ModelFailed {
                    call: call.call,
                    reason: error.code().into(),
                    message: chain.first().map_or("", String::as_str).into(),
                    chain,
                    attempts: record.attempt(),
                };
                self.model_error = Some(error);
                failed.into()
            }
        };
        self.step(machine, [last, Input::answer(now, call.id, answer)]).await
    }
}
