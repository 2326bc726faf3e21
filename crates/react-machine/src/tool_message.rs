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

#[cfg(test)]
mod tests {
    use layer0::code::TOOL_TIMEOUT;
    use layer0::event::ToolFailure;
    use serde_json::json;

    use super::*;

    /// Spec: T1
    #[test]
    fn answer_is_text_with_its_notes() {
        let answer = |output| ToolResponded::success("c0", "look", output, 1);
        let mut noted = answer(json!("seen"));
        noted.stderr = Some("oops".into());
        noted.done_before = Some(Box::new(DoneBefore::new("run_0".into(), "c9".into())));
        let failure = ToolFailure::new(TOOL_TIMEOUT, "late");
        let failed = ToolResponded::failure("c0".into(), "look".into(), "too late", 1, failure);
        let mut odd = answer(json!({ "error": "kept" }));
        for (responded, text, is_error) in [
            (answer(json!("seen")), "seen", false),
            (answer(json!({ "a": 1 })), r#"{"a":1}"#, false),
            (odd.clone(), r#"{"error":"kept"}"#, false),
            (failed, "too late", true),
            (
                noted,
                "seen\nstandard error:\noops\ndone before, by call c9 of run run_0: not done again",
                false,
            ),
        ] {
            assert_eq!(tool_message(&responded), Message::tool("c0".into(), text, is_error));
        }
        (odd.ok, odd.output) = (false, json!("no object").into());
        assert_eq!(tool_message(&odd), Message::tool("c0".into(), "no object", true));
        let other = Message::user("text");
        assert_eq!(with_note(other.clone(), "note"), other);
    }
}
