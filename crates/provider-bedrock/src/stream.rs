//! Decoding of streams.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_http::{CallDraft, Draft, Reply, Stream, lenient};
use layer0::JsonText;
use serde::Deserialize;

use crate::frames::Frame;
use crate::response::{BedrockAnswerCall, BedrockPart, BedrockUsage, Thinking, finish};
use crate::served::{CALL, RESULT, StreamedBlock};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockStart {
    #[serde(default, deserialize_with = "lenient::index")]
    content_block_index: u64,
    #[serde(default)]
    start: BlockStartContent,
}

/// The start of a block; blocks of text and reasoning start with their first piece.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct BlockStartContent {
    tool_use: Option<BedrockAnswerCall>,
    /// The result of a tool that Bedrock ran itself.
    #[serde(default, deserialize_with = "lenient::json")]
    tool_result: Option<JsonText>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BedrockBlockDelta {
    #[serde(default, deserialize_with = "lenient::index")]
    content_block_index: u64,
    delta: BedrockDelta,
}

/// A piece of a block: one of these fields, or a future one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BedrockDelta {
    #[serde(default, deserialize_with = "lenient::text")]
    text: Option<String>,
    reasoning_content: Option<ReasoningDelta>,
    tool_use: Option<CallDelta>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    tool_result: Option<Vec<JsonText>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReasoningDelta {
    /// Absent in signatures and redacted reasoning.
    #[serde(default, deserialize_with = "lenient::text_or_empty")]
    text: String,
    #[serde(default, deserialize_with = "lenient::text")]
    signature: Option<String>,
    /// In base64.
    #[serde(default, deserialize_with = "lenient::text")]
    redacted_content: Option<String>,
}

#[derive(Deserialize)]
struct CallDelta {
    #[serde(default, deserialize_with = "lenient::text_or_empty")]
    input: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageStop {
    #[serde(default, deserialize_with = "lenient::text")]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<BedrockUsage>,
}

/// An answer assembled from events. It ends with `messageStop`, and the usage follows it.
#[derive(Default)]
pub struct ConverseStream {
    /// The tokens billed so far; the blocks are added at the end.
    draft: Draft,
    usage: BedrockUsage,
    blocks: BTreeMap<u64, BedrockOpenBlock>,
    stop: Option<MessageStop>,
    /// Whether the metadata was received, with or without a usage.
    is_billed: bool,
}

enum BedrockOpenBlock {
    Text(String),
    Thinking(Thinking),
    /// A call, whose arguments are received as text.
    Call(CallDraft),
    /// A call that the endpoint runs itself, or its result; `None` if it cannot be recorded.
    Served(Option<StreamedBlock>),
}

impl Stream for ConverseStream {
    type Frame = Frame;

