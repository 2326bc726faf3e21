//! Messages with the answers of tool calls for the model.

use std::sync::Arc;

use layer0::JsonText;
use layer0::event::{DoneBefore, ToolResponded};
use layer0::message::Message;
use serde::Deserialize;

/// Returns the message for the model: text as it is, any other output as compact JSON. Standard error of a command
/// follows under that name, then, for a call that was made before, the call whose answer it is.
pub(crate) fn tool_message(responded: &ToolResponded) -> Message {
    #[derive(Deserialize)]
    struct ToolFailureJson {
        error: JsonText,
    }
    let failed = if responded.ok { None } else { responded.output.read::<ToolFailureJson>().ok() };
    let shown = failed.as_ref().map_or(&responded.output, |failed| &failed.error);
    let message = Message::Tool {
        tool_call_id: responded.call_id.clone(),
        content: shown.display_text().into(),
        images: Arc::clone(&responded.images),
        is_error: !responded.ok,
    };
    let message = match &responded.stderr {
        Some(stderr) => with_note(message, &format!("standard error:\n{stderr}")),
        None => message,
    };
    match responded.done_before.as_deref() {
        Some(DoneBefore { run, call_id, .. }) => with_note(
            message,
            &format!("done before, by call {call_id} of run {run}: not done again"),
        ),
        None => message,
    }
}

/// Appends a line of our own to the text of an answer.
pub(crate) fn with_note(message: Message, note: &str) -> Message {
    match message {
        Message::Tool { tool_call_id, content, images, is_error } => {
            let content = format!("{content}\n{note}").into();
            Message::Tool { tool_call_id, content, images, is_error }
        }
        other => other,
    }
}
