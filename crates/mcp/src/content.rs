//! Conversion of results to text for the model.

use std::collections::BTreeMap;

use backstop_tool::{NotShown, Schema, ToolError};
use layer0::failure::{Chain, Effect};
use layer0::{JsonText, ToolSpec, read_value};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::fault::find_reported_error;

/// Text of an error that a server reports without a text.
const SILENT: &str = "the server reported an error and said nothing";

/// The result of a call, as the server wrote it.
pub(crate) struct CallResult<'a> {
    whole: &'a RawValue,
    /// `None` if the result is no object.
    fields: Option<BTreeMap<String, &'a RawValue>>,
}

impl<'a> CallResult<'a> {
    /// Parses the fields of the result.
    pub(crate) fn parse(whole: &'a RawValue) -> Self {
        Self { whole, fields: serde_json::from_str(whole.get()).ok() }
    }

    /// Returns the result if the server requests input instead of returning a result.
    pub(crate) fn asks_for_input(&self) -> Option<&'a RawValue> {
        let kind = self.field("resultType").unwrap_or_default();
        (kind == "input_required").then_some(self.whole)
    }

    /// Returns the text and the structured content, without the one that is blank or repeated. A tool with an output schema returns
    /// its structured content alone. Each image is passed to `show` as Base64,
    /// which returns the reason if the image is not shown.
    pub(crate) fn read(
        &self,
        spec: &ToolSpec,
        schema: Option<&Schema>,
        show: impl Fn(&str) -> Result<(), NotShown>,
    ) -> Result<JsonText, ToolError> {
        let Some(fields) = &self.fields else {
            return Err(self.unreadable("the result is no object"));
        };
        let is_error = self.field("isError")? == true;
        // Providers take no images of failed calls.
        let show = |data: &str| (!is_error).then(|| show(data));
        let text =
            text(&self.field("content")?, show).map_err(|unread| self.unreadable(unread.0))?;
        let structured = fields.get("structuredContent").map(|structured| structured.get());
        let structured = structured.filter(|structured| *structured != "null");
        // Blank content beside a text is left out, so that the model reads the text.
        let is_told = schema.is_some() || text.trim().is_empty();
        let structured = structured.filter(|structured| is_told || !is_blank_json(structured));
        if is_error {
            // Some servers report the error only as structured content.
            let said = structured.filter(|said| text.trim().is_empty() && !is_blank_json(said));
            return Err(error(said.unwrap_or(&text), spec));
        }
        match (structured, schema) {
            (None, Some(_)) => {
                Err(invalid("the tool declares an output schema, and gave no structured content")
                    .with_output(text))
            }
            (None, None) => Ok(JsonText::string(&text)),
            // Content that is too deep, or that holds a number without bounds, becomes text.
            (Some(structured), None) if text.trim().is_empty() || repeats(structured, &text) => {
                Ok(JsonText::parse(structured).unwrap_or_else(|_| JsonText::string(structured)))
            }
            (Some(structured), None) => Ok(JsonText::string(&format!("{text}\n{structured}"))),
            (Some(structured), Some(schema)) => fitting(structured, schema),
        }
    }

    /// Returns a field; `null` if it is absent.
    fn field(&self, name: &str) -> Result<Value, ToolError> {
        let written = self.fields.as_ref().and_then(|fields| fields.get(name));
        let read = written.map(|written| serde_json::from_str(written.get())).transpose();
        read.map(Option::unwrap_or_default)
            .map_err(|_| self.unreadable(&format!("its `{name}` is no JSON")))
    }

    /// Returns the failure of a result that cannot be read, with the result.
    fn unreadable(&self, why: &str) -> ToolError {
        invalid(why).with_effect(Effect::Unknown).with_output(self.whole.get())
    }
}