    fn take(&mut self, frame: Frame, reply: &Reply<'_>) -> Result<ControlFlow<()>, ProviderError> {
        let (kind, payload) = match frame {
            Frame::Event { kind, payload } => (kind, payload),
            Frame::Failure(body) => return Err(reply.failure(body)),
        };
        let fits = match kind.as_str() {
            "contentBlockStart" => self.begin(reply.decode(payload.as_bytes())?),
            "contentBlockDelta" => self.add(reply.decode(payload.as_bytes())?, reply),
            "messageStop" => {
                self.stop = Some(reply.decode(payload.as_bytes())?);
                true
            }
            "metadata" => {
                let metadata: Metadata = reply.decode(payload.as_bytes())?;
                if let Some(usage) = metadata.usage {
                    self.usage.update(&usage);
                    self.draft.bill(self.usage.billed_tokens(), reply);
                }
                self.is_billed = true;
                true
            }
            // `messageStart`, `contentBlockStop`, and future events.
            _ => true,
        };
        if !fits {
            return Err(reply.invalid_response("a piece of a block which is not of that type"));
        }
        let is_done = self.is_billed && self.stop.is_some();
        Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn held_bytes(&self) -> usize {
        let blocks =
            self.blocks.values().map(|block| size_of::<BedrockOpenBlock>() + block.held_bytes());
        self.draft.held_bytes() + blocks.sum::<usize>()
    }

    fn finish(self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
        let Some(stop) = self.stop else {
            return Err(ProviderError::stream_truncated("`messageStop`"));
        };
        let mut draft = self.draft;
        for open in self.blocks.into_values() {
            let part = match open {
                BedrockOpenBlock::Text(text) => BedrockPart::Text(text),
                BedrockOpenBlock::Thinking(thinking) => BedrockPart::Thinking(thinking),
                BedrockOpenBlock::Call(call) => BedrockPart::Call(call),
                BedrockOpenBlock::Served(block) => {
                    match block.and_then(StreamedBlock::into_block) {
                        Some(block) => BedrockPart::Served(block),
                        None => continue,
                    }
                }
            };
            part.add_to(&mut draft);
        }
        finish(draft, stop.stop_reason.as_deref(), reply)
    }
}

impl ConverseStream {
    /// Begins a block; returns whether it was new.
    fn begin(&mut self, event: BlockStart) -> bool {
        let BlockStartContent { tool_use, tool_result } = event.start;
        let block = match (tool_use, tool_result) {
            (Some(BedrockAnswerCall::Own(call)), _) => BedrockOpenBlock::Call(call.into_draft()),
            (Some(BedrockAnswerCall::Served(head)), _) => {
                BedrockOpenBlock::Served(head.map(|head| StreamedBlock::new(CALL, head)))
            }
            (None, Some(head)) => BedrockOpenBlock::Served(Some(StreamedBlock::new(RESULT, head))),
            (None, None) => return true,
        };
        self.blocks.insert(event.content_block_index, block).is_none()
    }

    /// Adds a piece to its block; returns whether the block accepts it.
    fn add(&mut self, event: BedrockBlockDelta, reply: &Reply<'_>) -> bool {
        let BedrockDelta { text, reasoning_content, tool_use, tool_result } = event.delta;
        let index = event.content_block_index;
        if let Some(piece) = text {
            let block = self.blocks.entry(index).or_insert(BedrockOpenBlock::Text(String::new()));
            let BedrockOpenBlock::Text(text) = block else { return false };
            text.push_str(&piece);
            reply.tell_text(&piece);
        }
        if let Some(ReasoningDelta { text: piece, signature, redacted_content }) = reasoning_content
        {
            let block =
                self.blocks.entry(index).or_insert(BedrockOpenBlock::Thinking(Thinking::default()));
            let BedrockOpenBlock::Thinking(thinking) = block else { return false };
            thinking.text.push_str(&piece);
            append(&mut thinking.signature, signature.as_deref());
            append(&mut thinking.redacted, redacted_content.as_deref());
            reply.tell_thinking(&piece);
        }
        if let Some(CallDelta { input: piece }) = tool_use {
            match self.blocks.get_mut(&index) {
                Some(BedrockOpenBlock::Call(call)) => call.push(&piece),
                Some(BedrockOpenBlock::Served(block)) => {
                    block.iter_mut().for_each(|block| block.push_input(&piece));
                }
                Some(BedrockOpenBlock::Text(_) | BedrockOpenBlock::Thinking(_)) | None => {
                    return false;
                }
            }
        }
        if let (Some(pieces), Some(BedrockOpenBlock::Served(Some(block)))) =
            (tool_result, self.blocks.get_mut(&index))
        {
            block.push_content(pieces);
        }
        true
    }
}

impl BedrockOpenBlock {
    fn held_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Thinking(thinking) => thinking.held_bytes(),
            Self::Call(call) => call.held_bytes(),
            Self::Served(block) => block.as_ref().map_or(0, StreamedBlock::held_bytes),
        }
    }
}

fn append(text: &mut Option<String>, piece: Option<&str>) {
    if let Some(piece) = piece {
        text.get_or_insert_default().push_str(piece);
    }
}
