//! Lenient decoding of fields next to the model's output: a field that does not match the protocol
//! is left out or read as it is meant, and the answer is kept. Everything that is executed is
//! decoded strictly.

use layer0::JsonText;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The largest believed number of tokens of an answer, far above the context window of any model. A larger one is an
/// overflow of the endpoint, and would use up every limit.
const MAX_TOKENS: u64 = 1 << 40;

/// Decodes a number of tokens, like [`count`]; `None` for a number that no model reaches.
///
/// # Errors
///
/// Fails if the JSON itself is malformed.
pub fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(count(deserializer)?.filter(|tokens| *tokens <= MAX_TOKENS))
}

/// Decodes a count: a whole number in any form; `None` for anything else.
///
/// # Errors
///
/// Fails if the JSON itself is malformed.
pub fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(parse_count(&Value::deserialize(deserializer)?))
}

/// Returns the current count after a later, cumulative one. An absent count changes nothing, and
/// neither does a zero after another number: some endpoints send it in place of counts that they do
/// not repeat.
#[must_use]
pub fn update_count(earlier: Option<u64>, later: Option<u64>) -> Option<u64> {
    later.filter(|count| *count > 0).or(earlier).or(later)
}

/// Decodes a position, like [`count`]; zero if it is absent.
///
/// # Errors
///
/// Fails if the JSON itself is malformed.
pub fn index<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    count(deserializer).map(Option::unwrap_or_default)
}

fn parse_count(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => {
            text.trim().parse().ok().or_else(|| whole(text.trim().parse().ok()?))
        }
        _ => None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count is far below 2^53, and nothing is below zero here"
)]
fn whole(number: f64) -> Option<u64> {
    (0.0..9.0e15).contains(&number).then_some(number as u64)
}

/// Decodes a text: a string, or the text of a number; `None` for anything else.
///
/// # Errors
///
/// Fails if the JSON itself is malformed.
pub fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

/// Decodes a text like [`text`]; empty if there is none.
///
/// # Errors
///
/// Fails if the JSON itself is malformed.
pub fn text_or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(deserializer).map(Option::unwrap_or_default)
}

/// Decodes a value; `None` if it does not have the expected form.
///
/// # Errors
///
/// Fails if the JSON itself is malformed.
pub fn maybe<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

/// Decodes JSON as its text; `None` for `null`, and for JSON that cannot be recorded, such as a
/// number beyond every float.
///
/// # Errors
///
/// Fails if the JSON itself is malformed.
pub fn json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<JsonText>, D::Error> {
    let json = Box::<RawValue>::deserialize(deserializer)?;
    Ok(JsonText::parse(json.get()).ok().filter(|json| json.get() != "null"))
}

/// Decodes a value; the default for `null`.
///
/// # Errors
///
/// Fails if it is neither.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Returns the number of tokens of a prompt, including those read from and written to a cache. Some gateways count the
/// prompt without its cache, which shows if the cache is larger than the prompt.
#[must_use]
pub fn count_prompt(prompt: u64, cache: u64) -> u64 {
    match prompt > 0 && cache > prompt {
        true => prompt.saturating_add(cache),
        false => prompt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize, Debug, PartialEq)]
    struct Beside {
        #[serde(default, deserialize_with = "count")]
        count: Option<u64>,
        #[serde(default, deserialize_with = "text")]
        text: Option<String>,
        #[serde(default, deserialize_with = "maybe")]
        list: Option<Vec<u64>>,
        #[serde(default, deserialize_with = "json")]
        json: Option<JsonText>,
    }

    #[test]
    fn what_stands_beside_is_read_or_left_out() {
        #[track_caller]
        fn check(json: &str, count: Option<u64>, text: Option<&str>, list: Option<Vec<u64>>) {
            let read: Beside = serde_json::from_str(json).unwrap();
            let expected = Beside { count, text: text.map(str::to_owned), list, json: None };
            assert_eq!(read, expected, "{json}");
        }
        check(r#"{"json":null}"#, None, None, None);
        check(r#"{"json":{"n":1e999}}"#, None, None, None);
        let told: Beside = serde_json::from_str(r#"{"json":{"n":3.10}}"#).unwrap();
        assert_eq!(told.json.unwrap().get(), r#"{"n":3.10}"#);
        check("{}", None, None, None);
        check(r#"{"count":11,"text":"a","list":[1]}"#, Some(11), Some("a"), Some(vec![1]));
        check(r#"{"count":11.0,"text":7,"list":"n/a"}"#, Some(11), Some("7"), None);
        check(r#"{"count":"11","text":null,"list":null}"#, Some(11), None, None);
        check(r#"{"count":-1,"text":{},"list":[-1]}"#, None, None, None);
        check(r#"{"count":1e300,"text":[],"list":{}}"#, None, None, None);
        check(r#"{"count":null,"text":true,"list":1}"#, None, None, None);
    }

    /// Spec: B1
    #[test]
    fn tokens_beyond_every_model_are_unknown() {
        #[derive(Deserialize)]
        struct Told {
            #[serde(default, deserialize_with = "tokens")]
            tokens: Option<u64>,
        }
        for (written, expected) in [
            ("1099511627776", Some(1 << 40)),
            ("1099511627777", None),
            ("18446744073709551615", None),
            (r#""18446744073709551615""#, None),
            ("8e15", None),
            ("0", Some(0)),
        ] {
            let told: Told = serde_json::from_str(&format!(r#"{{"tokens":{written}}}"#)).unwrap();
            assert_eq!(told.tokens, expected, "{written}");
        }
    }

    #[test]
    fn cache_above_the_prompt_is_beside_it() {
        for (prompt, cache, expected) in [
            (100, 1_000, 1_100),
            (100, 100, 100),
            (100, 0, 100),
            (0, 9, 0),
            (1, u64::MAX, u64::MAX),
        ] {
            assert_eq!(count_prompt(prompt, cache), expected, "{prompt} {cache}");
        }
    }
}
