//! Tools, calls and results of Anthropic Messages.

use super::anthropic::{blocks, each_block};
use crate::strict::dialect::Dialect;
use crate::strict::json::Node;
use crate::strict::look::{find_first, is_word, repeated};
use crate::strict::rule::{Asked, Found, Rule, found};
use crate::strict::schema::{is_draft_2020_12, top_level_combinator};

const HERE: &[Dialect] = &[Dialect::Anthropic];

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "anthropic.tool_names",
        HERE,
        "tools.{}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
        "https://github.com/BerriAI/litellm/pull/26788",
        |asked| {
            find_first(asked.body.get("tools").items(), |at, tool| {
                let name = tool.get("name").text_or_empty();
                (!is_word(name, 128, "_-")).then(|| found![at])
            })
        },
    ),
    Rule::new(
        "anthropic.tool_names_unique",
        HERE,
        "tools: Tool names must be unique.",
        "https://github.com/anthropics/claude-code/issues/10687",
        |asked| {
            let names =
                asked.body.get("tools").items().map(|tool| tool.get("name").text_or_empty());
            repeated(names).map(|_| Vec::new())
        },
    ),
    Rule::new(
        "anthropic.schema_object",
        HERE,
        "tools.{}.custom.input_schema.type: Input should be 'object'",
        "https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools",
        |asked| each_schema(asked, |schema| (!schema.get("type").is("object")).then(Vec::new)),
    ),
    Rule::new(
        "anthropic.schema_top",
        HERE,
        "tools.{}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
        "https://github.com/anthropics/claude-code/issues/27337",
        |asked| {
            each_schema(asked, |schema| {
                top_level_combinator(schema, &["oneOf", "allOf", "anyOf"]).map(|_| Vec::new())
            })
        },
    ),
    Rule::new(
        "anthropic.property_keys",
        HERE,
        "tools.{}.custom.input_schema.properties: Property keys should match pattern \
         '^[a-zA-Z0-9_.-]{1,64}$'",
        "https://github.com/n8n-io/n8n/issues/30590",
        |asked| {
            each_schema(asked, |schema| {
                let mut keys = schema.get("properties").fields().map(|(key, _)| key);
                keys.find(|key| !is_word(key, 64, "_.-")).map(|_| Vec::new())
            })
        },
    ),
    Rule::new(
        "anthropic.schema_draft",
        HERE,
        "tools.{}.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12 \
         (https://json-schema.org/draft/2020-12). Learn more about tool use at \
         https://docs.claude.com/en/docs/tool-use.",
        "https://github.com/anthropics/claude-code/issues/63673",
        |asked| each_schema(asked, |schema| (!is_draft_2020_12(schema)).then(Vec::new)),
    ),
    Rule::new(
        "anthropic.call_ids",
        HERE,
        "messages.{}.content.{}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        "https://github.com/anomalyco/opencode/issues/1279",
        |asked| {
            each_block(asked, |_, block| {
                let id = ["id", "tool_use_id"].map(|key| block.get(key)).into_iter();
                let mut ids = id.filter(|id| id.exists()).map(Node::text_or_empty);
                ids.find(|id| !is_word(id, usize::MAX, "_-")).map(|_| Vec::new())
            })
        },
    ),
    Rule::new(
        "anthropic.call_names",
        HERE,
        "messages.{}.content.{}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
        "https://github.com/BerriAI/litellm/pull/26788",
        |asked| {
            each_block(asked, |_, block| {
                let is_named = is_word(block.get("name").text_or_empty(), 128, "_-");
                (block.get("type").is("tool_use") && !is_named).then(Vec::new)
            })
        },
    ),
    Rule::new(
        "anthropic.input_object",
        HERE,
        "messages.{}.content.{}.tool_use.input: Input should be a valid dictionary",
        "https://github.com/anthropics/claude-code/issues/6696",
        |asked| {
            each_block(asked, |_, block| {
                let is_call = block.get("type").is("tool_use");
                (is_call && !block.get("input").is_object()).then(Vec::new)
            })
        },
    ),
    Rule::new(
        "anthropic.call_ids_unique",
        HERE,
        "messages.{}.content.{}: `tool_use` ids must be unique",
        "https://github.com/anthropics/claude-code/issues/20901",
        |asked| {
            let all = asked.body.get("messages").items().flat_map(call_ids);
            let twice = repeated(all)?;
            let mut before = 0;
            each_block(asked, |_, block| {
                let is_it = block.get("type").is("tool_use") && block.get("id").is(twice);
                let is_second = is_it && std::mem::replace(&mut before, 1) == 1;
                is_second.then(Vec::new)
            })
        },
    ),
    Rule::new(
        "anthropic.calls_answered",
        HERE,
        "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each \
         `tool_use` block must have a corresponding `tool_result` block in the next message.",
        "https://github.com/anthropics/claude-code/issues/8210",
        calls_answered,
    ),
    Rule::new(
        "anthropic.results_called",
        HERE,
        "messages.{}.content.{}: unexpected `tool_use_id` found in `tool_result` blocks: {}. Each \
         `tool_result` block must have a corresponding `tool_use` block in the previous message.",
        "https://github.com/anthropics/claude-code/issues/18947",
        results_called,
    ),
    Rule::new(
        "anthropic.results_first",
        HERE,
        "messages.{}.content: Did not find {} `tool_result` block(s) at the beginning of this message. \
         Messages following `tool_use` blocks must begin with a matching number of `tool_result` blocks.",
        "https://github.com/anthropics/anthropic-sdk-typescript/issues/653",
        results_first,
    ),
    Rule::new(
        "anthropic.tools_for_calls",
        HERE,
        "Requests which include `tool_use` or `tool_result` blocks must define tools",
        "https://github.com/BerriAI/litellm/issues/5747",
        |asked| {
            let mut blocks = asked.body.get("messages").items().flat_map(blocks);
            let calls = blocks.any(|block| block.get("type").is("tool_use"));
            (calls && asked.body.get("tools").items().len() == 0).then(Vec::new)
        },
    ),
];

