//! Checks that some event can match a pattern.

use layer0::event::Shape;

use crate::pattern::condition::Comparison;
use crate::pattern::contradiction;
use crate::pattern::error::{PatternError, shorten};
use crate::pattern::path::{DATA, EnvelopeField, Missing, Path};
use crate::pattern::reader::{ParsedCondition, ParsedPattern};
use crate::pattern::wanted::nearest;

/// Returns the types of the events that can match.
pub(crate) fn check_pattern(
    written: &mut ParsedPattern,
) -> Result<Vec<&'static str>, PatternError> {
    let named = written.wanted.types(written.column)?;
    for placed in &mut written.conditions {
        let shapes = shapes(placed, &named);
        if shapes.is_empty() {
            return Err(unknown_field(written.wanted.to_string(), placed, &named));
        }
        if shapes.contains(&Shape::Time) {
            placed.condition.operand.take_as_time();
        }
        let mut misfits = shapes.iter().map(|shape| misfit(placed, *shape));
        if let Some(Some(first)) = misfits.clone().next()
            && misfits.all(|misfit| misfit.is_some())
        {
            return Err(first);
        }
    }
    let types: Vec<&str> = named
        .iter()
        .copied()
        .filter(|event_type| written.conditions.iter().all(|placed| can_hold(placed, event_type)))
        .collect();
    if types.is_empty() {
        return Err(no_type(written, &named));
    }
    contradiction::refuse(&written.conditions, &types)?;
    Ok(types)
}

/// Returns the shapes of the field in those types that have it.
fn shapes(placed: &ParsedCondition, types: &[&str]) -> Vec<Shape> {
    let found = types.iter().filter_map(|one| placed.condition.path.found_in(one).ok());
    found.map(|found| found.shape).collect()
}

/// Returns whether a condition can hold for an event of a type.
fn can_hold(placed: &ParsedCondition, event_type: &str) -> bool {
    match (&placed.condition.path, placed.condition.path.found_in(event_type)) {
        (Path::Envelope(EnvelopeField::Type), _) => placed.condition.holds_for(&event_type.into()),
        (_, Ok(found)) => misfit(placed, found.shape).is_none(),
        // A missing field is not equal to any value.
        (_, Err(_)) => placed.condition.operator == Comparison::NotEqual,
    }
}

/// Returns the error of a comparison that a value of this shape does not support, if any.
fn misfit(placed: &ParsedCondition, shape: Shape) -> Option<PatternError> {
    let condition = &placed.condition;
    let (path, operand) = (shorten(&condition.path.to_string()), &condition.operand);
    let is_wild = operand.glob.exact().is_none();
    let expected = match (shape, condition.operator.is_order()) {
        (Shape::Object(fields), _) => {
            if operand.glob.is_any() && !condition.operator.is_order() {
                return None;
            }
            let first = fields.first().map_or("…", |(name, _)| name);
            let hint = format!("name a field of it, such as `{path}.{first}`, or write `{path}=*`");
            return Some(impossible(placed, format!("`{path}` is an object"), Some(hint)));
        }
        (Shape::Map(_), _) if !operand.glob.is_any() || condition.operator.is_order() => {
            let hint = format!("name a field of it, as in `{path}.name`, or write `{path}=*`");
            return Some(impossible(placed, format!("`{path}` is an object"), Some(hint)));
        }
        (Shape::Text | Shape::Boolean, true) => {
            let what = if shape == Shape::Text { "a text" } else { "`true` or `false`" };
            let operator = condition.operator.as_str();
            let why = format!("`{path}` is {what}, which `{operator}` does not compare");
            return Some(impossible(placed, why, None));
        }
        (Shape::Time, true) if operand.time.is_none() => "a time, such as `2026-01-01T00:00:00Z`",
        (Shape::Time, false) if operand.time.is_none() && !is_wild => {
            "a time, such as `2026-01-01T00:00:00Z`"
        }
        (Shape::Any | Shape::Count | Shape::Number, true) if operand.number.is_none() => "a number",
        (Shape::Number, false) if operand.number.is_none() && !is_wild => "a number",
        (Shape::Count, false) if !is_wild && !is_count(placed) => "a whole number",
        (Shape::Boolean, false) if !["true", "false"].iter().any(|it| operand.glob.matches(it)) => {
            "`true` or `false`"
        }
        _ => return None,
    };
    let found = format!("`{}`", shorten(&operand.glob.to_string()));
    let (column, expected) = (placed.value_column, expected.to_owned());
    Some(PatternError::Syntax { column, expected, found, hint: None })
}

fn is_count(placed: &ParsedCondition) -> bool {
    placed.condition.operand.number.is_some_and(|number| number.floor() == number.ceil())
}

fn impossible(placed: &ParsedCondition, why: String, hint: Option<String>) -> PatternError {
    PatternError::Impossible { column: placed.column, why, hint }
}

fn no_type(written: &ParsedPattern, named: &[&str]) -> PatternError {
    let mut left = named.to_vec();
    let last = written.conditions.iter().find(|placed| {
        left.retain(|event_type| can_hold(placed, event_type));
        left.is_empty()
    });
    let column = last.map_or(written.column, |placed| placed.column);
    let conditions: Vec<String> =
        written.conditions.iter().map(|placed| placed.condition.to_string()).collect();
    let why = format!(
        "of `{}`, no event type fits `{}`",
        written.wanted,
        shorten(&conditions.join(", "))
    );
    PatternError::Impossible { column, why, hint: None }
}

fn unknown_field(event_type: String, placed: &ParsedCondition, types: &[&str]) -> PatternError {
    let path = &placed.condition.path;
    let missing = types.iter().filter_map(|one| path.found_in(one).err());
    let Some(Missing { depth, known }) = furthest(missing) else {
        return impossible(placed, "its field is in no event".to_owned(), None);
    };
    let names = match path {
        Path::Data(names) => names.as_slice(),
        Path::Envelope(_) => &[],
    };
    let name = names.get(depth).map_or("", String::as_str);
    let inside = |known: &str| match depth {
        0 => known.to_owned(),
        _ => format!("{}.{known}", shorten(&path.format_prefix(depth))),
    };
    let around = EnvelopeField::names().filter(|_| depth == 0);
    let hint = match nearest(name, known.iter().copied().chain(around)) {
        Some(meant) => format!("did you mean `{}`?", inside(meant)),
        None if known.is_empty() => {
            format!("`{}` has no fields", shorten(&path.format_prefix(depth)))
        }
        None if depth == 0 && known.contains(&DATA) => {
            format!(
                "write `{DATA}.{DATA}.{}` for a field of what it carries as `{DATA}`",
                shorten(name)
            )
        }
        None => {
            let known: Vec<String> = known.iter().map(|known| inside(known)).collect();
            format!("known here: {}", known.join(", "))
        }
    };
    let field = shorten(&path.format_prefix(depth + 1));
    PatternError::UnknownField { column: placed.column, event_type, field, hint: Some(hint) }
}

/// Joins the known names at the deepest level that any type reaches.
fn furthest(missing: impl Iterator<Item = Missing>) -> Option<Missing> {
    missing.reduce(|mut best, mut other| {
        if other.depth > best.depth {
            return other;
        }
        if other.depth == best.depth {
            other.known.retain(|known| !best.known.contains(known));
            best.known.append(&mut other.known);
        }
        best
    })
}
