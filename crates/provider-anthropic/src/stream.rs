//! What comes back as a stream.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_http::{Draft, Event, Reply, Stream, lenient};
use layer0::read_tagged;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::response::{WireBlock, WireUsage, add, finish};

#[derive(Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
enum WireEvent {
    MessageStart {
        message: MessageHead,
    },
    ContentBlockStart {
        #[serde(default, deserialize_with = "lenient::index")]
        index: u64,
        content_block: WireBlock,
    },
    ContentBlockDelta {
        #[serde(default, deserialize_with = "lenient::index")]
        index: u64,
        delta: BlockDelta,
    },
    MessageDelta {
        delta: MessageTail,
        #[serde(default, deserialize_with = "lenient::maybe")]
        usage: Option<WireUsage>,
    },
    MessageStop,
    /// `ping`, `content_block_stop`, and what may come to be; `error` is read before.
    #[serde(other)]
    Unknown,
}

impl<'de> Deserialize<'de> for WireEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_tagged(deserializer, "type", |event| Self::deserialize(event))
    }
}

#[derive(Deserialize)]
struct MessageHead {
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct MessageTail {
    #[serde(default, deserialize_with = "lenient::text")]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum BlockDelta {
    TextDelta {
        #[serde(default, deserialize_with = "lenient::text_or_empty")]
        text: String,
    },
    ThinkingDelta {
        #[serde(default, deserialize_with = "lenient::text_or_empty")]
        thinking: String,
    },
    InputJsonDelta {
        #[serde(default, deserialize_with = "lenient::text_or_empty")]
        partial_json: String,
    },
    SignatureDelta {
        #[serde(default, deserialize_with = "lenient::text_or_empty")]
        signature: String,
    },
    /// Citations.
    #[serde(other)]
    Unknown,
}

/// An answer as its events tell it; its end is `message_stop`.
#[derive(Default)]
pub struct MessagesStream {
    /// The tokens billed so far; the blocks are added at the end.
    draft: Draft,
    usage: WireUsage,
    blocks: BTreeMap<u64, OpenBlock>,
    stop_reason: Option<String>,
    has_stopped: bool,
}

struct OpenBlock {
    block: WireBlock,
    /// The arguments of a tool call, as text.
    input: String,
}

impl Stream for MessagesStream {
    type Frame = Event;

    fn take(&mut self, event: Event, reply: &Reply<'_>) -> Result<ControlFlow<()>, ProviderError> {
        match reply.decode(event.data.as_bytes())? {
            WireEvent::MessageStart { message } => self.bill(message.usage, reply),
            WireEvent::ContentBlockStart { index, content_block } => {
                self.begin(index, content_block, reply);
            }
            WireEvent::ContentBlockDelta { index, delta } => {
                if !self.add(index, &delta, reply) {
                    let why = format!("a piece of block {index}, which is not of that type");
                    return Err(reply.invalid_response(&why));
                }
            }
            WireEvent::MessageDelta { delta, usage } => {
                self.stop_reason = delta.stop_reason.or(self.stop_reason.take());
                self.bill(usage, reply);
            }
            WireEvent::MessageStop => {
                self.has_stopped = true;
                return Ok(ControlFlow::Break(()));
            }
            WireEvent::Unknown => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    fn finish(self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
        if !self.has_stopped {
            return Err(ProviderError::stream_truncated("`message_stop`"));
        }
        let mut draft = self.draft;
        for open in self.blocks.into_values() {
            add(&mut draft, open.into_block());
        }
        finish(draft, self.stop_reason.as_deref(), reply)
    }
}

impl OpenBlock {
    fn into_block(self) -> WireBlock {
        match self.block {
            WireBlock::ToolUse { id, name, input } => {
                let input = whole_input(input, &self.input);
                WireBlock::ToolUse { id, name, input }
            }
            block => block,
        }
    }
}

impl MessagesStream {
    fn bill(&mut self, usage: Option<WireUsage>, reply: &Reply<'_>) {
        let Some(usage) = usage else { return };
        self.usage.update(&usage);
        self.draft.bill(self.usage.billed(), reply);
    }

    fn begin(&mut self, index: u64, block: WireBlock, reply: &Reply<'_>) {
        match &block {
            WireBlock::Text { text } => reply.tell_text(text),
            WireBlock::Thinking { thinking, .. } => reply.tell_thinking(thinking),
            WireBlock::RedactedThinking { .. } | WireBlock::ToolUse { .. } | WireBlock::Unknown => {
            }
        }
        self.blocks.insert(index, OpenBlock { block, input: String::new() });
    }

    /// Adds a piece to its block; says whether the block can take it.
    fn add(&mut self, index: u64, delta: &BlockDelta, reply: &Reply<'_>) -> bool {
        let Some(open) = self.blocks.get_mut(&index) else { return false };
        match (&mut open.block, delta) {
            (WireBlock::Text { text }, BlockDelta::TextDelta { text: piece }) => {
                text.push_str(piece);
                reply.tell_text(piece);
            }
            (
                WireBlock::Thinking { thinking, .. },
                BlockDelta::ThinkingDelta { thinking: piece },
            ) => {
                thinking.push_str(piece);
                reply.tell_thinking(piece);
            }
            (
                WireBlock::Thinking { signature, .. },
                BlockDelta::SignatureDelta { signature: piece },
            ) => {
                signature.push_str(piece);
            }
            (WireBlock::ToolUse { .. }, BlockDelta::InputJsonDelta { partial_json }) => {
                open.input.push_str(partial_json);
            }
            (WireBlock::Unknown, _) | (_, BlockDelta::Unknown) => {}
            (
                WireBlock::Text { .. }
                | WireBlock::Thinking { .. }
                | WireBlock::RedactedThinking { .. }
                | WireBlock::ToolUse { .. },
                _,
            ) => {
                return false;
            }
        }
        true
    }
}

/// Returns the arguments that came in pieces, as text; where none came, those the block began with,
/// unless they are the empty object that stands for what is to come.
fn whole_input(at_start: Option<Box<RawValue>>, pieces: &str) -> Option<Box<RawValue>> {
    let is_told = |input: &RawValue| {
        let fields: Option<BTreeMap<String, IgnoredAny>> = serde_json::from_str(input.get()).ok();
        fields.is_some_and(|fields| !fields.is_empty())
    };
    match at_start.filter(|input| pieces.is_empty() && is_told(input)) {
        Some(input) => Some(input),
        None => to_raw_value(pieces).ok(),
    }
}
