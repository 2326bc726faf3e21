//! Messages read from their JSON.

use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{Image, Message, ProviderState, ToolCall};
use crate::id::CallId;

/// The fields of messages of all roles. An enum tagged by role would be read through serde's own values, which lose the
/// text of numbers in the calls' arguments.
#[derive(Deserialize)]
struct AnyMessage {
    role: MessageRole,
    content: Arc<str>,
    #[serde(default)]
    images: Arc<[Image]>,
    #[serde(default)]
    tool_calls: Arc<[ToolCall]>,
    provider_state: Option<ProviderState>,
    tool_call_id: Option<CallId>,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum MessageRole {
    System,
    User,
    Assistant,
    Tool,
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let message = AnyMessage::deserialize(deserializer)?;
        let content = message.content;
        Ok(match message.role {
            MessageRole::System => Self::System { content },
            MessageRole::User => Self::User { content, images: message.images },
            MessageRole::Assistant => Self::Assistant {
                content,
                tool_calls: message.tool_calls,
                provider_state: message.provider_state,
            },
            MessageRole::Tool => Self::Tool {
                tool_call_id: message
                    .tool_call_id
                    .ok_or_else(|| D::Error::missing_field("tool_call_id"))?,
                content,
                images: message.images,
                is_error: message.is_error,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: P12
    #[test]
    fn a_message_reads_back_as_it_was_written() {
        let call = ToolCall {
            id: "c1".into(),
            name: "pay".into(),
            arguments: crate::JsonText::parse(r#"{"amount":3.10}"#).unwrap(),
        };
        for message in [
            Message::system("s"),
            Message::user("u"),
            Message::assistant("a", [call].into()),
            Message::tool("c1".into(), "t", true),
            Message::Tool {
                tool_call_id: "c1".into(),
                content: "t".into(),
                images: [Image::from_bytes(b"GIF89a").unwrap()].into(),
                is_error: false,
            },
        ] {
            let text = serde_json::to_string(&message).unwrap();
            let read: Message = serde_json::from_str(&text).unwrap();
            assert_eq!(read, message);
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
        assert!(serde_json::from_str::<Message>(r#"{"role":"tool","content":""}"#).is_err());
        assert!(serde_json::from_str::<Message>(r#"{"role":"bot","content":""}"#).is_err());
    }
}
