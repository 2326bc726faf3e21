//! Calls of tools that run at the provider, and their results.

use std::collections::BTreeSet;

use layer0::JsonText;
use serde::Deserialize;

use super::{
    AnthropicBlock, AnthropicConversation, AnthropicMessage, AnthropicPart, AnthropicRole,
    MarkedBlock,
};

/// The fields of a kept block that identify calls and results.
#[derive(Deserialize)]
struct ServedFields {
    r#type: String,
    id: Option<String>,
    tool_use_id: Option<String>,
}

/// The field of a call's caller with the id of the enclosing call.
#[derive(Deserialize)]
struct ServedCaller {
    tool_id: String,
}

/// Text of a user message after an answer that the model is to continue.
const CONTINUE: &str = "Continue.";

impl AnthropicConversation<'_> {
    /// Adds a user message that asks for the rest of an answer that was cut off: "This model does
    /// not support assistant message prefill. The conversation must end with a user message."
    ///
    /// A turn that was paused within a served tool continues without one.
    pub(super) fn end_with_user(&mut self) {
        let Some(message) = self.messages.last().filter(|it| it.role == AnthropicRole::Assistant)
        else {
            return;
        };
        let is_paused = message.content.last().is_some_and(|part| match part {
            AnthropicPart::Kept(block) => block
                .read::<ServedFields>()
                .is_ok_and(|block| !matches!(&*block.r#type, "thinking" | "redacted_thinking")),
            AnthropicPart::Made(_) => false,
        });
        if !is_paused {
            self.push(AnthropicRole::User, vec![AnthropicBlock::Text { text: CONTINUE }.into()]);
        }
    }

    /// Removes calls of the provider's tools without results, left when a turn was paused or cut
    /// off and the conversation continued otherwise: "tool use with id … was found without a
    /// corresponding … block" refuses every later request.
    ///
    /// Calls of the last answer are kept while only results follow it.
    pub(super) fn drop_unanswered(&mut self) {
        let messages = &mut self.messages;
        let is_open = |message: &AnthropicMessage<'_>| {
            message.role == AnthropicRole::Assistant || has_results(message)
        };
        let closed = messages.iter().rposition(|message| !is_open(message)).unwrap_or_default();
        let mut unanswered: BTreeSet<String> =
            read_served_fields(&messages[..closed]).filter_map(|block| block.id).collect();
        if unanswered.is_empty() {
            return;
        }
        for answered in read_served_fields(messages).filter_map(|block| block.tool_use_id) {
            unanswered.remove(&answered);
        }
        for message in messages.iter_mut().filter(|_| !unanswered.is_empty()) {
            message.content.retain(|part| {
                let call = read(part).and_then(|block| block.id);
                call.is_none_or(|id| !unanswered.contains(&id))
            });
            message.content.iter_mut().for_each(|part| forget_caller(part, &unanswered));
        }
    }
}

/// Returns the calls and results of the provider's tools.
fn read_served_fields<'m>(
    messages: &'m [AnthropicMessage<'_>],
) -> impl Iterator<Item = ServedFields> + 'm {
    messages.iter().flat_map(|message| message.content.iter().filter_map(read))
}

fn read(part: &AnthropicPart<'_>) -> Option<ServedFields> {
    let AnthropicPart::Kept(block) = part else { return None };
    let block: ServedFields = block.read().ok()?;
    // The types of calls are `server_tool_use` and `mcp_tool_use`.
    let is_served = ["_tool_use", "_tool_result"].iter().any(|end| block.r#type.ends_with(end));
    is_served.then_some(block)
}

fn has_results(message: &AnthropicMessage<'_>) -> bool {
    let is_result = |part: &AnthropicPart<'_>| {
        matches!(
            part,
            AnthropicPart::Made(MarkedBlock { block: AnthropicBlock::ToolResult { .. }, .. })
        )
    };
    message.content.iter().all(is_result)
}

/// Removes the caller of a call if that caller was removed.
fn forget_caller(part: &mut AnthropicPart<'_>, left_out: &BTreeSet<String>) {
    if let AnthropicPart::Made(MarkedBlock {
        block: AnthropicBlock::ToolUse { caller, .. }, ..
    }) = part
    {
        let is_left_out = |caller: &JsonText| {
            caller.read::<ServedCaller>().is_ok_and(|caller| left_out.contains(&caller.tool_id))
        };
        if caller.as_ref().is_some_and(is_left_out) {
            *caller = None;
        }
    }
}
