//! The texts of a call that is made once.

use backstop_redact::Redactor;
use layer0::JsonText;
use layer0::id::CallId;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The texts of a call, under the key of its entry in the scope of its run: they are removed with the run.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct EntryTexts {
    /// The id of the call, by which the texts are erased with its events.
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<CallId>,
    /// The arguments, for a probe by another call.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "read_present")]
    arguments: Option<JsonText>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "read_present")]
    output: Option<JsonText>,
    /// The arguments, if only their text fits into the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments_text: Option<String>,
    /// The output, if only its text fits into the store. An older version wrote it so to keep its numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// The texts of a call as an older version wrote them into the entry.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OlderTexts {
    arguments: Option<Value>,
    #[serde(deserialize_with = "read_present")]
    output: Option<Value>,
    text: Option<String>,
}

/// Reads a value that is there; `null` is a value.
fn read_present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

impl EntryTexts {
    /// Returns the texts of a call that begins.
    pub(super) fn from_arguments(call: &CallId, redactor: &Redactor, arguments: JsonText) -> Self {
        let arguments = Some(redactor.redact_held_json(arguments));
        Self { call_id: Some(call.clone()), arguments, ..Self::default() }
    }

    /// Returns the texts of an answered call.
    pub(super) fn from_output(call: &CallId, redactor: &Redactor, output: JsonText) -> Self {
        let output = Some(redactor.redact_held_json(output));
        Self { call_id: Some(call.clone()), output, ..Self::default() }
    }

    /// Returns the answer of the call; `None` if it is unknown.
    pub(super) fn answer(&self) -> Option<JsonText> {
        match (&self.text, &self.output) {
            (Some(text), _) => parse_text(text).or_else(|| Some(JsonText::string(text))),
            (None, output) => output.clone(),
        }
    }

    /// Returns the arguments of the call, if they were kept.
    pub(super) fn arguments(&self) -> Option<JsonText> {
        self.arguments_text.as_deref().and_then(parse_text).or_else(|| self.arguments.clone())
    }

    /// Returns the JSON to store. It is nested one level deeper than the texts: where that is too deep for a state
    /// store, the texts become strings.
    pub(super) fn to_json(&self) -> Result<JsonText, serde_json::Error> {
        let nested = JsonText::from_value(self).and_then(|json| JsonText::parse(json.get()));
        nested.or_else(|_| JsonText::from_value(&self.flattened()))
    }

    fn flattened(&self) -> Self {
        let text = |json: &JsonText| json.get().to_owned();
        Self {
            call_id: self.call_id.clone(),
            arguments_text: self.arguments.as_ref().map(text),
            text: self.output.as_ref().map(text),
            ..Self::default()
        }
    }
}

fn parse_text(text: &str) -> Option<JsonText> {
    serde_json::from_str(text).ok()
}

impl From<&OlderTexts> for EntryTexts {
    fn from(older: &OlderTexts) -> Self {
        Self {
            call_id: None,
            arguments: older.arguments.as_ref().map(JsonText::from),
            output: older.output.as_ref().map(JsonText::from),
            arguments_text: None,
            text: older.text.clone(),
        }
    }
}
