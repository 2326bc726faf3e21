//! Values of writes.

use serde_json::Value;

use crate::error::StateError;
use crate::json_text::{JsonText, MAX_DEPTH, is_deeper, take_apart};

/// The value of a write. A tree that is nested deeper than 100 levels has no text: no store can return it.
///
/// ```
/// use layer0::state::StateValue;
/// use serde_json::json;
///
/// assert_eq!(StateValue::from(json!([1])).text()?.get(), "[1]");
/// let deep = (0..101).fold(json!(1), |inner, _| json!([inner]));
/// assert_eq!(StateValue::from(deep).text().unwrap_err().code(), "state.serialization");
/// # use layer0::failure::Failure;
/// # Ok::<(), layer0::error::StateError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct StateValue(Option<JsonText>);

impl StateValue {
    /// Returns the value as JSON, with its numbers as they were written.
    ///
    /// # Errors
    ///
    /// [`StateError::Serialization`] for a tree that is nested deeper than 100 levels.
    pub fn text(&self) -> Result<&JsonText, StateError> {
        self.0.as_ref().ok_or_else(|| {
            StateError::Serialization(format!("it is nested deeper than {MAX_DEPTH} levels"))
        })
    }
}

impl From<JsonText> for StateValue {
    fn from(text: JsonText) -> Self {
        Self(Some(text))
    }
}

impl From<Value> for StateValue {
    fn from(value: Value) -> Self {
        let text = Self::from(&value);
        if text.0.is_none() {
            take_apart(value);
        }
        text
    }
}

impl From<&Value> for StateValue {
    fn from(value: &Value) -> Self {
        Self((!is_deeper(value, MAX_DEPTH)).then(|| value.into()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use serde_json::json;

    use super::*;

    /// Spec: K1
    #[test]
    fn trees_of_any_depth_are_taken() {
        for (levels, is_kept) in [(0, true), (100, true), (101, false), (100_000, false)] {
            let tree = (0..levels).fold(json!(1), |inner, _| Value::Array(vec![inner]));
            let value = StateValue::from(tree);
            assert_eq!(value.text().is_ok(), is_kept, "{levels}");
            if let Ok(text) = value.text() {
                assert_eq!(text.get(), format!("{}1{}", "[".repeat(levels), "]".repeat(levels)));
            }
        }
    }
}
