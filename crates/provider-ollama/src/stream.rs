//! Decoding of streams.

use std::ops::ControlFlow;

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_http::{CallDraft, Draft, Reply, Stream, keep_field};
use layer0::JsonText;
use layer0::message::{StatePart, StopReason};

use crate::request::THINKING;
use crate::response::Chunk;

/// An answer assembled from lines. It ends with a line with `done: true`.
#[derive(Default)]
pub struct OllamaStream {
    draft: Draft,
    done_reason: Option<String>,
    is_done: bool,
}

impl Stream for OllamaStream {
    type Frame = String;

    fn take(&mut self, line: String, reply: &Reply<'_>) -> Result<ControlFlow<()>, ProviderError> {
        self.add(reply.decode(line.as_bytes())?, reply);
        Ok(if self.is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn held_bytes(&self) -> usize {
        self.draft.held_bytes()
    }

    fn finish(self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
        if !self.is_done {
            return Err(ProviderError::stream_truncated("`done: true`"));
        }
        let stop_reason = match self.done_reason.as_deref() {
            // Done without a reason means that a runner lost its connection.
            None | Some("") => return Err(ProviderError::stream_truncated("a done reason")),
            Some("stop") if !self.draft.calls.is_empty() => StopReason::ToolUse,
            Some("stop") => StopReason::End,
            Some("length") => StopReason::MaxTokens,
            // There was nothing to answer, as in a conversation without a user; a retry would be as
            // useless.
            Some(reason @ ("load" | "unload")) => {
                let why = format!("there was nothing to answer, the model did only `{reason}`");
                return Err(ProviderError::invalid_request(why, None));
            }
            Some(word) => reply.unknown_stop(word)?,
        };
        let mut draft = self.draft;
        // Thinking is only kept with the calls it led to.
        if !draft.calls.is_empty() && !draft.thinking.is_empty() {
            draft.kept.extend(
                keep_field(THINKING, &JsonText::string(&draft.thinking)).map(StatePart::new),
            );
        }
        Ok(draft.finish(stop_reason, reply))
    }
}

impl OllamaStream {
    /// Adds a whole response, or the next piece of one.
    pub(crate) fn add(&mut self, chunk: Chunk, reply: &Reply<'_>) {
        if let Some(usage) = chunk.usage() {
            self.draft.bill(usage, reply);
        }
        self.is_done = chunk.done;
        self.done_reason = chunk.done_reason.or(self.done_reason.take());
        let Some(said) = chunk.message else { return };
        self.draft.think(said.thinking.as_deref().unwrap_or_default(), reply);
        self.draft.say(said.content.as_deref().unwrap_or_default(), reply);
        let calls = said.tool_calls.unwrap_or_default().into_iter();
        self.draft.calls.extend(calls.map(CallDraft::from));
    }
}
