//! The field of a condition.

use std::fmt;

use layer0::event::{Shape, event_fields};
use layer0::id::RunId;
use serde_json::Value;

use crate::Record;
use crate::pattern::glob::write_escaped;

/// A field of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Path {
    /// A field in `data`: names, the outermost first; at least one.
    Data(Vec<String>),
    Envelope(EnvelopeField),
}

/// A field of the envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnvelopeField {
    Run,
    Seq,
    At,
    Type,
    Actor,
    CausedBy,
    Schema,
}

/// Name of the payload in the envelope.
pub(crate) const DATA: &str = "data";

const FIELDS: [(&str, EnvelopeField); 7] = [
    ("run", EnvelopeField::Run),
    ("seq", EnvelopeField::Seq),
    ("at", EnvelopeField::At),
    ("type", EnvelopeField::Type),
    ("actor", EnvelopeField::Actor),
    ("caused_by", EnvelopeField::CausedBy),
    ("schema", EnvelopeField::Schema),
];

impl EnvelopeField {
    pub(crate) fn find(name: &str) -> Option<Self> {
        FIELDS.iter().find(|(field, _)| *field == name).map(|(_, field)| *field)
    }

    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        FIELDS.iter().map(|(name, _)| *name)
    }

    pub(crate) const fn shape(self) -> Shape {
        match self {
            Self::Run | Self::Type | Self::Actor => Shape::Text,
            Self::Seq | Self::CausedBy | Self::Schema => Shape::Count,
            Self::At => Shape::Time,
        }
    }

    /// Returns whether the field may be null.
    pub(crate) const fn may_be_null(self) -> bool {
        matches!(self, Self::CausedBy)
    }

    pub(crate) fn value_in(self, run: &RunId, record: &Record) -> Value {
        match self {
            Self::Run => run.as_str().into(),
            Self::Seq => record.seq.into(),
            Self::At => record.at.to_string().into(),
            Self::Type => (&*record.event_type).into(),
            Self::Actor => record.actor.as_str().into(),
            Self::CausedBy => record.caused_by.into(),
            Self::Schema => record.schema.into(),
        }
    }
}

/// A field in events of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventField {
    /// Shape of a value; for a list, of each element.
    pub(crate) shape: Shape,
    /// Whether there can be more than one value.
    pub(crate) is_many: bool,
}

/// The part of a field's path that events of a type have.
pub(crate) struct Missing {
    /// Number of names that exist.
    pub(crate) depth: usize,
    /// The names that exist instead of the next one.
    pub(crate) known: Vec<&'static str>,
}

impl Path {
    /// Returns the field in events of a type.
    pub(crate) fn found_in(&self, event_type: &str) -> Result<EventField, Missing> {
        let names = match self {
            Self::Data(names) => names,
            Self::Envelope(field) => {
                return Ok(EventField { shape: field.shape(), is_many: false });
            }
        };
        let mut shape = Shape::Object(event_fields(event_type).unwrap_or_default());
        let mut is_many = false;
        for (depth, name) in names.iter().enumerate() {
            shape = match shape {
                Shape::Any => shape,
                Shape::Map(inside) => *inside,
                Shape::Object(fields) => match fields.iter().find(|(field, _)| field == name) {
                    Some((_, inside)) => *inside,
                    None => {
                        let known = fields.iter().map(|(field, _)| *field).collect();
                        return Err(Missing { depth, known });
                    }
                },
                _ => return Err(Missing { depth, known: Vec::new() }),
            };
            while let Shape::List(element) = shape {
                (shape, is_many) = (*element, true);
            }
        }
        Ok(EventField { shape, is_many: is_many || shape == Shape::Any })
    }

    /// Returns the first `names` names of the field, as written.
    pub(crate) fn format_prefix(&self, names: usize) -> String {
        match self {
            Self::Data(all) => Self::Data(all.iter().take(names).cloned().collect()).to_string(),
            Self::Envelope(_) => self.to_string(),
        }
    }
}

/// Returns whether the value at this path, or one of several, passes `fits`.
pub(crate) fn any_inside(value: &Value, names: &[String], fits: &impl Fn(&Value) -> bool) -> bool {
    match (value, names) {
        (Value::Array(elements), _) => {
            elements.iter().any(|element| any_inside(element, names, fits))
        }
        (value, []) => fits(value),
        (Value::Object(fields), [name, deeper @ ..]) => {
            fields.get(name).is_some_and(|inside| any_inside(inside, deeper, fits))
        }
        _ => false,
    }
}

/// Returns whether a character is allowed in a name without quotes.
pub(crate) const fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = match self {
            Self::Data(names) => names,
            Self::Envelope(field) => {
                let name = FIELDS.iter().find(|(_, named)| named == field);
                return f.write_str(name.map_or("", |(name, _)| name));
            }
        };
        let first = names.first().map_or("", String::as_str);
        if first == DATA || EnvelopeField::find(first).is_some() {
            write!(f, "{DATA}.")?;
        }
        for (place, name) in names.iter().enumerate() {
            f.write_str(if place > 0 { "." } else { "" })?;
            if !name.is_empty() && name.chars().all(is_name) {
                f.write_str(name)?;
                continue;
            }
            f.write_str("\"")?;
            name.chars().try_for_each(|c| write_escaped(f, c))?;
            f.write_str("\"")?;
        }
        Ok(())
    }
}
