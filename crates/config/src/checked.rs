//! Values that are checked during deserialization, so that an error names their line.
//!
//! A message that begins with "must" is about the key: [`parse`](crate::parse::parse) adds the key before it.

use backstop_provider::ToolChoice;
use backstop_tool::{Grants, check_capability};
use layer0::Approvers;
use layer0::name::{MAX_NAME_CHARS, check_session};
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::Value;

use crate::text_list::read_each_text;

/// Largest temperature of any provider.
const MAX_TEMPERATURE: f32 = 2.0;
/// The whole probability mass.
const MAX_TOP_P: f32 = 1.0;

/// Reads a number of at least 1.
pub(crate) fn at_least_one<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + PartialEq + Default,
{
    match Option::<T>::deserialize(from)? {
        Some(number) if number == T::default() => Err(D::Error::custom("must be at least 1")),
        number => Ok(number),
    }
}

/// Reads a temperature.
pub(crate) fn temperature<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f32>, D::Error> {
    up_to(MAX_TEMPERATURE, from)
}

/// Reads the part of the probability mass from which answers are drawn.
pub(crate) fn top_p<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f32>, D::Error> {
    up_to(MAX_TOP_P, from)
}

fn up_to<'de, D: Deserializer<'de>>(max: f32, from: D) -> Result<Option<f32>, D::Error> {
    match Option::<f32>::deserialize(from)? {
        Some(given) if !(0.0..=max).contains(&given) => {
            Err(D::Error::custom(format!("must be from 0 to {max}, and is {given}")))
        }
        given => Ok(given),
    }
}

/// Reads one text or a list of texts, none of them empty.
pub(crate) fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "must be a text, or a list of texts")]
    enum Texts {
        One(String),
        Many(Vec<String>),
    }
    let texts = match Texts::deserialize(from)? {
        Texts::One(text) => vec![text],
        Texts::Many(texts) => texts,
    };
    if texts.iter().any(String::is_empty) {
        return Err(D::Error::custom("must hold no empty text"));
    }
    Ok(texts)
}

/// Reads the tool choice.
pub(crate) fn tool_choice<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<ToolChoice>, D::Error> {
    text(from).map(|choice| Some(ToolChoice::from_word(&choice)))
}

/// Reads a text that is not blank.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.trim().is_empty() {
        return Err(D::Error::custom("must not be empty"));
    }
    Ok(text)
}

/// Reads an optional text as [`text`] does.
pub(crate) fn optional_text<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<String>, D::Error> {
    text(from).map(Some)
}

/// Reads the name of an agent.
pub(crate) fn agent_name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = text(from)?;
    match name.chars().count() > MAX_NAME_CHARS {
        true => Err(D::Error::custom(format!("must have at most {MAX_NAME_CHARS} characters"))),
        false => Ok(Some(name)),
    }
}

/// Reads the name of a session.
pub(crate) fn session<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(from)?;
    check_session(&name).map_err(|error| D::Error::custom(error.why))?;
    Ok(Some(name))
}

/// Reads the name of a variable. An invalid name may be a key, so the error does not repeat it.
pub(crate) fn variable<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(from)?;
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_name =
        name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit());
    if !is_name {
        return Err(D::Error::custom(
            "must be the name of a variable that holds the key, such as `OPENAI_API_KEY`",
        ));
    }
    Ok(Some(name))
}

/// Reads the schema of arguments, whose type is always `object`.
pub(crate) fn object_schema<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    match Option::<Value>::deserialize(from)? {
        Some(schema) if schema["type"] != "object" => {
            Err(D::Error::custom("must have `type = \"object\"`: arguments are an object"))
        }
        schema => Ok(schema),
    }
}

/// Reads a JSON pointer to an argument.
pub(crate) fn pointer<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(from)?;
    match text.starts_with('/') && text.len() > 1 {
        true => Ok(Some(text)),
        false => {
            let why = format!("`{text}` is no JSON pointer to an argument, such as `/invoice_id`");
            Err(D::Error::custom(why))
        }
    }
}

/// Reads the names of the people who may decide.
pub(crate) fn approvers<'de, D: Deserializer<'de>>(from: D) -> Result<Approvers, D::Error> {
    let approvers = Approvers::deserialize(from)?;
    let is_nameless = approvers.names().any(|name| name.trim().is_empty());
    if is_nameless {
        return Err(D::Error::custom("must hold no empty name"));
    }
    Ok(approvers)
}

/// Reads the grants of a policy.
pub(crate) fn grants<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    read_each_text(from, |text| match Grants::parse([text]) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    })
}

/// Reads the capabilities that a tool needs.
pub(crate) fn capabilities<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    read_each_text(from, |text| match check_capability(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(why) => Err(format!("capability `{text}` is not valid: {why}")),
    })
}

/// Reads optional capabilities as [`capabilities`] does.
pub(crate) fn optional_capabilities<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<String>>, D::Error> {
    capabilities(from).map(Some)
}
