//! Decoding of streams.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_http::{CallDraft, Draft, Reply, SseEvent, Stream, lenient};
use layer0::{JsonText, read_tagged};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::response::{AnthropicAnswerBlock, AnthropicUsage, add, add_call, finish};

#[derive(Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
enum WireEvent {
    MessageStart {
        message: MessageHead,
    },
    ContentBlockStart {
        #[serde(default, deserialize_with = "lenient::index")]
        index: u64,
        content_block: AnthropicAnswerBlock,
    },
    ContentBlockDelta {
        #[serde(default, deserialize_with = "lenient::index")]
        index: u64,
        delta: AnthropicDelta,
    },
    MessageDelta {
        delta: MessageTail,
        #[serde(default, deserialize_with = "lenient::maybe")]
        usage: Option<AnthropicUsage>,
    },
    MessageStop,
    /// `ping`, `content_block_stop`, and future events; `error` is classified before.
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
    usage: Option<AnthropicUsage>,
}

#[derive(Deserialize)]
struct MessageTail {
    #[serde(default, deserialize_with = "lenient::text")]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicDelta {
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
    CompactionDelta {
        #[serde(default, deserialize_with = "lenient::text")]
        content: Option<String>,
        #[serde(default, deserialize_with = "lenient::text")]
        encrypted_content: Option<String>,
    },
    /// Citations.
    #[serde(other)]
    Unknown,
}

/// An answer assembled from events. It ends with `message_stop`.
#[derive(Default)]
pub struct MessagesStream {
    /// The tokens billed so far; the blocks are added at the end.
    draft: Draft,
    usage: AnthropicUsage,
    /// The blocks of each index, in order. Some endpoints give all blocks the same index.
    blocks: BTreeMap<u64, Vec<AnthropicOpenBlock>>,
    /// The number of blocks begun.
    begun: usize,
    stop_reason: Option<String>,
    has_stopped: bool,
}

/// A block to which pieces may be added.
struct AnthropicOpenBlock {
    /// Its place among all blocks, in the order of beginning.
    place: usize,
    body: OpenBody,
}

enum OpenBody {
    /// A call, whose arguments are received as text.
    Call(CallDraft),
    Other(AnthropicAnswerBlock),
}

impl OpenBody {
    fn held_bytes(&self) -> usize {
        match self {
            Self::Call(call) => call.held_bytes(),
            Self::Other(block) => block.held_bytes(),
        }
    }
}

impl Stream for MessagesStream {
    type Frame = SseEvent;

    fn take(
        &mut self,
        event: SseEvent,
        reply: &Reply<'_>,
    ) -> Result<ControlFlow<()>, ProviderError> {
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

    fn held_bytes(&self) -> usize {
        let blocks = self.blocks.values().flatten();
        let blocks = blocks.map(|block| size_of::<AnthropicOpenBlock>() + block.body.held_bytes());
        self.draft.held_bytes() + blocks.sum::<usize>()
    }

    fn finish(self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
        if !self.has_stopped {
            return Err(ProviderError::stream_truncated("`message_stop`"));
        }
        let mut draft = self.draft;
        let mut blocks = self.blocks;
        blocks.values_mut().for_each(drop_repeated_beginnings);
        for open in in_order(blocks) {
            match open {
                OpenBody::Call(call) => add_call(&mut draft, call),
                OpenBody::Other(block) => add(&mut draft, block),
            }
        }
        finish(draft, self.stop_reason.as_deref(), reply)
    }
}

/// Drops calls without arguments that have the index, the id and the name of another one: their beginning was received
/// twice.
fn drop_repeated_beginnings(blocks: &mut Vec<AnthropicOpenBlock>) {
    let mut kept: Vec<AnthropicOpenBlock> = Vec::new();
    // The first call of each id and name. The others have arguments.
    let mut first = BTreeMap::new();
    for block in blocks.drain(..) {
        let OpenBody::Call(call) = &block.body else {
            kept.push(block);
            continue;
        };
        let position = *first.entry((call.id.clone(), call.name.clone())).or_insert(kept.len());
        let earlier = kept.get_mut(position).and_then(|earlier| match &mut earlier.body {
            OpenBody::Call(earlier) if is_repeated(earlier, call) => Some(earlier),
            OpenBody::Call(_) | OpenBody::Other(_) => None,
        });
        match earlier {
            Some(earlier) => earlier.fill(call),
            None => kept.push(block),
        }
    }
    *blocks = kept;
}

/// Returns whether two drafts with the same id and name are one call: one of them came without its arguments.
fn is_repeated(earlier: &CallDraft, call: &CallDraft) -> bool {
    !call.id.is_empty() && (earlier.has_no_arguments() || call.has_no_arguments())
}

/// Returns the blocks by index, or in the order of beginning if several have the same index.
fn in_order(blocks: BTreeMap<u64, Vec<AnthropicOpenBlock>>) -> impl Iterator<Item = OpenBody> {
    let is_ambiguous = blocks.values().any(|blocks| blocks.len() > 1);
    let mut blocks: Vec<AnthropicOpenBlock> = blocks.into_values().flatten().collect();
    if is_ambiguous {
        blocks.sort_by_key(|block| block.place);
    }
    blocks.into_iter().map(|block| block.body)
}

impl MessagesStream {
    fn bill(&mut self, usage: Option<AnthropicUsage>, reply: &Reply<'_>) {
        let Some(usage) = usage else { return };
        self.usage.update(usage);
        self.draft.bill(self.usage.billed_tokens(), reply);
    }

