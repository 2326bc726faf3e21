//! The conversation with the model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use layer0::event::{Follows, RunStarted};
use layer0::id::CallId;
use layer0::message::{Image, Message, ToolCall, Transcript};

use crate::definition::{AgentDefinition, CheckedDefinition};
use crate::digest::RequestDigest;
use crate::typed::instruction;

/// The transcript of a run, with the input for the next model request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunConversation {
    input: Arc<str>,
    images: Arc<[Image]>,
    /// End of the session's transcript when the run began.
    follows: Option<Box<Follows>>,
    /// Earlier messages that the caller provided.
    given: Vec<Arc<Message>>,
    /// Earlier messages of the session, until they are in the transcript.
    earlier: Vec<Arc<Message>>,
    /// Number of the session's messages in the transcript.
    earlier_held: usize,
    /// Text for the model's next request.
    further_input: Option<Arc<str>>,
    /// Contents of the memory when the transcript began.
    remembered: Arc<[Arc<str>]>,
    transcript: Transcript,
    call_ids: BTreeSet<CallId>,
    digest: RequestDigest,
    /// Last text of the model, kept as the partial work of a run that fails.
    last_text: Arc<str>,
}

/// The contents of `model.requested`.
pub(crate) struct RequestSummary {
    pub(crate) digest: Arc<str>,
    pub(crate) tools_digest: Arc<str>,
    pub(crate) messages: u32,
}

impl RunConversation {
    pub(crate) fn new(definition: &CheckedDefinition) -> Self {
        Self {
            input: Arc::default(),
            images: Arc::default(),
            follows: None,
            given: Vec::new(),
            earlier: Vec::new(),
            earlier_held: 0,
            further_input: None,
            remembered: Arc::default(),
            transcript: Transcript::default(),
            call_ids: BTreeSet::new(),
            digest: RequestDigest::new(Arc::clone(definition.tools_digest())),
            last_text: Arc::default(),
        }
    }

    /// Takes the input and the history from the start of the run.
    pub(crate) fn start(&mut self, started: &RunStarted) {
        self.follows.clone_from(&started.follows);
        self.input = Arc::clone(&started.input);
        self.images = Arc::clone(&started.images);
        self.given = started.history.messages().to_vec();
    }

    pub(crate) const fn input(&self) -> &Arc<str> {
        &self.input
    }

    pub(crate) const fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    pub(crate) const fn last_text(&self) -> &Arc<str> {
        &self.last_text
    }

    /// Begins the transcript: instructions, memory, earlier messages, input.
    pub(crate) fn begin(&mut self, definition: &AgentDefinition, remembered: &[Arc<str>]) {
        self.remembered = remembered.into();
        let system = system_message(definition, remembered);
        if !system.is_empty() {
            self.transcript.push(Message::system(system));
        }
        let session = self.follows.as_ref().map(|follows| &follows.digest);
        self.digest.begin(session, definition, remembered);
        for message in std::mem::take(&mut self.earlier) {
            self.transcript.push_shared(message);
            self.earlier_held += 1;
        }
        self.digest.skip_to(self.transcript.messages().len());
        for message in std::mem::take(&mut self.given) {
            self.transcript.push_shared(message);
        }
        let (content, images) = (Arc::clone(&self.input), Arc::clone(&self.images));
        self.transcript.push(Message::User { content, images });
    }

    /// Begins the transcript of a run that ends before its memory was read.
    pub(crate) fn begin_if_empty(&mut self, definition: &AgentDefinition) {
        if self.transcript.messages().is_empty() {
            self.begin(definition, &[]);
        }
    }

    /// Replaces the instructions at the start of the transcript by those of another definition.
    pub(crate) fn adopt(&mut self, before: &AgentDefinition, definition: &CheckedDefinition) {
        self.digest.offer(Arc::clone(definition.tools_digest()));
        let said = std::mem::take(&mut self.transcript);
        if said.is_empty() {
            return;
        }
        let instructed = usize::from(!system_message(before, &self.remembered).is_empty());
        let system = system_message(definition, &self.remembered);
        if !system.is_empty() {
            self.transcript.push(Message::system(system));
        }
        let instructs = self.transcript.len();
        for message in &said.messages()[instructed..] {
            self.transcript.push_shared(Arc::clone(message));
        }
        // Covered messages stay covered at their new positions.
        let covered = self.digest.covered_messages().max(instructed) - instructed + instructs;
        self.digest.skip_to(covered);
        self.digest.instruct(definition, &self.remembered);
    }

    /// Undoes the beginning of a transcript without further messages, so that it can begin again.
    pub(crate) fn take_back(&mut self) {
        let messages = std::mem::take(&mut self.transcript);
        let is_system = |message: &Arc<Message>| matches!(**message, Message::System { .. });
        let said = messages.messages().iter().skip_while(|message| is_system(message));
        let mut said: Vec<Arc<Message>> = said.cloned().collect();
        // Removes the input, the last message of every beginning.
        said.pop();
        let earlier = std::mem::take(&mut self.earlier_held);
        self.given = said.split_off(earlier.min(said.len()));
        self.earlier = said;
        self.digest = RequestDigest::new(Arc::clone(self.digest.tools()));
    }

