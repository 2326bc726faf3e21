//! Conditions of a pattern on a field.

use std::fmt;

use layer0::Timestamp;
use layer0::id::RunId;
use serde_json::Value;

use crate::Record;
use crate::pattern::glob::Glob;
use crate::pattern::numeral::Numeral;
use crate::pattern::path::{Path, any_inside};

/// A field, an operator and a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PatternCondition {
    pub(crate) path: Path,
    pub(crate) operator: Comparison,
    pub(crate) operand: Operand,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The value that a field is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) glob: Glob,
    /// The value as a number, if it is one without wildcards.
    pub(crate) number: Option<Numeral>,
    /// The value as a time, if the field holds times.
    pub(crate) time: Option<Timestamp>,
}

impl Comparison {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// Returns whether the operator compares order.
    pub(crate) const fn is_order(self) -> bool {
        !matches!(self, Self::Equal | Self::NotEqual)
    }
}

impl Operand {
    pub(crate) fn new(glob: Glob) -> Self {
        let number = glob.exact().and_then(Numeral::parse);
        Self { glob, number, time: None }
    }

    /// Parses the value as a time, because the field holds times.
    pub(crate) fn take_as_time(&mut self) {
        self.time = self.glob.exact().and_then(|text| text.parse().ok());
    }

    /// Returns whether a value in a record is equal to this one.
    fn equals(&self, value: &Value) -> bool {
        match value {
            Value::Null | Value::Array(_) => false,
            Value::Object(_) => self.glob.is_any(),
            Value::Bool(yes) => self.glob.matches(if *yes { "true" } else { "false" }),
            Value::Number(number) => match (self.number, Numeral::from_number(number)) {
                (Some(own), Some(number)) => own == number,
                _ => self.glob.matches(&number.to_string()),
            },
            Value::String(text) => {
                let is_same = |own: Timestamp| text.parse().is_ok_and(|at: Timestamp| at == own);
                self.glob.matches(text) || self.time.is_some_and(is_same)
            }
        }
    }

    /// Returns whether a value in a record compares to this one as the operator requires.
    fn compares(&self, operator: Comparison, value: &Value) -> bool {
        let order = match value {
            Value::Number(number) => {
                Numeral::from_number(number).zip(self.number).map(|(value, own)| value.cmp(&own))
            }
            Value::String(text) => {
                let at = text.parse::<Timestamp>().ok();
                at.zip(self.time).map(|(at, own)| at.cmp(&own))
            }
            _ => None,
        };
        order.is_some_and(|order| match operator {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        })
    }
}

impl PatternCondition {
    /// Returns whether the condition is on the payload.
    pub(crate) const fn is_of_data(&self) -> bool {
        matches!(self.path, Path::Data(_))
    }

    /// Returns whether the condition holds for an envelope. A condition on the payload passes.
    pub(crate) fn holds_around(&self, run: &RunId, record: &Record) -> bool {
        match &self.path {
            Path::Data(_) => true,
            Path::Envelope(field) => self.holds_for(&field.value_in(run, record)),
        }
    }

    /// Returns whether the condition holds for a payload. A condition on the envelope passes.
    pub(crate) fn holds_in(&self, data: &Value) -> bool {
        match &self.path {
            Path::Data(names) => self.holds(data, names),
            Path::Envelope(_) => true,
        }
    }

    /// Returns whether the condition holds for the value of its field.
    pub(crate) fn holds_for(&self, value: &Value) -> bool {
        self.holds(value, &[])
    }

    fn holds(&self, value: &Value, names: &[String]) -> bool {
        let equals = |value: &Value| self.operand.equals(value);
        match self.operator {
            Comparison::Equal => any_inside(value, names, &equals),
            Comparison::NotEqual => !any_inside(value, names, &equals),
            order => any_inside(value, names, &|value| self.operand.compares(order, value)),
        }
    }
}

impl fmt::Display for PatternCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.path, self.operator.as_str(), self.operand.glob)
    }
}
