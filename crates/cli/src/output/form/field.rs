//! Fields of a form: their type, their default, and the value of a typed line.

use backstop_tool::Schema;
use serde_json::{Number, Value, json};

/// A property whose value fits on one line.
pub(super) struct FormField {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) is_required: bool,
    /// Value for an empty line.
    pub(super) default: Option<Value>,
    kind: FieldKind,
    /// Schema of an object with this property only.
    schema: Option<Schema>,
}

enum FieldKind {
    Boolean,
    Choice(Vec<FieldChoice>),
    Integer,
    Number,
    Several(Vec<FieldChoice>),
    Text,
}

/// A value to choose, and its title.
struct FieldChoice {
    value: Value,
    title: Option<String>,
}

impl FormField {
    /// Returns the field of a property; `None` if one line cannot express its value.
    pub(super) fn from_property(name: &str, property: &Value, is_required: bool) -> Option<Self> {
        let kind = FieldKind::from_property(property)?;
        let alone = json!({"type": "object", "properties": {name: property}});
        let mut field = Self {
            name: name.to_owned(),
            description: property["description"].as_str().map(str::to_owned),
            is_required,
            default: None,
            kind,
            schema: Schema::new(&alone).ok(),
        };
        // A default that would be refused is not offered.
        field.default = property
            .get("default")
            .filter(|value| !plain(value).trim().is_empty())
            .filter(|value| field.kind.takes(value) && field.misfit(value).is_none())
            .cloned();
        Some(field)
    }

    /// Returns the label: the type of the field, and in brackets its default.
    pub(super) fn label(&self) -> String {
        let (name, kind) = (&self.name, self.kind.describe());
        match (&self.default, self.is_required) {
            (Some(default), _) => format!("{name} ({kind}) [{}]", self.kind.format_value(default)),
            (None, true) => format!("{name} ({kind}, required)"),
            (None, false) => format!("{name} ({kind}, optional)"),
        }
    }

    /// Reads a typed line; `Err` describes the expected value.
    pub(super) fn read(&self, typed: &str) -> Result<Value, String> {
        let value = self.kind.read(typed)?;
        match self.misfit(&value) {
            Some(misfit) => Err(misfit),
            None => Ok(value),
        }
    }

    fn misfit(&self, value: &Value) -> Option<String> {
        let schema = self.schema.as_ref()?;
        schema.check_data(&json!({&self.name: value})).err().map(|misfit| misfit.to_string())
    }
}

impl FieldKind {
    fn from_property(property: &Value) -> Option<Self> {
        if let Some(choices) = choices(property) {
            return choices.map(Self::Choice);
        }
        match property["type"].as_str()? {
            "array" => {
                let choices = choices(&property["items"])??;
                // A comma separates two items.
                let is_split = choices.iter().any(|choice| plain(&choice.value).contains(','));
                (!is_split).then_some(Self::Several(choices))
            }
            "boolean" => Some(Self::Boolean),
            "integer" => Some(Self::Integer),
            "number" => Some(Self::Number),
            "string" => Some(Self::Text),
            _ => None,
        }
    }

    fn describe(&self) -> String {
        let listed = |choices: &[FieldChoice]| {
            choices.iter().map(FieldChoice::describe).collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::Boolean => "y/n".to_owned(),
            Self::Choice(choices) => format!("one of {}", listed(choices)),
            Self::Integer => "integer".to_owned(),
            Self::Number => "number".to_owned(),
            Self::Several(choices) => format!("any of {}, with commas between", listed(choices)),
            Self::Text => "text".to_owned(),
        }
    }

    /// Returns whether a typed line could have this value.
    fn takes(&self, value: &Value) -> bool {
        match self {
            Self::Boolean => value.is_boolean(),
            Self::Choice(choices) => choices.iter().any(|choice| choice.value == *value),
            Self::Integer => value.is_number() && !value.is_f64(),
            Self::Number => value.is_number(),
            Self::Several(choices) => value.as_array().is_some_and(|values| {
                values.iter().all(|value| choices.iter().any(|choice| choice.value == *value))
            }),
            Self::Text => value.is_string(),
        }
    }

