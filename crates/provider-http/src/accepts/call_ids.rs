//! Ids of tool calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use layer0::id::CallId;
use layer0::message::{Message, ToolCall};
use sha2::{Digest, Sha256};

/// The length of a generated id, as Mistral requires it; every endpoint accepts it.
const MADE_CHARS: usize = 9;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The tool call ids that an endpoint accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallIds {
    min_chars: usize,
    max_chars: usize,
    /// Characters allowed besides letters and digits; `None` allows any character.
    further: Option<&'static str>,
    /// Whether the endpoint refuses other ids even if it gave them itself.
    is_strict: bool,
}

impl CallIds {
    /// Accepts any id.
    #[must_use]
    pub const fn any() -> Self {
        Self { min_chars: 0, max_chars: usize::MAX, further: None, is_strict: false }
    }

    /// Accepts ids of 1 to `max_chars` letters, digits, `_` and `-`.
    #[must_use]
    pub const fn up_to(max_chars: usize) -> Self {
        Self { min_chars: 1, max_chars, further: Some("_-"), is_strict: false }
    }

    /// Accepts ids of exactly `chars` letters and digits.
    #[must_use]
    pub const fn exactly(chars: usize) -> Self {
        Self { min_chars: chars, max_chars: chars, further: Some(""), is_strict: false }
    }

    /// Refuses other ids even if the endpoint gave them itself.
    #[must_use]
    pub const fn strict(mut self) -> Self {
        self.is_strict = true;
        self
    }

    /// Returns whether the endpoint accepts this id.
    #[must_use]
    pub fn accepts(&self, id: &str) -> bool {
        let chars = id.chars().count();
        let is_taken = |c: char| {
            self.further.is_none_or(|further| c.is_ascii_alphanumeric() || further.contains(c))
        };
        (self.min_chars..=self.max_chars).contains(&chars) && id.chars().all(is_taken)
    }

    /// Returns the id if it is accepted and unused, otherwise an unused one derived from it: the
    /// same one each time.
    fn fit(&self, id: &str, used: &BTreeSet<String>) -> String {
        if self.accepts(id) && !used.contains(id) {
            return id.to_owned();
        }
        let mut made = (0_u32..).map(|nth| made_id(id, nth));
        made.find(|made| !used.contains(made)).unwrap_or_default()
    }
}

/// Derives the `nth` id of letters and digits from an id.
fn made_id(id: &str, nth: u32) -> String {
    let digest = Sha256::digest(format!("{nth} {id}"));
    digest
        .iter()
        .take(MADE_CHARS)
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % 62]))
        .collect()
}

/// Replaces the tool call ids of a conversation so that the endpoint accepts each and none repeats.
///
/// `is_own` returns whether this endpoint gave the call its id; such an id is kept, unless the rules are strict. An id of
/// a gateway may hold what it needs for the next request.
pub(crate) fn fit_call_ids(
    messages: Vec<Arc<Message>>,
    ids: CallIds,
    is_own: impl Fn(&Message, &str) -> bool,
) -> Vec<Arc<Message>> {
    if ids == CallIds::any() {
        return messages;
    }
    let (mut used, mut sent) = (BTreeSet::new(), BTreeMap::<CallId, String>::new());
    let mut fit = |message: Arc<Message>| match &*message {
        Message::Assistant { content, tool_calls, provider_state } if !tool_calls.is_empty() => {
            let mut is_changed = false;
            let calls: Arc<[ToolCall]> = tool_calls
                .iter()
                .map(|call| {
                    let id = call.id.as_str();
                    let fitted = match !ids.is_strict && is_own(&message, id) && !used.contains(id)
                    {
                        true => id.to_owned(),
                        false => ids.fit(id, &used),
                    };
                    is_changed |= fitted != id;
                    used.insert(fitted.clone());
                    sent.insert(call.id.clone(), fitted.clone());
                    let mut call = call.clone();
                    call.id = fitted.into();
                    call
                })
                .collect();
            let (content, provider_state) = (content.clone(), provider_state.clone());
            let changed = Message::Assistant { content, tool_calls: calls, provider_state };
            if is_changed { Arc::new(changed) } else { message }
        }
        Message::Tool { tool_call_id, content, images, is_error } => match sent.get(tool_call_id) {
            Some(id) if *id != tool_call_id.as_str() => Arc::new(Message::Tool {
                tool_call_id: id.clone().into(),
                content: content.clone(),
                images: images.clone(),
                is_error: *is_error,
            }),
            _ => message,
        },
        _ => message,
    };
    messages.into_iter().map(&mut fit).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn turn(id: &str) -> [Arc<Message>; 2] {
        let call = ToolCall::new(id, "act", json!({}));
        [Message::assistant("", [call].into()), Message::tool(id.into(), "ok", false)].map(Arc::new)
    }

    fn sent(ids: CallIds, given: &[&str], own: &str) -> Vec<String> {
        let messages = given.iter().flat_map(|id| turn(id)).collect();
        let fitted = fit_call_ids(messages, ids, |_, id| id == own);
        let (calls, results): (Vec<String>, Vec<String>) = fitted
            .chunks(2)
            .map(|turn| match (&*turn[0], &*turn[1]) {
                (Message::Assistant { tool_calls, .. }, Message::Tool { tool_call_id, .. }) => {
                    (tool_calls[0].id.as_str().to_owned(), tool_call_id.as_str().to_owned())
                }
                _ => panic!("a call and its result"),
            })
            .unzip();
        assert_eq!(calls, results);
        calls
    }

    #[test]
    fn ids_are_fitted_the_same_way_each_time() {
        let long = "call_".to_owned() + &"a".repeat(80);
        for ids in [CallIds::up_to(40), CallIds::up_to(64), CallIds::exactly(9)] {
            for id in [long.as_str(), "a~2", "", "call 1", "übung", "a1B2c3D4e", "call_1"] {
                let first = sent(ids, &[id], "none");
                assert!(ids.accepts(&first[0]), "{id}: {first:?}");
                assert_eq!(first, sent(ids, &[id], "none"));
                assert_eq!(first[0] == id, ids.accepts(id), "{id}: {first:?}");
            }
        }
        assert_eq!(sent(CallIds::any(), &[&long], "none"), std::slice::from_ref(&long));
        assert_eq!(sent(CallIds::up_to(40), &[&long], &long), [long.as_str()]);
        for ids in [CallIds::up_to(40).strict(), CallIds::exactly(9).strict()] {
            assert!(ids.accepts(&sent(ids, &[&long], &long)[0]));
        }
    }

    #[test]
    fn repeated_ids_become_different_ones() {
        let ids = sent(CallIds::up_to(64), &["call_1", "call_1", "call_1"], "call_1");
        assert_eq!(ids[0], "call_1");
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 3, "{ids:?}");
    }
}
