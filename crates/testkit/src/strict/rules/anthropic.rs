//! Messages of Anthropic Messages.

use crate::strict::dialect::Dialect;
use crate::strict::json::Node;
use crate::strict::look::{find_first, is_blank, unknown_field};
use crate::strict::rule::{Asked, Found, Rule, found};

const HERE: &[Dialect] = &[Dialect::Anthropic];

const FIELDS: [&str; 23] = [
    "cache_control",
    "container",
    "context_management",
    "inference_geo",
    "max_tokens",
    "mcp_servers",
    "messages",
    "metadata",
    "model",
    "output_config",
    "output_format",
    "service_tier",
    "speed",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
    "user_profile_id",
];

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "anthropic.max_tokens",
        HERE,
        "max_tokens: Field required",
        "https://platform.claude.com/docs/en/api/messages",
        |asked| asked.body.get("max_tokens").integer().is_none_or(|it| it < 1).then(Vec::new),
    ),
    Rule::new(
        "anthropic.fields_known",
        HERE,
        "{}: Extra inputs are not permitted",
        "https://github.com/anthropics/claude-code/issues/4378",
        |asked| Some(found![unknown_field(asked.body, &FIELDS)?]),
    ),
    Rule::new(
        "anthropic.messages_given",
        HERE,
        "messages: at least one message is required",
        "https://platform.claude.com/docs/en/api/messages",
        |asked| (asked.body.get("messages").items().len() == 0).then(Vec::new),
    ),
    Rule::new(
        "anthropic.roles_known",
        HERE,
        "messages: Unexpected role \"{}\". The Messages API accepts a top-level `system` parameter, not \
         \"system\" as an input message role.",
        "https://platform.claude.com/docs/en/api/messages",
        |asked| {
            let roles = asked.body.get("messages").items().map(|it| it.get("role").text_or_empty());
            let mut unknown = roles.filter(|role| !["user", "assistant"].contains(role));
            Some(found![unknown.next()?])
        },
    ),
    Rule::new(
        "anthropic.first_is_user",
        HERE,
        "messages: first message must use the \"user\" role",
        "https://platform.claude.com/docs/en/api/messages",
        |asked| (!asked.body.get("messages").item(0).get("role").is("user")).then(Vec::new),
    ),
    Rule::new(
        "anthropic.content_given",
        HERE,
        "messages.{}: all messages must have non-empty content except for the optional final assistant \
         message",
        "https://github.com/anthropics/claude-code/issues/6774",
        content_given,
    ),
    Rule::new(
        "anthropic.blocks_typed",
        HERE,
        "messages.{}.content.{}.type: Field required",
        "https://platform.claude.com/docs/en/api/messages",
        |asked| each_block(asked, |_, block| block.get("type").text().is_none().then(Vec::new)),
    ),
    Rule::new(
        "anthropic.block_fields_known",
        HERE,
        "messages.{}.content.{}.{}.{}: Extra inputs are not permitted",
        "https://github.com/anthropics/claude-code/issues/4378",
        block_fields_known,
    ),
    Rule::new(
        "anthropic.text_not_empty",
        HERE,
        "messages: text content blocks must be non-empty",
        "https://github.com/anthropics/claude-code/issues/59812",
        |asked| any_text(asked, str::is_empty),
    ),
    Rule::new(
        "anthropic.text_not_blank",
        HERE,
        "messages: text content blocks must contain non-whitespace text",
        "https://github.com/anthropics/claude-code/issues/23440",
        |asked| any_text(asked, is_blank),
    ),
    Rule::new(
        "anthropic.end_not_blank",
        HERE,
        "messages: final assistant content cannot end with trailing whitespace",
        "https://github.com/tailcallhq/forgecode/issues/1872",
        end_not_blank,
    ),
    Rule::new(
        "anthropic.last_is_user",
        HERE,
        "This model does not support assistant message prefill. The conversation must end with a user \
         message.",
        "https://github.com/smallmain/vscode-unify-chat-provider/issues/249",
        |asked| {
            let last = asked.body.get("messages").items().next_back()?;
            let kind = last.get("content").items().next_back()?.get("type").text_or_empty();
            // A turn that was paused within a served tool.
            let is_paused = !["redacted_thinking", "text", "thinking", "tool_use"].contains(&kind);
            (last.get("role").is("assistant") && !is_paused).then(Vec::new)
        },
    ),
    Rule::new(
        "anthropic.image_types",
        HERE,
        "messages.{}.content.{}.image.source.base64.media_type: Input should be 'image/jpeg', \
         'image/png', 'image/gif' or 'image/webp'",
        "https://platform.claude.com/docs/en/build-with-claude/vision",
        image_types,
    ),
    Rule::new(
        "anthropic.cache_marks",
        HERE,
        "A maximum of 4 blocks with cache_control may be provided. Found {}.",
        "https://github.com/continuedev/continue/pull/6937",
        |asked| {
            let marks = count_marks(asked.body);
            (marks > 4).then(|| found![marks])
        },
    ),
    Rule::new(
        "anthropic.signatures_own",
        HERE,
        "messages.{}.content.{}: Invalid `signature` in `thinking` block",
        "https://github.com/NousResearch/hermes-agent/pull/24107",
        |asked| {
            each_block(asked, |_, block| {
                let is_thinking = block.get("type").is("thinking");
                let signature = block.get("signature").text_or_empty();
                (is_thinking && !asked.said.has_signature(signature)).then(Vec::new)
            })
        },
    ),
    Rule::new(
        "anthropic.thinking_unchanged",
        HERE,
        "messages.{}.content.{}: `thinking` or `redacted_thinking` blocks in the latest assistant message \
         cannot be modified. These blocks must remain as they were in the original response.",
        "https://github.com/anthropics/claude-code/issues/63284",
        |asked| {
            each_block(asked, |_, block| {
                let (text, signature) = (block.get("thinking"), block.get("signature"));
                let text = text.text()?;
                let is_own = asked.said.has_thinking(text, signature.text_or_empty());
                (!is_own).then(Vec::new)
            })
        },
    ),
    Rule::new(
        "anthropic.thinking_first",
        HERE,
        "messages.{}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{}`. When \
         `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding \
         the lastmost set of `tool_use` and `tool_result` blocks).",
        "https://github.com/BerriAI/litellm/issues/15601",
        thinking_first,
    ),
];