    /// Returns the line for a value.
    fn format_value(&self, value: &Value) -> String {
        match (self, value) {
            (Self::Boolean, Value::Bool(yes)) => if *yes { "y" } else { "n" }.to_owned(),
            (Self::Several(_), Value::Array(values)) => {
                values.iter().map(plain).collect::<Vec<_>>().join(", ")
            }
            _ => plain(value),
        }
    }

    fn read(&self, typed: &str) -> Result<Value, String> {
        match self {
            Self::Boolean => match typed.to_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(true.into()),
                "n" | "no" | "false" => Ok(false.into()),
                _ => Err("please answer y or n".to_owned()),
            },
            Self::Choice(choices) => find_choice(choices, typed),
            Self::Integer => match serde_json::from_str(typed) {
                Ok(Value::Number(number)) if !number.is_f64() => Ok(number.into()),
                _ => Err("please give an integer".to_owned()),
            },
            Self::Number => match serde_json::from_str(typed) {
                Ok(Value::Number(number)) if is_exact(&number, typed) => Ok(number.into()),
                Ok(Value::Number(_)) => Err(format!(
                    "please give at most {EXACT_DIGITS} digits: more are not kept exactly"
                )),
                _ => Err("please give a number".to_owned()),
            },
            Self::Several(choices) => {
                let typed = typed.split(',').map(str::trim).filter(|one| !one.is_empty());
                typed.map(|one| find_choice(choices, one)).collect()
            }
            Self::Text => Ok(typed.into()),
        }
    }
}

/// The decimal digits that a 64-bit float always keeps (`DBL_DIG`).
const EXACT_DIGITS: usize = 15;

/// Returns whether a number keeps all typed digits.
fn is_exact(number: &Number, typed: &str) -> bool {
    let mantissa = typed.split(['e', 'E']).next().unwrap_or_default();
    let digits = mantissa.chars().filter(char::is_ascii_digit).count();
    !number.is_f64() || digits <= EXACT_DIGITS || number.to_string() == typed
}

impl FieldChoice {
    fn describe(&self) -> String {
        match &self.title {
            Some(title) => format!("{} ({title})", plain(&self.value)),
            None => plain(&self.value),
        }
    }
}

/// Finds the choice that was typed, by its value or else by its title.
fn find_choice(choices: &[FieldChoice], typed: &str) -> Result<Value, String> {
    let by_value = choices.iter().find(|choice| plain(&choice.value) == typed);
    let found =
        by_value.or_else(|| choices.iter().find(|choice| choice.title.as_deref() == Some(typed)));
    found.map(|choice| choice.value.clone()).ok_or_else(|| {
        let values: Vec<String> = choices.iter().map(|choice| plain(&choice.value)).collect();
        format!("please give one of the values: {}", values.join(", "))
    })
}

/// Returns the choices of a schema: `enum`, or alternatives of one value each. `None` if it lists no choices,
/// `Some(None)` if a line cannot express them.
fn choices(schema: &Value) -> Option<Option<Vec<FieldChoice>>> {
    let alternatives = || schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
    let choices: Option<Vec<FieldChoice>> = match (schema["enum"].as_array(), alternatives()) {
        (Some(values), _) => {
            let title = |at: usize| schema["enumNames"][at].as_str().map(str::to_owned);
            let choice = |(at, value): (usize, &Value)| FieldChoice {
                value: value.clone(),
                title: title(at),
            };
            Some(values.iter().enumerate().map(choice).collect())
        }
        (None, Some(alternatives)) => {
            let choice = |one: &Value| {
                let title = one["title"].as_str().map(str::to_owned);
                Some(FieldChoice { value: one.get("const")?.clone(), title })
            };
            alternatives.iter().map(choice).collect()
        }
        (None, None) => return None,
    };
    let is_flat = |choice: &FieldChoice| !choice.value.is_array() && !choice.value.is_object();
    Some(choices.filter(|choices| !choices.is_empty() && choices.iter().all(is_flat)))
}

/// Returns a value as a person writes it: text without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
