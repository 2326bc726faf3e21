//! The data that a person gives with an approval, asked for field by field where its schema is flat.

use std::io;

use backstop_tool::Schema;
use layer0::JsonText;
use serde_json::{Map, Value};

use super::escape;
use super::terminal::{Terminal, heard};

/// What is asked for.
pub(crate) struct Form {
    schema: Value,
    fields: Option<Vec<Field>>,
}

/// A property that one line says.
struct Field {
    name: String,
    kind: Kind,
    description: Option<String>,
    is_required: bool,
}

enum Kind {
    Boolean,
    Choice(Vec<Value>),
    Integer,
    Number,
    Text,
}

impl Form {
    /// Makes the form of a schema.
    pub(crate) fn of(schema: &JsonText) -> Self {
        let schema = schema.value();
        Self { fields: fields_of(&schema), schema }
    }

    /// Shows what is asked for, in lines that are escaped.
    pub(super) fn shown(&self) -> String {
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

    /// Asks for it until it fits; `None` where the person leaves, or the prompt is withdrawn.
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
            // Where the decision is taken, that is said.
            Err(_) => None,
        }
    }
}

impl Field {
    fn label(&self) -> String {
        let kind = match &self.kind {
            Kind::Boolean => "yes or no".to_owned(),
            Kind::Choice(values) => {
                let values: Vec<String> = values.iter().map(plain).collect();
                format!("one of {}", values.join(", "))
            }
            Kind::Integer => "integer".to_owned(),
            Kind::Number => "number".to_owned(),
            Kind::Text => "text".to_owned(),
        };
        let required = if self.is_required { "required" } else { "optional" };
        format!("{} ({kind}, {required})", self.name)
    }

    /// Reads what was typed; `Err` says what it has to be.
    fn read(&self, typed: &str) -> Result<Value, &'static str> {
        match &self.kind {
            Kind::Boolean => match typed.to_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(true.into()),
                "n" | "no" | "false" => Ok(false.into()),
                _ => Err("please answer y or n"),
            },
            Kind::Choice(values) => {
                let found = values.iter().find(|value| plain(value) == typed);
                found.cloned().ok_or("please give one of the values")
            }
            Kind::Integer => match serde_json::from_str(typed) {
                Ok(Value::Number(number)) if !number.is_f64() => Ok(number.into()),
                _ => Err("please give an integer"),
            },
            Kind::Number => match serde_json::from_str(typed) {
                Ok(Value::Number(number)) => Ok(number.into()),
                _ => Err("please give a number"),
            },
            Kind::Text => Ok(typed.into()),
        }
    }
}

/// Returns the fields of a flat object; `None` for anything else.
fn fields_of(schema: &Value) -> Option<Vec<Field>> {
    let properties = schema["properties"].as_object().filter(|some| !some.is_empty())?;
    if schema["type"] != "object" {
        return None;
    }
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let field = |(name, property): (&String, &Value)| {
        let kind = match (property["enum"].as_array(), property["type"].as_str()) {
            (Some(values), _)
                if values.iter().any(|value| value.is_array() || value.is_object()) =>
            {
                return None;
            }
            (Some(values), _) => Kind::Choice(values.clone()),
            (None, Some("boolean")) => Kind::Boolean,
            (None, Some("integer")) => Kind::Integer,
            (None, Some("number")) => Kind::Number,
            (None, Some("string")) => Kind::Text,
            (None, _) => return None,
        };
        let description = property["description"].as_str().map(str::to_owned);
        let is_required = required.iter().any(|required| *required == **name);
        Some(Field { name: name.clone(), kind, description, is_required })
    };
    properties.iter().map(field).collect()
}

fn ask_fields(fields: &[Field], terminal: &mut impl Terminal) -> io::Result<Option<Value>> {
    let mut given = Map::new();
    for field in fields {
        let label = escape::line(&field.label());
        loop {
            terminal.write(&format!("  {label}: "))?;
            let Some(typed) = heard(terminal)? else { return Ok(None) };
            if typed.is_empty() && !field.is_required {
                break;
            }
            if typed.is_empty() {
                terminal.write("  it is required\n")?;
                continue;
            }
            match field.read(&typed) {
                Ok(value) => {
                    given.insert(field.name.clone(), value);
                    break;
                }
                Err(why) => terminal.write(&format!("  {why}\n"))?,
            }
        }
    }
    Ok(Some(Value::Object(given)))
}

fn ask_json(terminal: &mut impl Terminal) -> io::Result<Option<Value>> {
    loop {
        terminal.write("  one line of JSON: ")?;
        let Some(typed) = heard(terminal)? else { return Ok(None) };
        match JsonText::parse(&typed) {
            Ok(json) => return Ok(Some(json.value())),
            Err(error) => terminal.write(&escape::text(&format!("  it is no JSON: {error}\n")))?,
        }
    }
}

/// Returns a value as a person writes it: text without its quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
