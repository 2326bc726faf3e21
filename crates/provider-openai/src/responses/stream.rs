//! What comes back as a stream.

use layer0::read_tagged;
use provider::{ModelResponse, ProviderError, StreamSink};
use provider_http::{Events, lenient};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::draft::{Draft, Place, Thought};
use super::response::{Item, WireResponse};

/// The events that matter; those not named here repeat what others say.
#[derive(Deserialize)]
#[serde(remote = "Self")]
enum StreamEvent {
    #[serde(rename = "response.output_item.added")]
    ItemAdded(ItemEvent),
    #[serde(rename = "response.output_item.done")]
    ItemDone(ItemEvent),
    #[serde(rename = "response.output_text.delta")]
    Text(Delta),
    #[serde(rename = "response.refusal.delta")]
    Refusal(Delta),
    #[serde(rename = "response.reasoning_summary_text.delta")]
    Summary(Delta),
    #[serde(rename = "response.reasoning_text.delta")]
    Reasoning(Delta),
    #[serde(rename = "response.function_call_arguments.delta")]
    Arguments(Delta),
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone(Delta),
    #[serde(rename = "response.completed")]
    Completed { response: WireResponse },
    #[serde(rename = "response.incomplete")]
    Incomplete { response: WireResponse },
    #[serde(rename = "response.failed")]
    Failed { response: WireResponse },
    #[serde(rename = "response.cancelled")]
    Cancelled { response: WireResponse },
    /// The flat form; the one with an `error` inside is known as a failure before it comes here.
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
    item: Item,
}

/// Not flattened: serde reads that through values of its own, in which numbers lose their text.
impl<'de> Deserialize<'de> for NamedItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Name {
            #[serde(default, deserialize_with = "lenient::text")]
            id: Option<String>,
        }
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let Name { id } = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        let item = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        Ok(Self { id, item })
    }
}

#[derive(Deserialize)]
struct Delta {
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
    /// All arguments of a call.
    arguments: Option<Box<RawValue>>,
}

/// Reads a stream to its end, which is an event that carries the answer's final status.
pub(super) async fn read(
    mut events: Events<'_>,
    sink: Option<&dyn StreamSink>,
) -> Result<ModelResponse, ProviderError> {
    let mut draft = Draft::new(sink);
    while let Some(event) = events.next().await? {
        // Some endpoints close as Chat Completions does; it is no end marker here.
        if event.data.trim() == "[DONE]" {
            break;
        }
        let (status, mut response) = match events.decode(&event)? {
            StreamEvent::Completed { response } => ("completed", response),
            StreamEvent::Incomplete { response } => ("incomplete", response),
            StreamEvent::Failed { response } => ("failed", response),
            StreamEvent::Cancelled { response } => ("cancelled", response),
            StreamEvent::Error { code, message } => {
                let error = json!({ "error": { "code": code, "message": message } });
                return Err(events.endpoint().failure(error, events.retry_after()));
            }
            event => {
                take(&mut draft, event);
                continue;
            }
        };
        draft.take_usage(&response);
        response.status.get_or_insert_with(|| status.to_owned());
        let ending = response.ending(events.endpoint(), events.retry_after())?;
        draft.settle(response.output.unwrap_or_default());
        return Ok(draft.finish(events.endpoint(), ending));
    }
    Err(ProviderError::stream_truncated("`response.completed`"))
}

fn take(draft: &mut Draft<'_>, event: StreamEvent) {
    match event {
        StreamEvent::ItemAdded(ItemEvent { output_index, item }) => {
            if let Item::FunctionCall(call) = item.item {
                let place = Place { index: output_index, item_id: item.id.as_deref() };
                draft.take_call(place, call, false);
            }
        }
        StreamEvent::ItemDone(ItemEvent { output_index, item }) => {
            let place = Place { index: output_index, item_id: item.id.as_deref() };
            draft.take_done(place, item.item);
        }
        StreamEvent::Text(piece) => draft.say(piece.place(), &piece.delta, false),
        StreamEvent::Refusal(piece) => draft.say(piece.place(), &piece.delta, true),
        StreamEvent::Summary(piece) => {
            let part = piece.summary_index.unwrap_or_default();
            draft.think(piece.place(), Thought { is_summary: true, part }, &piece.delta);
        }
        StreamEvent::Reasoning(piece) => {
            let part = piece.content_index.unwrap_or_default();
            draft.think(piece.place(), Thought { is_summary: false, part }, &piece.delta);
        }
        StreamEvent::Arguments(piece) => draft.take_arguments(piece.place(), &piece.delta),
        StreamEvent::ArgumentsDone(mut piece) => {
            let arguments = piece.arguments.take();
            draft.settle_arguments(piece.place(), arguments);
        }
        StreamEvent::Other
        | StreamEvent::Completed { .. }
        | StreamEvent::Incomplete { .. }
        | StreamEvent::Failed { .. }
        | StreamEvent::Cancelled { .. }
        | StreamEvent::Error { .. } => {}
    }
}

impl Delta {
    fn place(&self) -> Place<'_> {
        Place { index: self.output_index, item_id: self.item_id.as_deref() }
    }
}
