//! Amazon Bedrock Converse.

use crate::strict::dialect::Dialect;
use crate::strict::json::Node;
use crate::strict::look::{find_first, is_blank, is_word, repeated};
use crate::strict::rule::{Asked, Found, Rule, found};
use crate::strict::schema::top_level_combinator;

const HERE: &[Dialect] = &[Dialect::Bedrock];

const GUIDE: &str =
    "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Message.html";

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "bedrock.first_is_user",
        HERE,
        "A conversation must start with a user message. Try again with a conversation that starts with a \
         user message.",
        "https://github.com/NousResearch/hermes-agent/pull/39850",
        |asked| (!messages(asked).next()?.get("role").is("user")).then(Vec::new),
    ),
    Rule::new(
        "bedrock.roles_alternate",
        HERE,
        "A conversation must alternate between user and assistant roles. Make sure the conversation \
         alternates between user and assistant roles and try again.",
        "https://github.com/NousResearch/hermes-agent/pull/39850",
        |asked| {
            let roles: Vec<&str> =
                messages(asked).map(|it| it.get("role").text_or_empty()).collect();
            roles.windows(2).any(|pair| pair[0] == pair[1]).then(Vec::new)
        },
    ),
    Rule::new(
        "bedrock.content_given",
        HERE,
        "The content field in the Message object at messages.{} is empty. Add a ContentBlock object to the \
         content field and try again.",
        "https://github.com/archestra-ai/archestra/pull/4220",
        |asked| {
            find_first(messages(asked), |at, message| {
                (message.get("content").items().len() == 0).then(|| found![at])
            })
        },
    ),
    Rule::new(
        "bedrock.text_not_blank",
        HERE,
        "The text field in the ContentBlock object at messages.{}.content.{} is blank. Add text to the text \
         field, and try again.",
        "https://github.com/earendil-works/pi/issues/4975",
        |asked| {
            let is_bad = |block: Node<'_>| block.get("text").text().is_some_and(is_blank);
            each_block(asked, |block| {
                let below = block.path("toolResult/content").items().any(is_bad);
                (is_bad(block) || below).then(Vec::new)
            })
        },
    ),
    Rule::new(
        "bedrock.system_not_blank",
        HERE,
        "The text field in the SystemContentBlock object at system.{} is blank. Add text to the text field, \
         and try again.",
        "https://github.com/earendil-works/pi/issues/4975",
        |asked| {
            find_first(asked.body.get("system").items(), |at, block| {
                block.get("text").text().is_some_and(is_blank).then(|| found![at])
            })
        },
    ),
    Rule::new(
        "bedrock.call_ids",
        HERE,
        "Value at 'messages.{}.member.content.{}.member.toolUse.toolUseId' failed to satisfy constraint: \
         Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+ and have length less than or equal \
         to 64",
        "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolUseBlock.html",
        |asked| {
            each_block(asked, |block| {
                let ids =
                    ["toolUse/toolUseId", "toolResult/toolUseId"].map(|path| block.path(path));
                let mut ids = ids.into_iter().filter(|id| id.exists()).map(Node::text_or_empty);
                ids.find(|id| !is_word(id, 64, "_-")).map(|_| Vec::new())
            })
        },
    ),
    Rule::new(
        "bedrock.call_names",
        HERE,
        "Value at 'messages.{}.member.content.{}.member.toolUse.name' failed to satisfy constraint: Member \
         must satisfy regular expression pattern: [a-zA-Z0-9_-]+",
        "https://github.com/openclaw/openclaw/issues/12892",
        |asked| {
            each_block(asked, |block| {
                let name = block.path("toolUse/name");
                (name.exists() && !is_word(name.text_or_empty(), 64, "_-")).then(Vec::new)
            })
        },
    ),
    Rule::new(
        "bedrock.tool_names",
        HERE,
        "Value '{}' at 'toolConfig.tools.{}.member.toolSpec.name' failed to satisfy constraint: Member must \
         satisfy regular expression pattern: [a-zA-Z0-9_-]+",
        "https://github.com/aws-samples/remote-swe-agents/pull/457",
        |asked| {
            each_tool(asked, |at, tool| {
                let name = tool.get("name").text_or_empty();
                (!is_word(name, 64, "_-")).then(|| found![name, at + 1])
            })
        },
    ),
    Rule::new(
        "bedrock.tool_descriptions",
        HERE,
        "Value '' at 'toolConfig.tools.{}.member.toolSpec.description' failed to satisfy constraint: Member \
         must have length greater than or equal to 1",
        "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolSpecification.html",
        |asked| each_tool(asked, |at, tool| tool.get("description").is("").then(|| found![at + 1])),
    ),
    Rule::new(
        "bedrock.schema_object",
        HERE,
        "The value at toolConfig.tools.{}.toolSpec.inputSchema.json.type must be one of the following: \
         object.",
        "https://github.com/kirodotdev/Kiro/issues/11026",
        |asked| {
            each_tool(asked, |at, tool| {
                (!tool.path("inputSchema/json/type").is("object")).then(|| found![at])
            })
        },
    ),
    Rule::new(
        "bedrock.schema_top",
        HERE,
        "The model returned the following errors: tools.{}.custom.input_schema: input_schema does not \
         support oneOf, allOf, or anyOf at the top level",
        "https://github.com/anthropics/claude-code/issues/27337",
        |asked| {
            each_tool(asked, |at, tool| {
                let words = ["oneOf", "allOf", "anyOf"];
                top_level_combinator(tool.path("inputSchema/json"), &words).map(|_| found![at])
            })
        },
    ),
    Rule::new(
        "bedrock.tools_given",
        HERE,
        "Value at 'toolConfig.tools' failed to satisfy constraint: Member must have length greater than or \
         equal to 1",
        "https://github.com/genkit-ai/aws-bedrock-js-plugin/issues/43",
        |asked| {
            let config = asked.body.get("toolConfig");
            (config.is_given() && config.get("tools").items().len() == 0).then(Vec::new)
        },
    ),
    Rule::new(
        "bedrock.tools_for_calls",
        HERE,
        "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
        "https://github.com/vxcontrol/pentagi/pull/196",
        |asked| {
            let blocks = messages(asked).flat_map(|message| message.get("content").items());
            let is_used =
                |it: Node<'_>| it.get("toolUse").exists() || it.get("toolResult").exists();
            let is_missing = !asked.body.get("toolConfig").is_given();
            (is_missing && blocks.into_iter().any(is_used)).then(Vec::new)
        },
    ),
    Rule::new(
        "bedrock.input_object",
        HERE,
        "The format of the value at messages.{}.content.{}.toolUse.input is invalid. Provide a json object \
         for the field and try again.",
        "https://github.com/vercel/ai/pull/19023",
        |asked| {
            each_block(asked, |block| {
                let call = block.get("toolUse");
                (call.exists() && !call.get("input").is_object()).then(Vec::new)
            })
        },
    ),
    Rule::new(
        "bedrock.result_object",
        HERE,
        "The format of the value at messages.{}.content.{}.toolResult.content.0.json is invalid. Provide a \
         json object for the field and try again.",
        "https://github.com/aws/aws-sdk-js-v3/issues/7330",
        |asked| {
            each_block(asked, |block| {
                let mut parts =
                    block.path("toolResult/content").items().map(|part| part.get("json"));
                parts.any(|json| json.exists() && !json.is_object()).then(Vec::new)
            })
        },
    ),
    Rule::new(
        "bedrock.call_ids_unique",
        HERE,
        "The toolUse blocks at messages.{}.content contain duplicate Ids: {}",
        GUIDE,
        |asked| {
            find_first(messages(asked), |at, message| {
                Some(found![at, repeated(ids(message, "toolUse").into_iter())?])
            })
        },
    ),
    Rule::new(
        "bedrock.calls_answered",
        HERE,
        "Expected toolResult blocks at messages.{}.content for the following Ids: {}",
        "https://docs.aws.amazon.com/bedrock/latest/userguide/tool-use.html",
        |asked| {
            find_first(messages(asked), |at, message| {
                // The result of a tool that Bedrock ran itself is in the message of its call.
                let mut answered = ids(asked.body.get("messages").item(at + 1), "toolResult");
                answered.extend(ids(message, "toolResult"));
                let mut open = ids(message, "toolUse");
                open.retain(|id| !answered.contains(id));
                (!open.is_empty()).then(|| found![at + 1, open.join(", ")])
            })
        },
    ),
    Rule::new(
        "bedrock.results_called",
        HERE,
        "The number of toolResult blocks at messages.{}.content exceeds the number of toolUse blocks of \
         previous turn.",
        "https://github.com/pydantic/pydantic-ai/issues/2327",
        |asked| {
            find_first(messages(asked), |at, message| {
                let before = at.checked_sub(1).map(|it| asked.body.get("messages").item(it));
                let mut called = before.map(|it| ids(it, "toolUse")).unwrap_or_default();
                if message.get("role").is("assistant") {
                    called = served_ids(message);
                }
                let results = ids(message, "toolResult");
                let is_called = results.iter().all(|id| called.contains(id));
                (results.len() > called.len() || !is_called).then(|| found![at])
            })
        },
    ),
    Rule::new(
        "bedrock.signatures_own",
        HERE,
        "The model returned the following errors: messages.{}.content.{}: Invalid `signature` in `thinking` \
         block",
        "https://github.com/NousResearch/hermes-agent/pull/24107",
        |asked| {
            each_block(asked, |block| {
                let thinking = block.path("reasoningContent/reasoningText");
                let text = thinking.get("text").text()?;
                let signature = thinking.get("signature").text_or_empty();
                (!asked.said.has_thinking(text, signature)).then(Vec::new)
            })
        },
    ),
];

