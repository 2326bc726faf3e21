use std::sync::{Arc, Mutex};

use layer0::usage::{RateLevel, TokenUsage};
use serde::{Deserialize, Serialize};

use super::lock::lock;
use crate::StreamSink;

/// The values that a sink received during one call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RecordedStream {
    /// The HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The pieces of thinking, joined.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub thinking: String,
    /// The pieces of the text, joined.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The last report of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
}

impl RecordedStream {
    /// Sends the values to a sink again.
    pub(super) fn tell(&self, sink: &dyn StreamSink) {
        if let Some(status) = self.status {
            sink.status(status);
        }
        if !self.thinking.is_empty() {
            sink.thinking(&self.thinking);
        }
        if !self.text.is_empty() {
            sink.text(&self.text);
        }
        if let Some(usage) = self.usage {
            sink.usage(usage);
        }
    }

    pub(super) fn redact(&self, redact: impl Fn(&str) -> String) -> Self {
        Self { thinking: redact(&self.thinking), text: redact(&self.text), ..*self }
    }
}

/// A sink that stores the values it receives, and passes them on.
pub(super) struct Listening {
    told: Arc<Mutex<RecordedStream>>,
    sink: Option<Arc<dyn StreamSink>>,
}

impl Listening {
    /// Makes a sink that also passes values on to `sink`, and returns its store.
    pub(super) fn beside(sink: Option<Arc<dyn StreamSink>>) -> (Self, Arc<Mutex<RecordedStream>>) {
        let told: Arc<Mutex<RecordedStream>> = Arc::default();
        (Self { told: Arc::clone(&told), sink }, told)
    }
}

impl StreamSink for Listening {
    fn text(&self, piece: &str) {
        lock(&self.told).text.push_str(piece);
        self.sink.iter().for_each(|sink| sink.text(piece));
    }

    fn thinking(&self, piece: &str) {
        lock(&self.told).thinking.push_str(piece);
        self.sink.iter().for_each(|sink| sink.thinking(piece));
    }

    fn status(&self, status: u16) {
        lock(&self.told).status = Some(status);
        self.sink.iter().for_each(|sink| sink.status(status));
    }

    fn request_id(&self, id: &str) {
        // Not recorded, as it differs in each call.
        self.sink.iter().for_each(|sink| sink.request_id(id));
    }

    fn rate(&self, requests: Option<RateLevel>, tokens: Option<RateLevel>) {
        // Not recorded, as it differs in each call.
        self.sink.iter().for_each(|sink| sink.rate(requests, tokens));
    }

    fn usage(&self, usage: TokenUsage) {
        lock(&self.told).usage = Some(usage);
        self.sink.iter().for_each(|sink| sink.usage(usage));
    }
}
