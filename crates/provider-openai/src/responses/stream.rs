//! Decoding of streams.

use std::ops::ControlFlow;

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_http::{Reply, SseEvent, Stream, lenient};
use layer0::read_tagged;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::draft::ItemsDraft;
use super::items::{ItemPosition, Thought};
use super::response::{ResponsesItem, WireResponse};

/// The events that matter; all others repeat their contents.
#[derive(Deserialize)]
#[serde(remote = "Self")]
enum StreamEvent {
    #[serde(rename = "response.output_item.added")]
    ItemAdded(ItemEvent),
    #[serde(rename = "response.output_item.done")]
    ItemDone(ItemEvent),
    #[serde(rename = "response.output_text.delta")]
    Text(ResponsesDelta),
    #[serde(rename = "response.refusal.delta")]
    Refusal(ResponsesDelta),
    #[serde(rename = "response.reasoning_summary_text.delta")]
    Summary(ResponsesDelta),
    #[serde(rename = "response.reasoning_text.delta")]
    Reasoning(ResponsesDelta),
    #[serde(rename = "response.function_call_arguments.delta")]
    Arguments(ResponsesDelta),
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone(ResponsesDelta),
    #[serde(rename = "response.completed")]
    Completed { response: WireResponse },
    #[serde(rename = "response.incomplete")]
    Incomplete { response: WireResponse },
    #[serde(rename = "response.failed")]
    Failed { response: WireResponse },
    #[serde(rename = "response.cancelled")]
    Cancelled { response: WireResponse },
    /// The flat form; the one with an `error` inside is classified as a failure before.
    #[serde(rename = "error")]
    Error { code: Option<Value>, message: Option<String> },
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for StreamEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_tagged(deserializer, "type", |event| Self::deserialize(event))
    }
}

#[derive(Deserialize)]
struct ItemEvent {
    #[serde(default, deserialize_with = "lenient::count")]
    output_index: Option<u64>,
    item: NamedItem,
}

/// An item and its id.
struct NamedItem {
    id: Option<String>,
    item: ResponsesItem,
}

/// Not flattened: serde decodes that through its own values, in which numbers lose their text.
impl<'de> Deserialize<'de> for NamedItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct ItemIdField {
            #[serde(default, deserialize_with = "lenient::text")]
            id: Option<String>,
        }
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let ItemIdField { id } = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        let item = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        Ok(Self { id, item })
    }
}

#[derive(Deserialize)]
struct ResponsesDelta {
    #[serde(default, deserialize_with = "lenient::count")]
    output_index: Option<u64>,
    #[serde(default, deserialize_with = "lenient::text")]
    item_id: Option<String>,
    #[serde(default, deserialize_with = "lenient::count")]
    summary_index: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    content_index: Option<u64>,
    #[serde(default, deserialize_with = "lenient::text_or_empty")]
    delta: String,
    /// The complete arguments of a call.
    arguments: Option<Box<RawValue>>,
}

/// An answer assembled from events. It ends with an event that carries its final status.
#[derive(Default)]
pub struct ResponsesStream {
    draft: ItemsDraft,
    last: Option<WireResponse>,
}

impl Stream for ResponsesStream {
    type Frame = SseEvent;

    fn take(
        &mut self,
        event: SseEvent,
        reply: &Reply<'_>,
    ) -> Result<ControlFlow<()>, ProviderError> {
        // Some endpoints end as in Chat Completions; this is not an end marker here.
        if event.data.trim() == "[DONE]" {
            return Ok(ControlFlow::Break(()));
        }
        let mut end = |status: &str, mut response: WireResponse| {
            response.status.get_or_insert_with(|| status.to_owned());
            self.last = Some(response);
            Ok(ControlFlow::Break(()))
        };
        match reply.decode(event.data.as_bytes())? {
            StreamEvent::Completed { response } => return end("completed", response),
            StreamEvent::Incomplete { response } => return end("incomplete", response),
            StreamEvent::Failed { response } => return end("failed", response),
            StreamEvent::Cancelled { response } => return end("cancelled", response),
            StreamEvent::Error { code, message } => {
                let error = json!({ "error": { "code": code, "message": message } });
                return Err(reply.failure(error));
            }
            StreamEvent::ItemAdded(ItemEvent { output_index, item }) => {
                if let ResponsesItem::FunctionCall(call) = item.item {
                    let place = ItemPosition { index: output_index, item_id: item.id.as_deref() };
                    self.draft.take_call(place, call, false);
                }
            }
            StreamEvent::ItemDone(ItemEvent { output_index, item }) => {
                let place = ItemPosition { index: output_index, item_id: item.id.as_deref() };
                self.draft.take_done(place, item.item, reply);
            }
            StreamEvent::Text(piece) => self.draft.say(piece.place(), &piece.delta, false, reply),
            StreamEvent::Refusal(piece) => self.draft.say(piece.place(), &piece.delta, true, reply),
            StreamEvent::Summary(piece) => {
                let part = piece.summary_index.unwrap_or_default();
                self.draft.think(
                    piece.place(),
                    Thought { is_summary: true, part },
                    &piece.delta,
                    reply,
                );
            }
            StreamEvent::Reasoning(piece) => {
                let part = piece.content_index.unwrap_or_default();
                self.draft.think(
                    piece.place(),
                    Thought { is_summary: false, part },
                    &piece.delta,
                    reply,
                );
            }
            StreamEvent::Arguments(piece) => self.draft.take_arguments(piece.place(), &piece.delta),
            StreamEvent::ArgumentsDone(mut piece) => {
                let arguments = piece.arguments.take();
                self.draft.settle_arguments(piece.place(), arguments);
            }
            StreamEvent::Other => {}
        }
        if self.draft.has_too_many() {
            return Err(reply.invalid_response("too many items"));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn held_bytes(&self) -> usize {
        self.draft.held_bytes()
    }

    fn finish(self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
        match self.last {
            Some(response) => self.draft.end(response, reply),
            None => Err(ProviderError::stream_truncated("`response.completed`")),
        }
    }
}

impl ResponsesDelta {
    fn place(&self) -> ItemPosition<'_> {
        ItemPosition { index: self.output_index, item_id: self.item_id.as_deref() }
    }
}
