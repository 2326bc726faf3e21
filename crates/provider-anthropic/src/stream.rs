//! What comes back as a stream.

use std::collections::BTreeMap;

use layer0::read_tagged;
use provider::{ModelResponse, ProviderError, StreamSink};
use provider_http::{Events, lenient};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::response::{Draft, WireBlock, WireUsage};

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

/// Reads a stream to its end, which is `message_stop`.
pub(crate) async fn read(
    mut events: Events<'_>,
    sink: Option<&dyn StreamSink>,
) -> Result<ModelResponse, ProviderError> {
    let mut assembly = Assembly { sink, usage: WireUsage::default(), blocks: BTreeMap::new() };
    let mut stop_reason = None;
    while let Some(event) = events.next().await? {
        match events.decode(&event)? {
            WireEvent::MessageStart { message } => assembly.take_usage(message.usage),
            WireEvent::ContentBlockStart { index, content_block } => {
                assembly.begin(index, content_block);
            }
            WireEvent::ContentBlockDelta { index, delta } => {
                if !assembly.take(index, &delta) {
                    let why = format!("a piece of block {index}, which is not of that type");
                    return Err(events.endpoint().invalid_response(&why));
                }
            }
            WireEvent::MessageDelta { delta, usage } => {
                stop_reason = delta.stop_reason.or(stop_reason);
                assembly.take_usage(usage);
            }
            WireEvent::MessageStop => {
                return assembly.into_draft().finish(events.endpoint(), stop_reason.as_deref());
            }
            WireEvent::Unknown => {}
        }
    }
    Err(ProviderError::stream_truncated("`message_stop`"))
}

struct Assembly<'s> {
    sink: Option<&'s dyn StreamSink>,
    usage: WireUsage,
    blocks: BTreeMap<u64, OpenBlock>,
}

struct OpenBlock {
    block: WireBlock,
    /// The arguments of a tool call, as text.
    input: String,
}

impl Assembly<'_> {
    fn take_usage(&mut self, usage: Option<WireUsage>) {
        let Some(usage) = usage else { return };
        self.usage.update(&usage);
        if let Some(sink) = self.sink {
            sink.usage(self.usage.billed());
        }
    }

    fn begin(&mut self, index: u64, block: WireBlock) {
        match &block {
            WireBlock::Text { text } => self.say(text),
            WireBlock::Thinking { thinking, .. } => self.think(thinking),
            WireBlock::RedactedThinking { .. } | WireBlock::ToolUse { .. } | WireBlock::Unknown => {
            }
        }
        self.blocks.insert(index, OpenBlock { block, input: String::new() });
    }

    /// Adds a piece to its block; says whether the block can take it.
    fn take(&mut self, index: u64, delta: &BlockDelta) -> bool {
        let Some(open) = self.blocks.get_mut(&index) else { return false };
        match (&mut open.block, delta) {
            (WireBlock::Text { text }, BlockDelta::TextDelta { text: piece }) => {
                text.push_str(piece);
                self.say(piece);
            }
            (
                WireBlock::Thinking { thinking, .. },
                BlockDelta::ThinkingDelta { thinking: piece },
            ) => {
                thinking.push_str(piece);
                self.think(piece);
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

    fn into_draft(self) -> Draft {
        let mut draft = Draft::billed(self.usage.billed());
        for open in self.blocks.into_values() {
            match open.block {
                WireBlock::ToolUse { id, name, input } => {
                    let input = whole_input(input, &open.input);
                    draft.push(WireBlock::ToolUse { id, name, input });
                }
                block => draft.push(block),
            }
        }
        draft
    }

    fn say(&self, piece: &str) {
        if let Some(sink) = self.sink.filter(|_| !piece.is_empty()) {
            sink.text(piece);
        }
    }

    fn think(&self, piece: &str) {
        if let Some(sink) = self.sink.filter(|_| !piece.is_empty()) {
            sink.thinking(piece);
        }
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
