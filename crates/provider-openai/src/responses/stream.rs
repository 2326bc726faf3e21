//! What comes back as a stream.

use provider::{ModelResponse, ProviderError, StreamSink};
use provider_http::Events;
use serde::Deserialize;
use serde_json::{Value, json};

use super::draft::{Draft, Thought};
use super::response::{Item, WireResponse};

/// The events that matter; those not named here repeat what others say.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum StreamEvent {
    #[serde(rename = "response.output_item.added")]
    ItemAdded { output_index: Option<u64>, item: Item },
    #[serde(rename = "response.output_item.done")]
    ItemDone { output_index: Option<u64>, item: Item },
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
    ArgumentsDone { output_index: Option<u64>, arguments: Option<String> },
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

#[derive(Deserialize)]
struct Delta {
    output_index: Option<u64>,
    summary_index: Option<u64>,
    content_index: Option<u64>,
    delta: String,
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
        take_unheard(&mut draft, response.output.unwrap_or_default());
        return Ok(draft.finish(events.endpoint(), ending));
    }
    Err(ProviderError::stream_truncated("`response.completed`"))
}

fn take(draft: &mut Draft<'_>, event: StreamEvent) {
    match event {
        StreamEvent::ItemAdded { output_index, item: Item::FunctionCall(call) }
        | StreamEvent::ItemDone { output_index, item: Item::FunctionCall(call) } => {
            draft.take_call(output_index, call);
        }
        StreamEvent::ItemDone { output_index, item } => {
            let at = output_index.unwrap_or_default();
            draft.keep(at, &item);
            // As a rule it was heard piece by piece.
            if !draft.has_heard(at, &item) {
                draft.take_item(at, item);
            }
        }
        StreamEvent::Text(piece) => draft.say(piece.item(), &piece.delta),
        StreamEvent::Refusal(piece) => draft.refuse(piece.item(), &piece.delta),
        StreamEvent::Summary(piece) => {
            let part = piece.summary_index.unwrap_or_default();
            let place = Thought { item: piece.item(), is_summary: true, part };
            draft.think(place, &piece.delta);
        }
        StreamEvent::Reasoning(piece) => {
            let part = piece.content_index.unwrap_or_default();
            let place = Thought { item: piece.item(), is_summary: false, part };
            draft.think(place, &piece.delta);
        }
        StreamEvent::Arguments(piece) => draft.take_arguments(piece.output_index, &piece.delta),
        StreamEvent::ArgumentsDone { output_index, arguments } => {
            draft.settle_arguments(output_index, arguments);
        }
        StreamEvent::ItemAdded { .. } | StreamEvent::Other => {}
        StreamEvent::Completed { .. }
        | StreamEvent::Incomplete { .. }
        | StreamEvent::Failed { .. }
        | StreamEvent::Cancelled { .. }
        | StreamEvent::Error { .. } => {}
    }
}

/// Takes from the whole answer what no event before its end told: some endpoints stream only a part
/// of what they say, others end with an answer that is empty.
fn take_unheard(draft: &mut Draft<'_>, output: Vec<Item>) {
    let (text, thinking, calls) = (draft.has_text(), draft.has_thinking(), draft.has_calls());
    for (at, item) in (0..).zip(output) {
        let is_known = match &item {
            Item::FunctionCall(_) => calls,
            Item::Message { .. } => text,
            Item::Reasoning { .. } => thinking,
            Item::Other => true,
        };
        draft.keep(at, &item);
        if !is_known {
            draft.take_item(at, item);
        }
    }
}

impl Delta {
    fn item(&self) -> u64 {
        self.output_index.unwrap_or_default()
    }
}