    /// Returns whether the last message is from the model.
    pub(crate) fn ends_with_the_model(&self) -> bool {
        let last = self.transcript.messages().last();
        matches!(last.map(|last| &**last), Some(Message::Assistant { .. }))
    }

    /// Takes the earlier messages of the session.
    pub(crate) fn provide_earlier(&mut self, messages: Vec<Arc<Message>>) {
        let transcript = self.transcript.messages();
        if transcript.is_empty() {
            self.earlier = messages;
            return;
        }
        let instructs =
            matches!(transcript.first().map(|first| &**first), Some(Message::System { .. }));
        self.earlier_held += messages.len();
        self.digest.skip_to(self.digest.covered_messages() + messages.len());
        self.transcript.insert_shared(usize::from(instructs), messages);
    }

    pub(crate) fn push(&mut self, message: Message) {
        self.transcript.push(message);
    }

    /// Adds a message with the machine's own words, which may change between versions.
    pub(crate) fn push_own_words(&mut self, text: String) {
        self.digest.cover(self.transcript.messages());
        self.transcript.push(Message::user(text));
        self.digest.cover_own_words();
    }

    /// Keeps a text for the model's next request.
    pub(crate) fn add_further_input(&mut self, text: &str) {
        self.further_input = Some(append_text(self.further_input.take(), text));
    }

    /// Keeps the text of the model if it is not blank.
    pub(crate) fn note_text(&mut self, text: &Arc<str>) {
        if !text.trim().is_empty() {
            self.last_text = Arc::clone(text);
        }
    }

    /// Completes the next request to the model.
    pub(crate) fn next_request(&mut self) -> RequestSummary {
        if let Some(content) = self.further_input.take() {
            self.transcript.push(Message::user(content));
        }
        self.digest.cover(self.transcript.messages());
        RequestSummary {
            digest: self.digest.hex(),
            tools_digest: Arc::clone(self.digest.tools()),
            messages: self.message_count(),
        }
    }

    /// Returns the number of messages in the request, whether or not those of the session are here.
    fn message_count(&self) -> u32 {
        let own = self.transcript.messages().len() - self.earlier_held;
        let earlier = self.follows.as_ref().map_or(0, |follows| follows.messages);
        let count = u64::try_from(own).unwrap_or(u64::MAX).saturating_add(earlier);
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Returns whether the model has made a call with this id.
    pub(crate) fn knows(&self, id: &CallId) -> bool {
        self.call_ids.contains(id)
    }

    /// Returns the calls of the current answer.
    pub(crate) fn last_calls(&self) -> &[ToolCall] {
        let messages = self.transcript.messages().iter().rev();
        let calls = messages.filter_map(|message| match &**message {
            Message::Assistant { tool_calls, .. } => Some(&tool_calls[..]),
            _ => None,
        });
        calls.into_iter().next().unwrap_or_default()
    }

    /// Gives every call an id that no other call of the run has: a missing or repeated id gets the suffix `~n`.
    pub(crate) fn give_unique_ids(&mut self, calls: &mut Arc<[ToolCall]>) {
        // The last suffix tried for each id, so that a thousand calls with one id do not take a million tries.
        let mut tried = BTreeMap::<CallId, u32>::new();
        for index in 0..calls.len() {
            let id = &calls[index].id;
            let is_missing = id.as_str().is_empty();
            if !is_missing && !self.call_ids.contains(id) {
                self.call_ids.insert(id.clone());
                continue;
            }
            let suffix = tried.entry(id.clone()).or_insert(if is_missing { 1 } else { 2 });
            let unique = loop {
                let candidate = CallId::new(format!("{id}~{suffix}"));
                *suffix = suffix.saturating_add(1);
                if !self.call_ids.contains(&candidate) {
                    break candidate;
                }
            };
            self.call_ids.insert(unique.clone());
            Arc::make_mut(calls)[index].id = unique;
        }
    }
}

fn system_message(definition: &AgentDefinition, remembered: &[Arc<str>]) -> String {
    let mut system = definition.instructions.to_string();
    for (index, entry) in remembered.iter().enumerate() {
        let heading = match (index, system.is_empty()) {
            (0, true) => "Memory:",
            (0, false) => "\n\nMemory:",
            _ => "",
        };
        system.push_str(heading);
        system.push_str("\n- ");
        system.push_str(entry);
    }
    if let Some(schema) = &definition.output_schema {
        let gap = if system.is_empty() { "" } else { "\n\n" };
        system.push_str(gap);
        system.push_str(&instruction(schema));
    }
    system
}

/// Appends a text to an earlier one that the model has not received yet.
pub(crate) fn append_text(earlier: Option<Arc<str>>, text: &str) -> Arc<str> {
    match earlier {
        Some(earlier) => format!("{earlier}\n\n{text}").into(),
        None => text.into(),
    }
}