/// Returns the blocks of a message; empty if its content is text.
pub(super) fn blocks(message: Node<'_>) -> impl DoubleEndedIterator<Item = Node<'_>> {
    message.get("content").items()
}

/// Judges each block of each message; the found parts come after the indices of both.
pub(super) fn each_block(
    asked: Asked<'_>,
    mut find: impl FnMut(Node<'_>, Node<'_>) -> Found,
) -> Found {
    find_first(asked.body.get("messages").items(), |at, message| {
        find_first(blocks(message), |index, block| {
            let parts = find(message, block)?;
            Some([found![at, index], parts].concat())
        })
    })
}

fn content_given(asked: Asked<'_>) -> Found {
    let count = asked.body.get("messages").items().len();
    find_first(asked.body.get("messages").items(), |at, message| {
        let content = message.get("content");
        let is_empty = content.items().len() == 0 && content.text_or_empty().is_empty();
        let may_be = at + 1 == count && message.get("role").is("assistant");
        (is_empty && !may_be).then(|| found![at])
    })
}

fn block_fields_known(asked: Asked<'_>) -> Found {
    each_block(asked, |_, block| {
        let kind = block.get("type").text_or_empty();
        let known: &[&str] = match kind {
            "text" => &["type", "text", "cache_control", "citations"],
            "image" => &["type", "source", "cache_control"],
            "thinking" => &["type", "thinking", "signature"],
            "redacted_thinking" => &["type", "data"],
            "tool_use" => &["type", "id", "name", "input", "cache_control", "caller"],
            "tool_result" => &["type", "tool_use_id", "content", "is_error", "cache_control"],
            _ => return None,
        };
        Some(found![kind, unknown_field(block, known)?])
    })
}

/// Judges all texts: of the system, of messages, and of results.
fn any_text(asked: Asked<'_>, is_refused: fn(&str) -> bool) -> Found {
    let is_text = |block: Node<'_>| block.get("type").is("text");
    let is_bad = |block: Node<'_>| is_text(block) && is_refused(block.get("text").text_or_empty());
    let system = asked.body.get("system").items().any(is_bad);
    let found = system.then(Vec::new);
    found.or_else(|| {
        let parts = each_block(asked, |_, block| {
            let is_below = block.get("content").items().any(is_bad);
            (is_bad(block) || is_below).then(Vec::new)
        });
        parts.map(|_| Vec::new())
    })
}

fn end_not_blank(asked: Asked<'_>) -> Found {
    let last = asked.body.get("messages").items().next_back()?;
    let content = last.get("content");
    let block = blocks(last).next_back().map(|block| block.get("text"));
    let text = block.unwrap_or(content).text()?;
    let ends_blank = text.ends_with(char::is_whitespace);
    (last.get("role").is("assistant") && ends_blank).then(Vec::new)
}

fn image_types(asked: Asked<'_>) -> Found {
    const KNOWN: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
    let is_bad = |block: Node<'_>| {
        let source = block.get("source");
        let media_type = source.get("media_type").text_or_empty();
        block.get("type").is("image")
            && source.get("type").is("base64")
            && !KNOWN.contains(&media_type)
    };
    each_block(asked, |_, block| {
        (is_bad(block) || block.get("content").items().any(is_bad)).then(Vec::new)
    })
}

/// Counts cache marks on blocks and tools. A schema may have a property with the name of the mark.
fn count_marks(body: Node<'_>) -> usize {
    let marked = |block: Node<'_>| usize::from(block.get("cache_control").is_given());
    let messages = body.get("messages").items().flat_map(blocks);
    let below = messages
        .map(|block| marked(block) + block.get("content").items().map(marked).sum::<usize>());
    let tools = body.get("tools").items().map(marked).sum::<usize>();
    let system = body.get("system").items().map(marked).sum::<usize>();
    marked(body) + tools + system + below.sum::<usize>()
}

fn thinking_first(asked: Asked<'_>) -> Found {
    let kind = asked.body.get("thinking").get("type");
    if !kind.is("enabled") && !kind.is("adaptive") {
        return None;
    }
    let mut messages = asked.body.get("messages").items().enumerate();
    let (at, last) = messages.rfind(|(_, message)| message.get("role").is("assistant"))?;
    let calls = blocks(last).any(|block| block.get("type").is("tool_use"));
    let first = blocks(last).next()?.get("type").text_or_empty();
    // The call of another model has no thinking that could be returned.
    let is_own = blocks(last).any(|block| {
        let turn = asked.said.find_turn(block.get("id").text_or_empty());
        turn.is_some_and(|turn| !turn.thinking.is_empty())
    });
    let is_thinking = ["thinking", "redacted_thinking"].contains(&first);
    (calls && is_own && !is_thinking).then(|| found![at, first])
}