fn messages(asked: Asked<'_>) -> impl Iterator<Item = Node<'_>> {
    asked.body.get("messages").items()
}

fn each_block(asked: Asked<'_>, find: impl Fn(Node<'_>) -> Found) -> Found {
    find_first(messages(asked), |at, message| {
        find_first(message.get("content").items(), |index, block| {
            find(block).map(|parts| [found![at, index], parts].concat())
        })
    })
}

fn each_tool(asked: Asked<'_>, find: impl Fn(usize, Node<'_>) -> Found) -> Found {
    find_first(asked.body.path("toolConfig/tools").items(), |at, tool| {
        let tool = tool.get("toolSpec");
        if tool.exists() { find(at, tool) } else { None }
    })
}

/// Returns the ids in the blocks of this kind.
fn ids<'a>(message: Node<'a>, kind: &str) -> Vec<&'a str> {
    let blocks = message.get("content").items().map(|block| block.get(kind));
    blocks.filter(|it| it.exists()).map(|it| it.get("toolUseId").text_or_empty()).collect()
}

/// Returns the ids of the calls that Bedrock ran itself.
fn served_ids<'a>(message: Node<'a>) -> Vec<&'a str> {
    let calls = message.get("content").items().map(|block| block.get("toolUse"));
    let served = calls.filter(|call| call.get("type").is("server_tool_use"));
    served.map(|call| call.get("toolUseId").text_or_empty()).collect()
}