/// The reason that no part of a content can be read.
struct Unread(&'static str);

/// Parses structured content that has to fit a schema.
fn fitting(structured: &str, schema: &Schema) -> Result<JsonText, ToolError> {
    let misfit = |why: &str| invalid(why).with_output(structured.to_owned());
    let text = JsonText::parse(structured).map_err(|error| misfit(&error.to_string()))?;
    match schema.check(&text.value()) {
        Ok(()) => Ok(text),
        Err(why) => Err(misfit(&why.to_string())),
    }
}

/// Returns the blocks of a content as lines. An unreadable block becomes a note if another one is readable.
fn text(
    content: &Value,
    show: impl Fn(&str) -> Option<Result<(), NotShown>>,
) -> Result<String, Unread> {
    match content {
        Value::Null => Ok(String::new()),
        Value::Array(blocks) => {
            let lines: Vec<_> = blocks.iter().map(|it| (it, block(it, &show))).collect();
            if !lines.is_empty() && lines.iter().all(|(_, line)| line.is_none()) {
                return Err(Unread("a block of the content is of a wrong type"));
            }
            let lines = lines.into_iter().map(|(it, line)| line.unwrap_or_else(|| unread_note(it)));
            Ok(lines.collect::<Vec<_>>().join("\n"))
        }
        _ => Err(Unread("the content is no list")),
    }
}

/// Describes a block that cannot be read.
fn unread_note(block: &Value) -> String {
    match block["type"].as_str() {
        Some(kind) => format!("[a block of type `{}` that cannot be read]", sanitize_kind(kind)),
        None => "[a block without a type]".to_owned(),
    }
}

/// Maximum number of lines that are looked for in structured content, each in the time of reading it.
const MAX_LINES: usize = 64;

/// Returns whether structured content repeats a text, as servers do for older clients: the text, or each of its lines,
/// is the JSON or the value of a part of it.
fn repeats(structured: &str, text: &str) -> bool {
    let Ok(structured) = read_value(structured) else { return false };
    let has = |text: &str| has_part(&structured, text.trim(), read_value(text).ok().as_ref());
    has(text) || text.lines().nth(MAX_LINES).is_none() && text.lines().all(has)
}

/// Returns whether a value has a part that is this text, or the value that the text is the JSON of.
fn has_part(value: &Value, text: &str, read: Option<&Value>) -> bool {
    let is_it = read == Some(value) || value.as_str().is_some_and(|part| part.trim() == text);
    is_it
        || match value {
            Value::Array(items) => items.iter().any(|item| has_part(item, text, read)),
            Value::Object(fields) => fields.values().any(|field| has_part(field, text, read)),
            _ => false,
        }
}

fn is_blank_json(json: &str) -> bool {
    read_value(json).is_ok_and(|value| is_blank(&value))
}

/// Returns whether a value has only blank texts, at any depth.
pub(crate) fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.iter().all(is_blank),
        Value::Object(fields) => fields.values().all(is_blank),
    }
}

fn invalid(why: &str) -> ToolError {
    ToolError::InvalidOutput(why.to_owned())
}