    /// Begins a block, after those with the same index.
    fn begin(&mut self, index: u64, block: AnthropicAnswerBlock, reply: &Reply<'_>) {
        let body = match block {
            AnthropicAnswerBlock::ToolUse { id, name, input, caller } => {
                let mut call = CallDraft::new(id, name);
                call.kept = caller;
                call.take(input.filter(|input| !is_empty(input)));
                OpenBody::Call(call)
            }
            block => {
                tell(&block, reply);
                OpenBody::Other(block)
            }
        };
        let place = self.begun;
        self.begun += 1;
        self.blocks.entry(index).or_default().push(AnthropicOpenBlock { place, body });
    }

    /// Adds a piece to the last block of its index; returns whether the block accepts it.
    fn add(&mut self, index: u64, delta: &AnthropicDelta, reply: &Reply<'_>) -> bool {
        let Some(open) = self.blocks.get_mut(&index).and_then(|blocks| blocks.last_mut()) else {
            return false;
        };
        match (&mut open.body, delta) {
            (OpenBody::Call(call), AnthropicDelta::InputJsonDelta { partial_json }) => {
                call.push(partial_json);
                true
            }
            (_, AnthropicDelta::Unknown) => true,
            (OpenBody::Call(_), _) => false,
            (OpenBody::Other(block), delta) => add_piece(block, delta, reply),
        }
    }
}

fn tell(block: &AnthropicAnswerBlock, reply: &Reply<'_>) {
    match block {
        AnthropicAnswerBlock::Text { text } => reply.tell_text(text),
        AnthropicAnswerBlock::Thinking { thinking, .. } => reply.tell_thinking(thinking),
        AnthropicAnswerBlock::RedactedThinking { .. }
        | AnthropicAnswerBlock::Served(_)
        | AnthropicAnswerBlock::ToolUse { .. }
        | AnthropicAnswerBlock::Unknown => {}
    }
}

/// Adds a piece to a block other than a call; returns whether the block accepts it.
fn add_piece(block: &mut AnthropicAnswerBlock, delta: &AnthropicDelta, reply: &Reply<'_>) -> bool {
    match (block, delta) {
        (AnthropicAnswerBlock::Text { text }, AnthropicDelta::TextDelta { text: piece }) => {
            text.push_str(piece);
            reply.tell_text(piece);
        }
        (
            AnthropicAnswerBlock::Thinking { thinking, .. },
            AnthropicDelta::ThinkingDelta { thinking: piece },
        ) => {
            thinking.push_str(piece);
            reply.tell_thinking(piece);
        }
        (
            AnthropicAnswerBlock::Thinking { signature, .. },
            AnthropicDelta::SignatureDelta { signature: piece },
        ) => {
            signature.get_or_insert_default().push_str(piece);
        }
        (AnthropicAnswerBlock::Served(block), AnthropicDelta::InputJsonDelta { partial_json }) => {
            block.input.push_str(partial_json);
        }
        (
            AnthropicAnswerBlock::Served(block),
            AnthropicDelta::CompactionDelta { content, encrypted_content },
        ) => {
            for (name, text) in [("content", content), ("encrypted_content", encrypted_content)] {
                let text = text.as_deref().map(JsonText::string);
                block.compaction.extend(text.map(|text| (name.to_owned(), text)));
            }
        }
        (AnthropicAnswerBlock::Served(_) | AnthropicAnswerBlock::Unknown, _) => {}
        _ => return false,
    }
    true
}

/// Returns whether arguments are an empty object, the placeholder for later ones.
fn is_empty(input: &RawValue) -> bool {
    let fields: Option<BTreeMap<String, IgnoredAny>> = serde_json::from_str(input.get()).ok();
    fields.is_some_and(|fields| fields.is_empty())
}
