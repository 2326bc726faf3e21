//! What comes back as a stream.

use provider::{ModelResponse, ProviderError, StreamSink};
use provider_http::Lines;

use crate::response::{Chunk, Draft, truncated};

/// Reads a stream to its end, which is a line that says `done: true`.
pub(crate) async fn read(
    mut lines: Lines<'_>,
    sink: Option<&dyn StreamSink>,
) -> Result<ModelResponse, ProviderError> {
    let mut draft = Draft::default();
    while let Some(chunk) = lines.next_value::<Chunk>().await? {
        let is_done = chunk.done;
        draft.take(chunk, sink);
        if is_done {
            return draft.finish(lines.endpoint());
        }
    }
    Err(truncated())
}
