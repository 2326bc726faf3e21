//! Forms for the data of an approval, asked field by field if its schema is flat.

mod field;

use std::io;

use backstop_tool::Schema;
use layer0::JsonText;
use serde_json::{Map, Value};

use self::field::FormField;
use super::escape;
use super::terminal::{Terminal, read_line};

/// A request for data.
pub(crate) struct DataForm {
    schema: Value,
    fields: Option<Vec<FormField>>,
}

impl DataForm {
    /// Returns the form for a schema.
    pub(crate) fn from_schema(schema: &JsonText) -> Self {
        let schema = schema.value();
        Self { fields: read_fields(&schema), schema }
    }

    /// Returns the description of the requested data, in escaped lines.
    pub(super) fn describe(&self) -> String {
        let lines: Vec<String> = match &self.fields {
            Some(fields) => fields
                .iter()
                .map(|field| {
                    let why = field.description.as_ref().map(|text| format!(": {text}"));
                    format!("  {}{}", field.label(), why.unwrap_or_default())
                })
                .collect(),
            None => vec![format!("  {}", self.schema)],
        };
        let lines = lines.iter().map(|line| format!("{}\n", escape::line(line)));
        format!("asks for data:\n{}", lines.collect::<String>())
    }

    /// Asks until the data fits the schema; returns `None` if the person leaves or the prompt is withdrawn.
    pub(super) fn ask(&self, terminal: &mut impl Terminal) -> io::Result<Option<JsonText>> {
        loop {
            let given = match &self.fields {
                Some(fields) => ask_fields(fields, terminal)?,
                None => ask_json(terminal)?,
            };
            let Some(given) = given else { return Ok(None) };
            let Some(misfit) = self.misfit(&given) else { return Ok(Some((&given).into())) };
            terminal.write(&format!("{}\n", escape::line(&misfit)))?;
        }
    }

    fn misfit(&self, given: &Value) -> Option<String> {
        match Schema::new(&self.schema) {
            Ok(schema) => schema.check_data(given).err().map(|misfit| misfit.to_string()),
            // The code that takes the decision reports an invalid schema.
            Err(_) => None,
        }
    }
}

/// Returns the fields of a flat object; `None` for anything else.
fn read_fields(schema: &Value) -> Option<Vec<FormField>> {
    let properties = schema["properties"].as_object().filter(|some| !some.is_empty())?;
    if schema["type"] != "object" {
        return None;
    }
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_required = |name: &str| required.iter().any(|required| *required == *name);
    properties
        .iter()
        .map(|(name, property)| FormField::from_property(name, property, is_required(name)))
        .collect()
}

fn ask_fields(fields: &[FormField], terminal: &mut impl Terminal) -> io::Result<Option<Value>> {
    let mut given = Map::new();
    for field in fields {
        let label = escape::line(&field.label());
        loop {
            terminal.write(&format!("  {label}: "))?;
            let Some(typed) = read_line(terminal)? else { return Ok(None) };
            if typed.is_empty() {
                match &field.default {
                    Some(default) => {
                        given.insert(field.name.clone(), default.clone());
                        break;
                    }
                    None if !field.is_required => break,
                    None => terminal.write("  it is required\n")?,
                }
                continue;
            }
            match field.read(&typed) {
                Ok(value) => {
                    given.insert(field.name.clone(), value);
                    break;
                }
                Err(why) => terminal.write(&format!("  {}\n", escape::line(&why)))?,
            }
        }
    }
    Ok(Some(Value::Object(given)))
}

