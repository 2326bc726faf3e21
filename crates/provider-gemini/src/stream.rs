//! What comes back as a stream.

use provider::{ModelResponse, ProviderError, StreamSink};
use provider_http::Events;

use crate::response::{Draft, WireResponse};

/// Reads a stream to its end. The protocol has no end marker but a finish reason, which some models
/// give with every piece: the last one counts.
pub(crate) async fn read(
    mut events: Events<'_>,
    sink: Option<&dyn StreamSink>,
) -> Result<ModelResponse, ProviderError> {
    let mut draft = Draft::default();
    while let Some(event) = events.next().await? {
        let response: WireResponse = events.decode(&event)?;
        draft.take(events.endpoint(), response, sink, sink)?;
    }
    draft.finish(events.endpoint())
}
