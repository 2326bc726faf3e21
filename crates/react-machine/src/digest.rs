//! Digests of what the model is sent, so that a replay can tell a changed request, and of what tools answer.

use std::hash::Hasher;
use std::sync::Arc;

use layer0::event::{Hash, ToolResponded};
use layer0::message::Message;

use crate::definition::AgentDefinition;
use crate::fnv::Fnv1a;
use crate::signature::write_canonical;

/// The digest of what the model is sent, which grows with the transcript.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RequestDigest {
    digest: Fnv1a,
    /// How many messages it covers.
    covered: usize,
    tools: Arc<str>,
}

impl RequestDigest {
    pub(crate) fn new(tools: Arc<str>) -> Self {
        Self { digest: Fnv1a::default(), covered: 0, tools }
    }

    /// Begins with where the transcript of the session stood, and what the run is told beside it, without
    /// the words around it.
    pub(crate) fn begin(
        &mut self,
        session: Option<&Hash>,
        definition: &AgentDefinition,
        remembered: &[Arc<str>],
    ) {
        if let Some(session) = session {
            self.digest.add(&session);
        }
        self.instruct(definition, remembered);
    }

    /// Adds what the model is told beside the transcript, without the words around it.
    pub(crate) fn instruct(&mut self, definition: &AgentDefinition, remembered: &[Arc<str>]) {
        self.digest.add(&(&definition.instructions, remembered, &definition.output_schema));
    }

    /// Notes which tools the model is offered from now on.
    pub(crate) fn offer(&mut self, tools: Arc<str>) {
        self.tools = tools;
    }

    /// Adds the messages that are not covered yet.
    pub(crate) fn cover(&mut self, messages: &[Arc<Message>]) {
        for message in &messages[self.covered..] {
            self.add_message(message);
        }
        self.covered = messages.len();
    }

    /// Covers one message without its words.
    pub(crate) fn cover_own_words(&mut self) {
        self.digest.add(&"correction");
        self.covered += 1;
    }

    /// Leaves out the messages before this one.
    pub(crate) const fn skip_to(&mut self, message: usize) {
        self.covered = message;
    }

    pub(crate) const fn covered(&self) -> usize {
        self.covered
    }

    pub(crate) fn hex(&self) -> Arc<str> {
        self.digest.hex()
    }

    /// Returns the digest of the tools that the model is offered.
    pub(crate) const fn tools(&self) -> &Arc<str> {
        &self.tools
    }

    /// Adds a message of the transcript. What a tool said stands in its `tool.responded`, and some of it is
    /// worded by the machine: the digest is the same whatever the words are.
    fn add_message(&mut self, message: &Message) {
        match message {
            Message::Tool { tool_call_id, is_error, .. } => {
                self.digest.add(&(tool_call_id, is_error));
            }
            other => self.digest.add(other),
        }
    }
}

/// Digests what a call came to: the output, or code and message of the failure. Never the text the
/// model reads, which has ids and counts in it.
pub(crate) fn result_digest(responded: &ToolResponded) -> u64 {
    let mut digest = Fnv1a::default();
    match &responded.error {
        None => {
            write_canonical(&mut digest, &responded.output);
            for image in &*responded.images {
                digest.add(image);
            }
        }
        Some(error) => {
            digest.add(&error.reason);
            digest.add(&error.code);
            digest.add(&error.message);
        }
    }
    digest.finish()
}

#[cfg(test)]
mod tests {
    use layer0::event::ToolFailure;
    use serde_json::json;

    use super::*;

    /// Spec: G2. Results differ by what they say, and not by when, how long or in which words for the model.
    #[test]
    fn results_differ_by_their_content() {
        let answer = |output: &str| ToolResponded::succeeded("c0", "plain", json!(output), 1);
        let failed = |reason: &'static str, code: Option<&str>, message: &str| {
            let mut failure = ToolFailure::new(reason, message);
            failure.code = code.map(Into::into);
            ToolResponded::failed("c0".into(), "plain".into(), "text", 1, failure)
        };
        let failures = [
            failed("tool.timeout", None, "m"),
            failed("tool.skipped", None, "m"),
            failed("tool.timeout", Some("code"), "m"),
            failed("tool.timeout", None, "other"),
            answer("done"),
            answer("other"),
        ];
        let mut pictured = answer("done");
        let image = layer0::message::Image::from_bytes(b"GIF89a").unwrap();
        pictured.images = [image].into();
        assert_ne!(result_digest(&pictured), result_digest(&answer("done")));
        let mut digests: Vec<u64> = failures.iter().map(result_digest).collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), failures.len());
        let mut same = answer("done");
        (same.duration_ms, same.call_id) = (99, "c9".into());
        assert_eq!(result_digest(&same), result_digest(&answer("done")));
        let mut same = failed("tool.timeout", None, "m");
        same.output = json!({ "error": "in other words" }).into();
        assert_eq!(result_digest(&same), result_digest(&failures[0]));
    }
}