/// Judges the schema of each tool that is not the server's own.
fn each_schema(asked: Asked<'_>, find: impl Fn(Node<'_>) -> Found) -> Found {
    find_first(asked.body.get("tools").items(), |at, tool| {
        let kind = tool.get("type");
        if kind.is_given() && !kind.is("custom") {
            return None;
        }
        find(tool.get("input_schema")).map(|_| found![at])
    })
}

fn call_ids(message: Node<'_>) -> impl Iterator<Item = &str> {
    let calls = blocks(message).filter(|block| block.get("type").is("tool_use"));
    calls.map(|call| call.get("id").text_or_empty())
}

fn result_ids(message: Node<'_>) -> impl Iterator<Item = &str> {
    let results = blocks(message).filter(|block| block.get("type").is("tool_result"));
    results.map(|result| result.get("tool_use_id").text_or_empty())
}

fn calls_answered(asked: Asked<'_>) -> Found {
    let messages = asked.body.get("messages");
    find_first(messages.items(), |at, message| {
        let next = messages.item(at + 1);
        let answered: Vec<&str> = result_ids(next).collect();
        let open: Vec<&str> = call_ids(message).filter(|id| !answered.contains(id)).collect();
        (!open.is_empty()).then(|| found![at, open.join(", ")])
    })
}

fn results_called(asked: Asked<'_>) -> Found {
    let messages = asked.body.get("messages");
    find_first(messages.items(), |at, message| {
        let before = at.checked_sub(1).map(|before| messages.item(before));
        let called: Vec<&str> = before.map(|it| call_ids(it).collect()).unwrap_or_default();
        find_first(blocks(message), |index, block| {
            let id = block.get("tool_use_id").text()?;
            (!called.contains(&id)).then(|| found![at, index, id])
        })
    })
}

fn results_first(asked: Asked<'_>) -> Found {
    find_first(asked.body.get("messages").items(), |at, message| {
        let results = result_ids(message).count();
        let is_result = |block: Node<'_>| block.get("type").is("tool_result");
        let leading = blocks(message).take_while(|block| is_result(*block)).count();
        (leading < results).then(|| found![at, results - leading])
    })
}
