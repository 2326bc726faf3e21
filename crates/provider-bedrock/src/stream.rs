//! What comes back as a stream.

use std::collections::BTreeMap;

use provider::{ModelResponse, ProviderError, StreamSink};
use provider_http::{CallDraft, Endpoint, lenient};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::frames::{Frame, Frames};
use crate::response::{Draft, Part, Thinking, WireUsage};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockStart {
    #[serde(default, deserialize_with = "lenient::index")]
    content_block_index: u64,
    #[serde(default)]
    start: Start,
}

/// How a block begins; blocks of text and reasoning begin with their first piece.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Start {
    tool_use: Option<CallHead>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallHead {
    #[serde(default, deserialize_with = "lenient::text_or_empty")]
    tool_use_id: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockDelta {
    #[serde(default, deserialize_with = "lenient::index")]
    content_block_index: u64,
    delta: Delta,
}

/// A piece of a block: one of these, or what may come to be.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Delta {
    #[serde(default, deserialize_with = "lenient::text")]
    text: Option<String>,
    reasoning_content: Option<ReasoningDelta>,
    tool_use: Option<CallDelta>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReasoningDelta {
    /// Signatures and redacted reasoning have none.
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
    usage: Option<WireUsage>,
}

/// Reads a stream to its end, which is `messageStop`; what was billed comes behind it.
pub(crate) async fn read(
    endpoint: &Endpoint,
    mut frames: Frames<'_>,
    sink: Option<&dyn StreamSink>,
) -> Result<ModelResponse, ProviderError> {
    let mut assembly = Assembly { sink, usage: WireUsage::default(), blocks: BTreeMap::new() };
    let mut stop: Option<MessageStop> = None;
    let mut is_billed = false;
    while !(is_billed && stop.is_some())
        && let Some(frame) = frames.next().await?
    {
        let fits = match frame.kind.as_str() {
            "contentBlockStart" => assembly.begin(decode(endpoint, &frame)?),
            "contentBlockDelta" => assembly.take(&decode(endpoint, &frame)?),
            "messageStop" => {
                stop = Some(decode(endpoint, &frame)?);
                true
            }
            "metadata" => {
                let metadata: Metadata = decode(endpoint, &frame)?;
                assembly.take_usage(metadata.usage);
                is_billed = true;
                true
            }
            // `messageStart`, `contentBlockStop`, and what may come to be.
            _ => true,
        };
        if !fits {
            return Err(endpoint.invalid_response("a piece of a block which is not of that type"));
        }
    }
    match stop {
        Some(stop) => assembly.into_draft().finish(endpoint, stop.stop_reason.as_deref()),
        None => Err(ProviderError::stream_truncated("`messageStop`")),
    }
}

fn decode<T: DeserializeOwned>(endpoint: &Endpoint, frame: &Frame) -> Result<T, ProviderError> {
    endpoint.decode(&frame.payload, None)
}

struct Assembly<'s> {
    sink: Option<&'s dyn StreamSink>,
    usage: WireUsage,
    blocks: BTreeMap<u64, OpenBlock>,
}

enum OpenBlock {
    Text(String),
    Thinking(Thinking),
    /// The arguments come as text.
    Call(CallDraft),
}

impl Assembly<'_> {
    fn take_usage(&mut self, usage: Option<WireUsage>) {
        let Some(usage) = usage else { return };
        self.usage = usage;
        if let Some(sink) = self.sink {
            sink.usage(self.usage.billed());
        }
    }

    /// Opens a block; says whether it was not open yet.
    fn begin(&mut self, event: BlockStart) -> bool {
        let Some(head) = event.start.tool_use else { return true };
        let call = OpenBlock::Call(CallDraft::new(head.tool_use_id, head.name));
        self.blocks.insert(event.content_block_index, call).is_none()
    }

    /// Adds a piece to its block; says whether the block can take it.
    fn take(&mut self, event: &BlockDelta) -> bool {
        let Delta { text, reasoning_content, tool_use } = &event.delta;
        let index = event.content_block_index;
        if let Some(piece) = text {
            let block = self.blocks.entry(index).or_insert(OpenBlock::Text(String::new()));
            let OpenBlock::Text(text) = block else { return false };
            text.push_str(piece);
            if let Some(sink) = self.sink.filter(|_| !piece.is_empty()) {
                sink.text(piece);
            }
        }
        if let Some(ReasoningDelta { text: piece, signature, redacted_content }) = reasoning_content
        {
            let block =
                self.blocks.entry(index).or_insert(OpenBlock::Thinking(Thinking::default()));
            let OpenBlock::Thinking(thinking) = block else { return false };
            thinking.text.push_str(piece);
            add(&mut thinking.signature, signature.as_deref());
            add(&mut thinking.redacted, redacted_content.as_deref());
            if let Some(sink) = self.sink.filter(|_| !piece.is_empty()) {
                sink.thinking(piece);
            }
        }
        if let Some(CallDelta { input: piece }) = tool_use {
            let Some(OpenBlock::Call(call)) = self.blocks.get_mut(&index) else { return false };
            call.push(piece);
        }
        true
    }

    fn into_draft(self) -> Draft {
        let mut draft = Draft::billed(self.usage.billed());
        for open in self.blocks.into_values() {
            draft.push(match open {
                OpenBlock::Text(text) => Part::Text(text),
                OpenBlock::Thinking(thinking) => Part::Thinking(thinking),
                OpenBlock::Call(call) => Part::Call(call),
            });
        }
        draft
    }
}

fn add(text: &mut Option<String>, piece: Option<&str>) {
    if let Some(piece) = piece {
        text.get_or_insert_default().push_str(piece);
    }
}