/// Maps the texts of a failure of [`CallResult::read`].
pub(crate) fn map_text(error: ToolError, map: impl Fn(&str) -> String) -> ToolError {
    match error {
        ToolError::Detailed { error, code, retry, effect, note, output, .. } => {
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
            if let Some(note) = note {
                mapped = mapped.with_note(map(&note));
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

/// Returns the failure of a call whose tool reported an error.
fn error(text: &str, spec: &ToolSpec) -> ToolError {
    if let Some(error) = find_reported_error(spec, text) {
        return error;
    }
    // A read-only or idempotent tool leaves no effect that counts.
    let effect = if spec.idempotent { Effect::None } else { Effect::Happened };
    let text = if text.trim().is_empty() { SILENT } else { text };
    ToolError::ExecutionFailed(text.to_owned()).with_effect(effect)
}

/// Returns a block as text; `None` if a field has the wrong type.
fn block(block: &Value, show: impl Fn(&str) -> Option<Result<(), NotShown>>) -> Option<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match block["type"].as_str()? {
        "text" => text(&block["text"]),
        kind @ ("image" | "audio") => {
            let data = block["data"].as_str()?;
            let size = decoded_size(data);
            let mime = block["mimeType"].as_str().unwrap_or("unknown type");
            Some(match (kind == "image").then(|| show(data)).flatten() {
                Some(Err(why)) => {
                    format!("[{kind}: {mime}, {size} bytes; not shown: {}]", Chain(&why))
                }
                _ => format!("[{kind}: {mime}, {size} bytes]"),
            })
        }
        "resource_link" => Some(reference(block, block["uri"].as_str()?)),
        "resource" => {
            let resource = &block["resource"];
            text(&resource["text"]).or_else(|| Some(reference(resource, resource["uri"].as_str()?)))
        }
        kind => Some(format!("[a block of unknown type `{}`]", sanitize_kind(kind))),
    }
}

/// Describes a resource by its URI, name and media type.
fn reference(resource: &Value, uri: &str) -> String {
    let more = [&resource["name"], &resource["mimeType"]];
    let more: Vec<&str> = more.into_iter().filter_map(Value::as_str).collect();
    match more.is_empty() {
        true => format!("[resource: {uri}]"),
        false => format!("[resource: {uri} ({})]", more.join(", ")),
    }
}

/// Returns the decoded size of Base64 data, in bytes.
fn decoded_size(data: &str) -> usize {
    let data = data.trim_end_matches('=');
    data.len() * 3 / 4
}

fn sanitize_kind(kind: &str) -> String {
    kind.chars().filter(|c| !c.is_control()).take(64).collect()
}

#[cfg(test)]
mod tests {
    use backstop_tool::failed_text;
    use serde_json::json;

    use super::*;

    fn spec() -> ToolSpec {
        ToolSpec::new("s__t", "", json!({"type": "object"}))
    }

    /// Spec: Q8
    #[test]
    fn structured_content_hides_no_text() {
        for (structured, text, expected) in [
            ("{}", "placed", json!("placed")),
            ("{ \n}", "placed", json!("placed")),
            ("{}", "", json!({})),
            (r#"{"n":null}"#, "placed", json!("placed")),
            (r#"[""]"#, "placed", json!("placed")),
            (r#"{"n":1}"#, "", json!({"n": 1})),
            (r#"{"n":1}"#, "{ \"n\": 1 }", json!({"n": 1})),
            (r#"{"run":"r","output":"placed"}"#, "placed", json!({"run": "r", "output": "placed"})),
            (r#"{"result":[1,{"a":"b"}]}"#, "1\n{\"a\":\"b\"}", json!({"result": [1, {"a": "b"}]})),
            (r#"{"n":1.50}"#, "placed", json!("placed\n{\"n\":1.50}")),
            (r#"{"ok":false}"#, "placed", json!("placed\n{\"ok\":false}")),
        ] {
            let content = json!([{"type": "text", "text": text}]);
            let result = format!(r#"{{"content":{content},"structuredContent":{structured}}}"#);
            assert_eq!(read(&result, None).unwrap().value(), expected);
        }
    }

    /// Spec: Q8
    #[test]
    fn content_is_text_for_the_model() {
        #[track_caller]
        fn check(content: Value, text: &str) {
            let result = read(&json!({ "content": content }).to_string(), None).unwrap();
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

    /// Spec: Q2
    #[test]
    fn odd_blocks_keep_the_others() {
        #[track_caller]
        fn check(odd: Value, note: &str) {
            let good = json!({"type": "text", "text": "placed"});
            let blocks = [odd.clone(), good.clone(), odd.clone()];
            let result = read(&json!({ "content": blocks }).to_string(), None).unwrap();
            assert_eq!(result.as_string().unwrap(), format!("{note}\nplaced\n{note}"));
            let failed = json!({ "content": [good, odd], "isError": true }).to_string();
            let failed = read(&failed, None).unwrap_err();
            assert_eq!(failed.kind().to_string(), format!("placed\n{note}"));
            let alone = json!({ "content": [odd] }).to_string();
            let error = read(&alone, None).unwrap_err();
            assert_eq!(error.output().map(|output| &**output), Some(&*alone));
        }
        check(
            json!({"type": "text", "text": null}),
            "[a block of type `text` that cannot be read]",
        );
        check(json!({"type": "image"}), "[a block of type `image` that cannot be read]");
        check(
            json!({"type": "resource", "resource": {"blob": "AA=="}}),
            "[a block of type `resource` that cannot be read]",
        );
        check(
            json!({"type": "resource_link"}),
            "[a block of type `resource_link` that cannot be read]",
        );
        check(json!({"text": "x"}), "[a block without a type]");
        check(json!("x"), "[a block without a type]");
        let resource = json!([{"type": "resource", "resource": {"text": "placed"}}]);
        let result = read(&json!({ "content": resource }).to_string(), None).unwrap();
        assert_eq!(result.as_string().unwrap(), "placed");
    }

    /// Spec: Q2, E10
    #[test]
    fn unreadable_results_are_kept() {
        for result in [r#"{"content":"placed"}"#, r#""placed""#, r#"["placed"]"#] {
            let error = read(result, None).unwrap_err();
            assert_eq!(error.output().map(|output| &**output), Some(result));
        }
    }

    fn read(result: &str, schema: Option<&Schema>) -> Result<JsonText, ToolError> {
        let result = serde_json::from_str(result).unwrap();
        CallResult::parse(result).read(&spec(), schema, |_| Ok(()))
    }

    /// Spec: Q8
    #[test]
    fn structured_content_fits_its_schema() {
        let schema = Schema::new(&json!({"type": "object", "required": ["n"]})).unwrap();
        let read = |result| read(result, Some(&schema)).map_err(|error| failed_text("t", &error));
        let good = r#"{"content": [{"type": "text", "text": "7"}], "structuredContent": {"n": 7}}"#;
        assert_eq!(read(good).unwrap().value(), json!({"n": 7}));
        assert!(read(r#"{"structuredContent": {"m": 7}}"#).is_err());
        assert!(read(r#"{"content": []}"#).is_err());
        let endless = read(r#"{"structuredContent": {"n": 1e999}}"#).unwrap_err();
        assert!(endless.contains("number out of range"), "{endless}");
    }

    /// Spec: P12
    #[test]
    fn numbers_of_structured_content_keep_their_text() {
        #[track_caller]
        fn check(structured: &str, text: &str) {
            let result = format!(r#"{{"structuredContent": {structured}}}"#);
            assert_eq!(read(&result, None).unwrap().get(), text);
        }
        check(r#"{"b": 3.10, "a": 1234e10}"#, r#"{"a":1234e10,"b":3.10}"#);
        check("[18446744073709551616]", "[18446744073709551616]");
        check(r#"{"n":1e999}"#, r#""{\"n\":1e999}""#);
    }
}
