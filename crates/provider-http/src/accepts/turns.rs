//! Order of messages.

use std::sync::Arc;

use layer0::message::Message;

/// Text of the assistant message inserted for a missing answer.
const NO_ANSWER: &str = "(The run ended here, without an answer.)";
/// Text of the user message inserted where the order of messages requires one.
const CONTINUE: &str = "Continue.";

/// The order of messages that an endpoint accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageOrder {
    /// A system message first, then `user` and `assistant` by turns, `assistant` never last.
    ///
    /// Chat templates and Mistral's API require this: a run that ended without an answer leaves
    /// `tool` or `user` before the next `user`, which the endpoint refuses, and with it every later
    /// run of the session.
    Alternate,
    /// Any order that begins with `user`.
    BeginWithUser,
    /// Any order.
    Free,
}

/// Inserts messages for missing turns; for [`MessageOrder::Alternate`], also moves instructions to the beginning.
pub(crate) fn fit_turns(messages: Vec<Arc<Message>>, turns: MessageOrder) -> Vec<Arc<Message>> {
    let mut fitted = Vec::with_capacity(messages.len() + 2);
    let messages = match turns {
        MessageOrder::Free => return messages,
        MessageOrder::BeginWithUser => messages,
        MessageOrder::Alternate => with_one_system(messages),
    };
    let mut before = TurnRole::System;
    for message in messages {
        let role = TurnRole::from(&*message);
        if role == TurnRole::System && before != TurnRole::System {
            // Later instructions are not a turn.
            fitted.push(message);
            continue;
        }
        match (before, role) {
            (TurnRole::System, TurnRole::Assistant | TurnRole::Tool) => {
                fitted.push(Arc::new(Message::user(CONTINUE)));
            }
            (TurnRole::Assistant, TurnRole::Assistant) if turns == MessageOrder::Alternate => {
                fitted.push(Arc::new(Message::user(CONTINUE)));
            }
            (TurnRole::Tool | TurnRole::User, TurnRole::User)
                if turns == MessageOrder::Alternate =>
            {
                fitted.push(Arc::new(no_answer()));
            }
            _ => {}
        }
        before = role;
        fitted.push(if is_void(&message) && turns == MessageOrder::Alternate {
            Arc::new(no_answer())
        } else {
            message
        });
    }
    // A conversation that ends with a paused answer of another endpoint needs a user message.
    if before == TurnRole::Assistant && turns == MessageOrder::Alternate {
        fitted.push(Arc::new(Message::user(CONTINUE)));
    }
    fitted
}

fn no_answer() -> Message {
    Message::assistant(NO_ANSWER, Arc::default())
}

/// Returns whether an assistant message has neither text nor calls.
fn is_void(message: &Message) -> bool {
    matches!(message, Message::Assistant { content, tool_calls, .. }
        if content.trim().is_empty() && tool_calls.is_empty())
}

/// Joins all system messages into one at the beginning.
fn with_one_system(messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
    let is_system = |message: &Arc<Message>| matches!(**message, Message::System { .. });
    let is_fit = messages.iter().skip(1).all(|message| !is_system(message));
    if is_fit {
        return messages;
    }
    let (systems, rest): (Vec<_>, Vec<_>) = messages.into_iter().partition(is_system);
    let texts: Vec<&str> = systems
        .iter()
        .map(|message| match &**message {
            Message::System { content } => &**content,
            _ => "",
        })
        .collect();
    let system = Arc::new(Message::system(texts.join("\n\n")));
    std::iter::once(system).chain(rest).collect()
}

#[derive(Clone, Copy, PartialEq)]
enum TurnRole {
    Assistant,
    System,
    Tool,
    User,
}

impl From<&Message> for TurnRole {
    fn from(message: &Message) -> Self {
        match message {
            Message::Assistant { .. } => Self::Assistant,
            Message::Tool { .. } => Self::Tool,
            Message::User { .. } => Self::User,
            _ => Self::System,
        }
    }
}

#[cfg(test)]
mod tests {
    use layer0::message::ToolCall;
    use serde_json::json;

    use super::*;

    /// Builds messages from the letters `s u a c t`, one message each; `c` is an assistant message
    /// with a call, `v` an empty one.
    fn messages(letters: &str) -> Vec<Arc<Message>> {
        let message = |letter| match letter {
            's' => Message::system("s"),
            'u' => Message::user("u"),
            'a' => Message::assistant("a", Arc::default()),
            'v' => Message::assistant(" ", Arc::default()),
            'c' => Message::assistant("", [ToolCall::new("c1", "act", json!({}))].into()),
            _ => Message::tool("c1".into(), "t", false),
        };
        letters.chars().map(|letter| Arc::new(message(letter))).collect()
    }

    #[track_caller]
    fn check(turns: MessageOrder, given: &str, expected: &str) {
        let fitted = fit_turns(messages(given), turns);
        let letters: String = fitted
            .iter()
            .map(|message| match &**message {
                Message::Assistant { content, .. } if **content == *NO_ANSWER => '-',
                Message::User { content, .. } if **content == *CONTINUE => '+',
                Message::Assistant { tool_calls, .. } if !tool_calls.is_empty() => 'c',
                Message::Assistant { .. } => 'a',
                Message::Tool { .. } => 't',
                Message::User { .. } => 'u',
                _ => 's',
            })
            .collect();
        assert_eq!(letters, expected, "{given}");
    }

    #[test]
    fn a_line_stands_where_a_turn_is_missing() {
        for (given, expected) in [
            ("suauau", "suauau"),
            ("sua", "sua+"),
            ("suctsct", "suctct"),
            ("sucttau", "sucttau"),
            ("suctu", "suct-u"),
            ("uu", "u-u"),
            ("suaa", "sua+a+"),
            ("uvu", "u-u"),
            ("ssusau", "suau"),
            ("sa", "s+a+"),
            ("", ""),
        ] {
            check(MessageOrder::Alternate, given, expected);
            check(MessageOrder::Free, given, &given.replace('v', "a"));
        }
        check(MessageOrder::BeginWithUser, "au", "+au");
        check(MessageOrder::BeginWithUser, "suctu", "suctu");
        check(MessageOrder::BeginWithUser, "sucstasa", "sucstasa");
    }
}
