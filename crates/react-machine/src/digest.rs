//! Digests of model requests, so that a replay can detect a changed request, and of tool results.

use std::hash::Hasher;
use std::sync::Arc;

use layer0::event::{Hash, ToolResponded};
use layer0::message::Message;

use crate::definition::AgentDefinition;
use crate::fnv::Fnv1a;
use crate::signature::write_canonical;

/// The digest of the model's requests, which grows with the transcript.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RequestDigest {
    digest: Fnv1a,
    /// Number of messages covered.
    covered: usize,
    tools: Arc<str>,
}

impl RequestDigest {
    pub(crate) fn new(tools: Arc<str>) -> Self {
        Self { tools, ..Self::default() }
    }

    /// Begins with the end of the session's transcript and the instructions of the run, without the words around them.
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

    /// Adds the instructions in addition to the transcript, without the words around them.
    pub(crate) fn instruct(&mut self, definition: &AgentDefinition, remembered: &[Arc<str>]) {
        self.digest.add(&(&definition.instructions, remembered, &definition.output_schema));
    }

    /// Sets the digest of the tools offered from now on.
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

    pub(crate) const fn covered_messages(&self) -> usize {
        self.covered
    }

    pub(crate) fn hex(&self) -> Arc<str> {
        self.digest.hex()
    }

    /// Returns the digest of the tools offered to the model.
    pub(crate) const fn tools(&self) -> &Arc<str> {
        &self.tools
    }

    /// Adds a message of the transcript. A tool's output is in its `tool.responded`, in part in the machine's own
    /// words: the digest does not depend on the words.
    fn add_message(&mut self, message: &Message) {
        match message {
            Message::Tool { tool_call_id, is_error, .. } => {
                self.digest.add(&(tool_call_id, is_error));
            }
            other => self.digest.add(other),
        }
    }
}

/// Returns the digest of a call's result: the output, or code and message of the failure; never the text for the model,
/// which contains ids and counts.
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
        let answer = |output: &str| ToolResponded::success("c0", "plain", json!(output), 1);
        let failed = |reason: &'static str, code: Option<&str>, message: &str| {
            let mut failure = ToolFailure::new(reason, message);
            failure.code = code.map(Into::into);
            ToolResponded::failure("c0".into(), "plain".into(), "text", 1, failure)
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
