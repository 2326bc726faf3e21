//! What the model reads of a tool call's answer.

use layer0::JsonText;
use layer0::event::ToolResponded;
use layer0::message::Message;
use serde::Deserialize;

/// Makes the message the model reads: the text itself, or the compact JSON of what is no text.
pub(crate) fn tool_message(responded: &ToolResponded) -> Message {
    #[derive(Deserialize)]
    struct Failed {
        error: JsonText,
    }
    let failed = if responded.ok { None } else { responded.output.read::<Failed>().ok() };
    let shown = failed.as_ref().map_or(&responded.output, |failed| &failed.error);
    Message::tool(responded.call_id.clone(), shown.shown(), !responded.ok)
}

/// Ends the text of an answer with a line of our own.
pub(crate) fn with_note(message: Message, note: &str) -> Message {
    match message {
        Message::Tool { tool_call_id, content, is_error } => {
            let content = format!("{content}\n{note}").into();
            Message::Tool { tool_call_id, content, is_error }
        }
        other => other,
    }
}