fn ask_json(terminal: &mut impl Terminal) -> io::Result<Option<Value>> {
    loop {
        terminal.write("  one line of JSON: ")?;
        let Some(typed) = read_line(terminal)? else { return Ok(None) };
        match JsonText::parse(&typed) {
            Ok(json) => return Ok(Some(json.value())),
            Err(error) => terminal.write(&escape::text(&format!("  it is no JSON: {error}\n")))?,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::terminal::Typed;

    struct Typist<'a> {
        lines: std::str::Lines<'a>,
        screen: String,
    }

    impl Terminal for Typist<'_> {
        fn forget(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn read(&mut self) -> io::Result<Typed> {
            Ok(self.lines.next().map_or(Typed::End, |line| Typed::Line(line.to_owned())))
        }

        fn write(&mut self, text: &str) -> io::Result<()> {
            self.screen.push_str(text);
            Ok(())
        }
    }

    /// Asks for data of a schema; returns the output.
    #[track_caller]
    fn check(schema: Value, typed: &str, expected: Value) -> String {
        let form = DataForm::from_schema(&JsonText::from(&schema));
        let mut typist = Typist { lines: typed.lines(), screen: form.describe() };
        let given = form.ask(&mut typist).unwrap().map(|given| given.value());
        assert_eq!(given, Some(expected), "{}", typist.screen);
        typist.screen
    }

    fn of(properties: Value) -> Value {
        json!({"type": "object", "properties": properties})
    }

    /// Spec: A3
    #[test]
    fn empty_line_takes_the_default() {
        let schema = || {
            of(json!({
                "day": {"type": "string", "default": "monday"},
                "gift": {"type": "boolean", "default": false},
                "how": {"enum": ["air", "sea"], "default": "sea"},
                "parcels": {"type": "integer", "default": 2, "minimum": 1},
                "to": {"type": "array", "items": {"enum": ["a", "b"]}, "default": ["a", "b"]},
            }))
        };
        let taken =
            json!({"day": "monday", "gift": false, "how": "sea", "parcels": 2, "to": ["a", "b"]});
        let screen = check(schema(), "\n\n\n\n\n", taken);
        for prompt in [
            "  day (text) [monday]: ",
            "  gift (y/n) [n]: ",
            "  how (one of air, sea) [sea]: ",
            "  parcels (integer) [2]: ",
            "  to (any of a, b, with commas between) [a, b]: ",
        ] {
            assert!(screen.contains(prompt), "{prompt}: {screen}");
        }
        let other = json!({"day": "friday", "gift": true, "how": "air", "parcels": 1, "to": ["b"]});
        check(schema(), "friday\ny\nair\n1\nb\n", other);
    }

    /// Spec: A3. What would be refused, or cannot be seen, is not offered.
    #[test]
    fn unfit_default_is_not_offered() {
        for property in [
            json!({"type": "integer", "default": "many"}),
            json!({"type": "integer", "default": 0, "minimum": 1}),
            json!({"enum": ["air", "sea"], "default": "rail"}),
            json!({"type": "string", "default": " "}),
            json!({"type": "boolean", "default": null}),
        ] {
            let screen = check(of(json!({"field": property})), "\n", json!({}));
            assert!(screen.contains(", optional): ") && !screen.contains('['), "{screen}");
        }
    }

    /// Spec: A3
    #[test]
    fn typed_numbers_are_kept_exactly() {
        let amount = || of(json!({"amount": {"type": "number"}}));
        let screen = check(amount(), "0.1234567890123456789\n12.5\n", json!({"amount": 12.5}));
        assert!(screen.contains("at most 15 digits"), "{screen}");
        check(
            amount(),
            "18446744073709551615\n",
            json!({"amount": 18_446_744_073_709_551_615_u64}),
        );
        check(amount(), "123456789012345680000.0\n1e300\n", json!({"amount": 1e300}));
    }

    /// Spec: A3
    #[test]
    fn choices_are_shown_with_titles() {
        let titled = of(json!({"how": {"type": "string", "oneOf": [
            {"const": "a", "title": "by air\u{1b}[2J"}, {"const": "s", "title": "by sea"},
        ]}}));
        let screen = check(titled.clone(), "rail\nby sea\n", json!({"how": "s"}));
        let prompt = "how (one of a (by air\\u001b[2J), s (by sea), optional): ";
        assert!(screen.contains(prompt), "{screen}");
        assert!(screen.contains("please give one of the values: a, s\n"), "{screen}");
        check(titled, "a\n", json!({"how": "a"}));
        let named =
            of(json!({"how": {"type": "string", "enum": ["a", "s"], "enumNames": ["air", "sea"]}}));
        check(named, "sea\n", json!({"how": "s"}));
        let several = of(json!({"how": {"type": "array", "minItems": 2,
            "items": {"anyOf": [{"const": "a", "title": "air"}, {"const": "s", "title": "sea"}]}}}));
        let screen = check(several, "a\na, rail\na, sea\n", json!({"how": ["a", "s"]}));
        assert_eq!(screen.matches("with commas between, optional): ").count(), 3, "{screen}");
    }

    /// Spec: A3. A value is refused where it was typed; what fields have to be together, behind the last.
    #[test]
    fn misfit_is_told_and_asked_again() {
        let mut schema = of(json!({
            "from": {"type": "integer", "minimum": 1, "maximum": 9},
            "until": {"type": "integer"},
        }));
        let screen = check(schema.clone(), "0\n12\n3\n\n", json!({"from": 3}));
        assert_eq!(screen.matches("  from (integer, optional): ").count(), 3, "{screen}");
        assert!(screen.contains("at least 1") && screen.contains("at most 9"), "{screen}");
        schema["dependentRequired"] = json!({"from": ["until"]});
        let screen = check(schema, "3\n\n3\n5\n", json!({"from": 3, "until": 5}));
        assert_eq!(screen.matches("  until (integer, optional): ").count(), 2, "{screen}");
    }
}
