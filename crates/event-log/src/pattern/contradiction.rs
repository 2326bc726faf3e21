//! Conditions on one field that cannot hold together.

use layer0::event::{Actor, Shape};
use serde_json::{Number, Value};

use crate::pattern::condition::{Comparison, PatternCondition};
use crate::pattern::error::{PatternError, shorten};
use crate::pattern::numeral::Numeral;
use crate::pattern::path::{EnvelopeField, EventField, Path};
use crate::pattern::reader::ParsedCondition;

/// Refuses a condition that clearly contradicts the conditions before it.
pub(crate) fn refuse(conditions: &[ParsedCondition], types: &[&str]) -> Result<(), PatternError> {
    for (index, placed) in conditions.iter().enumerate() {
        let path = &placed.condition.path;
        let same: Vec<&PatternCondition> = conditions[..=index]
            .iter()
            .map(|placed| &placed.condition)
            .filter(|condition| condition.path == *path)
            .collect();
        let found: Vec<EventField> =
            types.iter().filter_map(|one| path.found_in(one).ok()).collect();
        // If no type has the field, all of the conditions hold for a missing field.
        if !found.is_empty() && found.iter().all(|found| is_empty(path, *found, &same)) {
            let all: Vec<String> = same.iter().map(ToString::to_string).collect();
            let (path, all) = (shorten(&path.to_string()), shorten(&all.join(", ")));
            let why = format!("no value of `{path}` fits `{all}`");
            return Err(PatternError::Impossible { column: placed.column, why, hint: None });
        }
    }
    Ok(())
}

/// Returns whether no value satisfies all of the conditions.
fn is_empty(path: &Path, found: EventField, same: &[&PatternCondition]) -> bool {
    let (refused, wanted): (Vec<&PatternCondition>, Vec<&PatternCondition>) =
        same.iter().partition(|condition| condition.operator == Comparison::NotEqual);
    let field = match path {
        Path::Data(_) => None,
        Path::Envelope(field) => Some(*field),
    };
    if wanted.is_empty() && field.is_none_or(EnvelopeField::may_be_null) {
        return false;
    }
    if refused.iter().any(|refused| refused.operand.glob.is_any() || is_wanted(&wanted, refused)) {
        return true;
    }
    if found.is_many {
        return false;
    }
    let all_hold = |value: &Value| same.iter().all(|condition| condition.holds_for(value));
    match (found.shape, field) {
        (Shape::Boolean, _) => ![true, false].iter().any(|yes| all_hold(&Value::from(*yes))),
        (_, Some(EnvelopeField::Actor)) => {
            !Actor::ALL.iter().any(|actor| all_hold(&Value::from(actor.as_str())))
        }
        (shape, field) => {
            let exact = wanted.iter().filter_map(|condition| exact(condition, shape));
            let least = if field.is_some() { 1 } else { 0 };
            exact.into_iter().any(|value| !all_hold(&value))
                || is_empty_range(&wanted, shape, least)
        }
    }
}

/// Returns whether a condition requires a value that `refused` excludes.
fn is_wanted(wanted: &[&PatternCondition], refused: &PatternCondition) -> bool {
    wanted.iter().filter(|wanted| wanted.operator == Comparison::Equal).any(|wanted| {
        let (own, refused) = (&wanted.operand.glob, &refused.operand.glob);
        own == refused || own.exact().is_some_and(|text| refused.matches(text))
    })
}

/// Returns the only value that satisfies a condition, if there is just one.
fn exact(condition: &PatternCondition, shape: Shape) -> Option<Value> {
    let text = condition.operand.glob.exact()?;
    match (condition.operator, shape) {
        (Comparison::Equal, Shape::Count | Shape::Number) => {
            serde_json::from_str::<Number>(text).ok().map(Value::Number)
        }
        (Comparison::Equal, Shape::Text | Shape::Time) => Some(text.into()),
        _ => None,
    }
}

/// Returns whether no number or time satisfies all bounds. A count is at least `least`.
fn is_empty_range(wanted: &[&PatternCondition], shape: Shape, least: i128) -> bool {
    let bounds = wanted.iter().filter_map(|condition| {
        let bound = match shape {
            Shape::Time => Numeral::Whole(condition.operand.time?.as_millis().into()),
            _ => condition.operand.number?,
        };
        Some((condition.operator, bound))
    });
    match shape {
        Shape::Count => is_empty_between(bounds, least),
        Shape::Time => is_empty_between(bounds, i128::MIN),
        Shape::Number => {
            let bounds: Vec<_> = bounds.collect();
            bounds.iter().any(|low| bounds.iter().any(|high| is_above(*low, *high)))
        }
        _ => false,
    }
}

/// Returns whether no whole number satisfies all bounds.
fn is_empty_between(bounds: impl Iterator<Item = (Comparison, Numeral)>, least: i128) -> bool {
    let (mut low, mut high) = (least, i128::MAX);
    for (operator, bound) in bounds {
        match operator {
            Comparison::Equal => (low, high) = (low.max(bound.ceil()), high.min(bound.floor())),
            Comparison::Greater => low = low.max(bound.floor().saturating_add(1)),
            Comparison::GreaterOrEqual => low = low.max(bound.ceil()),
            Comparison::Less => high = high.min(bound.ceil().saturating_sub(1)),
            Comparison::LessOrEqual => high = high.min(bound.floor()),
            Comparison::NotEqual => {}
        }
    }
    low > high
}

/// Returns whether no number satisfies both bounds.
fn is_above((low, bottom): (Comparison, Numeral), (high, top): (Comparison, Numeral)) -> bool {
    match (low, high) {
        (Comparison::GreaterOrEqual, Comparison::LessOrEqual) => bottom > top,
        (
            Comparison::Greater | Comparison::GreaterOrEqual,
            Comparison::Less | Comparison::LessOrEqual,
        ) => bottom >= top,
        _ => false,
    }
}
