use serde_json::Value;

use super::dialect::Dialect;

/// Earlier answers of an endpoint, with the parts that it wants back.
#[derive(Debug, Clone, Default)]
pub struct Said {
    turns: Vec<Turn>,
}

/// One answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn {
    pub(super) thinking: String,
    /// Signature of the thinking.
    pub(super) signature: String,
    pub(super) calls: Vec<SaidCall>,
    /// `reasoning_details` of a message of chat completions.
    pub(super) details: Value,
    /// Items of a response: their ids.
    pub(super) items: Vec<String>,
    /// Encrypted reasoning of a response, item by item.
    pub(super) encrypted: Vec<String>,
}

/// A call that an answer made.
#[derive(Debug, Clone, Default)]
pub(super) struct SaidCall {
    pub(super) id: String,
    /// Signature of the call.
    pub(super) signature: String,
}

impl Said {
    /// Stores an answer, given as a whole.
    pub fn remember(&mut self, dialect: Dialect, answer: &Value) {
        self.turns.push(match dialect {
            Dialect::Anthropic => read_anthropic(answer),
            Dialect::Bedrock => read_bedrock(answer),
            Dialect::Gemini => read_gemini(answer),
            Dialect::Ollama => Turn::default(),
            Dialect::OpenAiResponses => read_responses(answer),
            _ => read_chat(answer),
        });
    }

    /// Returns the answer that made a call with this id.
    pub(super) fn find_turn(&self, id: &str) -> Option<&Turn> {
        self.turns.iter().rev().find(|turn| turn.calls.iter().any(|call| call.id == id))
    }

    /// Returns whether an answer had thinking with this text and signature.
    pub(super) fn has_thinking(&self, text: &str, signature: &str) -> bool {
        self.turns.iter().any(|turn| turn.thinking == text && turn.signature == signature)
    }

    /// Returns whether a signature was given with thinking, whatever its text.
    pub(super) fn has_signature(&self, signature: &str) -> bool {
        !signature.is_empty()
            && self.turns.iter().any(|turn| {
                turn.signature == signature
                    || turn.calls.iter().any(|call| call.signature == signature)
            })
    }

    /// Returns whether reasoning was given in this encrypted form.
    pub(super) fn has_encrypted(&self, encrypted: &str) -> bool {
        self.turns.iter().any(|turn| turn.encrypted.iter().any(|it| it == encrypted))
    }

    /// Returns the item before the one with this id, in the same answer.
    pub(super) fn item_before(&self, id: &str) -> Option<&str> {
        self.turns.iter().find_map(|turn| {
            let at = turn.items.iter().position(|item| item == id)?;
            turn.items.get(at.checked_sub(1)?).map(String::as_str)
        })
    }

    /// Returns the item after the one with this id, in the same answer.
    pub(super) fn item_after(&self, id: &str) -> Option<&str> {
        self.turns.iter().find_map(|turn| {
            let at = turn.items.iter().position(|item| item == id)?;
            turn.items.get(at + 1).map(String::as_str)
        })
    }
}

fn read_anthropic(answer: &Value) -> Turn {
    let mut turn = Turn::default();
    for block in list(&answer["content"]) {
        match text(&block["type"]).as_str() {
            "thinking" => {
                turn.thinking = text(&block["thinking"]);
                turn.signature = text(&block["signature"]);
            }
            "tool_use" => {
                turn.calls.push(SaidCall { id: text(&block["id"]), signature: String::new() });
            }
            _ => {}
        }
    }
    turn
}

fn read_bedrock(answer: &Value) -> Turn {
    let mut turn = Turn::default();
    for block in list(&answer["output"]["message"]["content"]) {
        let thinking = &block["reasoningContent"]["reasoningText"];
        if thinking.is_object() {
            turn.thinking = text(&thinking["text"]);
            turn.signature = text(&thinking["signature"]);
        }
        let call = &block["toolUse"];
        if call.is_object() {
            turn.calls.push(SaidCall { id: text(&call["toolUseId"]), signature: String::new() });
        }
    }
    turn
}

fn read_gemini(answer: &Value) -> Turn {
    let calls = list(&answer["candidates"][0]["content"]["parts"]).iter().filter_map(|part| {
        let call = part.get("functionCall")?;
        Some(SaidCall { id: text(&call["id"]), signature: text(&part["thoughtSignature"]) })
    });
    Turn { calls: calls.collect(), ..Turn::default() }
}

fn read_chat(answer: &Value) -> Turn {
    let message = &answer["choices"][0]["message"];
    let calls = list(&message["tool_calls"]).iter().map(|call| SaidCall {
        id: text(&call["id"]),
        signature: text(&call["extra_content"]["google"]["thought_signature"]),
    });
    Turn {
        thinking: text(&message["reasoning_content"]),
        calls: calls.collect(),
        details: message["reasoning_details"].clone(),
        ..Turn::default()
    }
}

fn read_responses(answer: &Value) -> Turn {
    let items = list(&answer["output"]);
    let encrypted = items.iter().filter_map(|item| item["encrypted_content"].as_str());
    Turn {
        items: items.iter().map(|item| text(&item["id"])).collect(),
        encrypted: encrypted.map(str::to_owned).collect(),
        ..Turn::default()
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
