use layer0::message::StatePart;
use serde_json::Value;

/// Returns what is sent back behind so many of an answer's tool calls, and in front of the next.
pub fn parts_behind(parts: &[StatePart], calls: usize) -> impl Iterator<Item = &Value> {
    parts.iter().filter(move |part| part.calls_before == calls).map(|part| &part.data)
}
