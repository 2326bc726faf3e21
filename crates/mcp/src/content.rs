//! What the model reads of a result.

use backstop_tool::{NotShown, Schema, ToolError};
use layer0::failure::Effect;
use layer0::{JsonText, ToolSpec};
use serde_json::Value;

use crate::fault::reported;

/// What a server that reports an error without a word is taken to say.
const SILENT: &str = "the server reported an error and said nothing";

/// Reads the result of a call: its structured content where there is some, else its text. An image is given to
/// `show`, as base64, which says why it is not shown.
pub(crate) fn read(
    mut result: Value,
    spec: &ToolSpec,
    schema: Option<&Schema>,
    show: impl Fn(&str) -> Result<(), NotShown>,
) -> Result<JsonText, ToolError> {
    let invalid = |why: &str| ToolError::InvalidOutput(why.to_owned());
    let unreadable = |why: &str| invalid(why).with_effect(Effect::Unknown);
    if !result.is_object() {
        return Err(unreadable("the result is no object"));
    }
    let is_error = result["isError"] == true;
    // Providers take no images of failed calls.
    let show = |data: &str| (!is_error).then(|| show(data));
    let text = match &result["content"] {
        Value::Null => String::new(),
        Value::Array(blocks) => {
            match blocks.iter().map(|it| block(it, show)).collect::<Option<Vec<_>>>() {
                Some(lines) => lines.join("\n"),
                None => return Err(unreadable("a block of the content is of a wrong type")),
            }
        }
        _ => return Err(unreadable("the content is no list")),
    };
    if is_error {
        return Err(error(&text, spec));
    }
    match (result["structuredContent"].take(), schema) {
        (Value::Null, Some(_)) => {
            Err(invalid("the tool declares an output schema, and gave no structured content")
                .with_output(text))
        }
        (Value::Null, None) => Ok(JsonText::string(&text)),
        (structured, None) => Ok(structured.into()),
        (structured, Some(schema)) => match schema.check(&structured) {
            Ok(()) => Ok(structured.into()),
            Err(misfit) => Err(invalid(&misfit.to_string()).with_output(structured.to_string())),
        },
    }
}

/// Changes what a failure of [`read`] says of the result.
pub(crate) fn map_text(error: ToolError, map: impl Fn(&str) -> String) -> ToolError {
    match error {
        ToolError::Detailed { error, code, retry, effect, output, .. } => {
            let mut mapped = map_text(error.into_inner(), &map as &dyn Fn(&str) -> String);
            if let Some(code) = code {
                mapped = mapped.with_code(code);
            }
            if let Some(retry) = retry {
                mapped = mapped.with_retry(retry);
            }
            if let Some(effect) = effect {
                mapped = mapped.with_effect(effect);
            }
            match output {
                Some(output) => mapped.with_output(map(&output)),
                None => mapped,
            }
        }
        ToolError::ExecutionFailed(text) => ToolError::ExecutionFailed(map(&text)),
        ToolError::InvalidInput(text) => ToolError::InvalidInput(map(&text)),
        ToolError::InvalidOutput(text) => ToolError::InvalidOutput(map(&text)),
        error => error,
    }
}

/// Returns what a call failed with whose tool reported an error.
fn error(text: &str, spec: &ToolSpec) -> ToolError {
    if let Some(error) = reported(spec, text) {
        return error;
    }
    // What only looks, or may be repeated, has done nothing that counts.
    let effect = if spec.idempotent { Effect::None } else { Effect::Happened };
    let text = if text.trim().is_empty() { SILENT } else { text };
    ToolError::ExecutionFailed(text.to_owned()).with_effect(effect)
}

/// Returns a block as text; `None` where its fields are not of their type.
fn block(block: &Value, show: impl Fn(&str) -> Option<Result<(), NotShown>>) -> Option<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match block["type"].as_str()? {
        "text" => text(&block["text"]),
        kind @ ("image" | "audio") => {
            let data = block["data"].as_str()?;
            let size = decoded_size(data);
            let mime = block["mimeType"].as_str().unwrap_or("unknown type");
            Some(match (kind == "image").then(|| show(data)).flatten() {
                Some(Err(why)) => format!("[{kind}: {mime}, {size} bytes; not shown: {why}]"),
                _ => format!("[{kind}: {mime}, {size} bytes]"),
            })
        }
        "resource_link" => Some(reference(block, block["uri"].as_str()?)),
        "resource" => {
            let resource = &block["resource"];
            let uri = resource["uri"].as_str()?;
            text(&resource["text"]).or_else(|| Some(reference(resource, uri)))
        }
        kind => Some(format!("[a block of unknown type `{}`]", shown(kind))),
    }
}

/// Names a resource: its URI, and what else is said of it.
fn reference(resource: &Value, uri: &str) -> String {
    let more = [&resource["name"], &resource["mimeType"]];
    let more: Vec<&str> = more.into_iter().filter_map(Value::as_str).collect();
    match more.is_empty() {
        true => format!("[resource: {uri}]"),
        false => format!("[resource: {uri} ({})]", more.join(", ")),
    }
}

/// Returns how many bytes Base64 stands for.
fn decoded_size(data: &str) -> usize {
    let data = data.trim_end_matches('=');
    data.len() * 3 / 4
}

fn shown(kind: &str) -> String {
    kind.chars().filter(|c| !c.is_control()).take(64).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> ToolSpec {
        ToolSpec::new("s__t", "", json!({"type": "object"}))
    }

    /// Spec: Q8
    #[test]
    fn content_is_text_for_the_model() {
        #[track_caller]
        fn check(content: Value, text: &str) {
            let result = json!({ "content": content });
            let result = read(result, &spec(), None, |_| Ok(())).unwrap();
            assert_eq!(result.as_string().unwrap(), text);
        }
        check(json!([]), "");
        check(json!(null), "");
        check(
            json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]),
            "one\ntwo",
        );
        check(
            json!([{"type": "image", "data": "AAAAAA==", "mimeType": "image/png"}]),
            "[image: image/png, 4 bytes]",
        );
        check(json!([{"type": "audio", "data": ""}]), "[audio: unknown type, 0 bytes]");
        check(
            json!([{"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/x"}]),
            "[resource: file:///a (a, text/x)]",
        );
        check(json!([{"type": "resource", "resource": {"uri": "file:///a", "text": "t"}}]), "t");
        check(
            json!([{"type": "resource", "resource": {"uri": "file:///a", "blob": "AA=="}}]),
            "[resource: file:///a]",
        );
        check(json!([{"type": "hologram"}]), "[a block of unknown type `hologram`]");
    }

    /// Spec: Q8
    #[test]
    fn structured_content_fits_its_schema() {
        let schema = Schema::new(&json!({"type": "object", "required": ["n"]})).unwrap();
        let read = |result| {
            let read = read(result, &spec(), Some(&schema), |_| Ok(()));
            read.map_err(|error| error.to_string())
        };
        let good =
            json!({"content": [{"type": "text", "text": "7"}], "structuredContent": {"n": 7}});
        assert_eq!(read(good).unwrap().value(), json!({"n": 7}));
        assert!(read(json!({"structuredContent": {"m": 7}})).is_err());
        assert!(read(json!({"content": []})).is_err());
    }
}
