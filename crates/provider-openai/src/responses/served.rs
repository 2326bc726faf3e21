//! Items of tools that run at the provider.

use backstop_provider::ProviderError;
use backstop_provider_http::Draft;
use layer0::JsonText;
use serde::Deserialize;
use serde_json::Value;

/// Items that the client itself has to answer, each in its own form:
/// <https://platform.openai.com/docs/api-reference/responses/object#responses/object-output>
const WANT_ANSWERS: [&str; 6] = [
    "apply_patch_call",
    "computer_call",
    "custom_tool_call",
    "local_shell_call",
    "mcp_approval_request",
    "shell_call",
];

/// An item that is sent back as it was received, with its id, which the protocol requires.
#[derive(Debug, Clone)]
pub(crate) struct ServedItem {
    pub(super) kind: String,
    pub(super) id: String,
    json: JsonText,
    is_done: bool,
}

#[derive(Deserialize)]
struct ItemFields {
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    id: String,
    #[serde(default)]
    status: Option<String>,
}

impl ServedItem {
    /// Reads an item; `None` if it has no id or cannot be recorded.
    pub(super) fn read(text: &str) -> Option<Self> {
        let json = JsonText::parse(text).ok()?;
        let ItemFields { r#type: kind, id, status } = json.read().ok()?;
        let is_done = matches!(status.as_deref(), None | Some("completed" | "failed"));
        (!kind.is_empty() && !id.is_empty()).then_some(Self { kind, id, json, is_done })
    }

    /// Returns whether the client has to answer it.
    pub(super) fn wants_answer(&self) -> bool {
        WANT_ANSWERS.contains(&&*self.kind)
    }

    /// Returns whether it is an image, which is not kept.
    pub(super) fn is_image(&self) -> bool {
        self.kind == "image_generation_call"
    }

    /// Returns the item to send back; `None` if it is not sent back.
    pub(super) fn sendable(&self) -> Option<&JsonText> {
        (self.is_done && !self.is_image() && !self.wants_answer()).then_some(&self.json)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.json.get().len()
    }
}

/// The items of tools that run at the provider, among those of an answer.
///
/// The endpoint knows its items by their ids, and refuses an item without the reasoning before it,
/// and reasoning without the item after it. So reasoning keeps its id before such an item, and an
/// item whose reasoning is not kept is not kept either.
#[derive(Debug, Default)]
pub(super) struct ServedSteps {
    /// Whether an earlier item of the same step is not kept.
    is_broken: bool,
}

impl ServedSteps {
    /// Keeps reasoning that can be sent back.
    pub(super) fn keep_thought(
        &mut self,
        data: Option<Value>,
        id: Option<String>,
        next: Option<&ServedItem>,
        draft: &mut Draft,
    ) {
        self.is_broken = data.is_none();
        let Some(mut data) = data else { return };
        let is_before_served = next.is_some_and(|item| item.sendable().is_some());
        if let Some(id) = id.filter(|_| is_before_served) {
            data["id"] = id.into();
        }
        draft.keep(&data);
    }

    /// Keeps an item.
    ///
    /// # Errors
    ///
    /// [`ProviderError::InvalidRequest`]: the client would have to answer it, and cannot.
    pub(super) fn keep(
        &mut self,
        item: &ServedItem,
        draft: &mut Draft,
    ) -> Result<(), ProviderError> {
        if item.wants_answer() {
            let why = format!(
                "the model asks for a `{}`, which only its provider's own client can answer",
                item.kind
            );
            return Err(ProviderError::invalid_request(why, None));
        }
        if item.is_image() {
            draft.note_media("image");
        }
        match item.sendable().filter(|_| !self.is_broken) {
            Some(json) => draft.keep_text(json.clone()),
            None => self.is_broken = true,
        }
        Ok(())
    }

    /// Passes an item that is sent back without its id, which ends the step.
    pub(super) const fn pass(&mut self) {
        self.is_broken = false;
    }
}
