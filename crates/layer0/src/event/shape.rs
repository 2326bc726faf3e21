//! The types of payload fields, for text that names fields.

mod nested;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Number, Value};

use crate::approvers::Approvers;
use crate::code::Code;
use crate::event::{Hash, JournalKind, Verdict, WaitFor};
use crate::failure::Effect;
use crate::id::{ApprovalId, CallId, ErrorId, ResultId, RunId, SessionId};
use crate::json_text::JsonText;
use crate::message::{ProviderState, StopReason, Transcript};
use crate::stop::Outcome;
use crate::time::Timestamp;

/// The JSON type of a payload field. Every field may also be null or absent.
///
/// ```
/// use layer0::event::{Shape, event_fields};
///
/// let fields = event_fields("tool.responded").expect("it is an event type");
/// let (_, error) = fields.iter().find(|(name, _)| *name == "error").expect("it has this field");
/// let Shape::Object(inside) = error else { panic!("it is an object") };
/// assert!(inside.contains(&("reason", Shape::Text)));
/// assert_eq!(event_fields("tool.dreamt"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// Any JSON, of any depth.
    Any,
    /// `true` or `false`.
    Boolean,
    /// An integer from 0 on.
    Count,
    /// An array of values of this shape.
    List(&'static Self),
    /// An object with any keys, and values of this shape.
    Map(&'static Self),
    /// A number.
    Number,
    /// An object with these fields.
    Object(&'static [(&'static str, Self)]),
    /// A string.
    Text,
    /// A string with a time in RFC 3339.
    Time,
}

/// A type with a known JSON shape.
pub(crate) trait Shaped {
    const SHAPE: Shape;
}

/// Returns the name of a field in JSON.
pub(crate) const fn json_name(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', name @ ..] => match str::from_utf8(name) {
            Ok(name) => name,
            Err(_) => field,
        },
        _ => field,
    }
}

macro_rules! shape {
    ($($shape:ident: $($kind:ty),* ;)*) => {
        $($(
            impl Shaped for $kind {
                const SHAPE: Shape = Shape::$shape;
            }
        )*)*
    };
}

shape! {
    Any: JsonText, ProviderState, Transcript, Value;
    Boolean: bool;
    Count: u16, u32, u64;
    Number: f64, Number;
    Text: str, String, Hash, Code, Effect, Outcome, StopReason, Verdict, WaitFor, JournalKind, ApprovalId,
        CallId, ErrorId, ResultId, RunId, SessionId;
    Time: Timestamp;
}

impl<T: Shaped> Shaped for Option<T> {
    const SHAPE: Shape = T::SHAPE;
}

impl<T: Shaped> Shaped for Box<T> {
    const SHAPE: Shape = T::SHAPE;
}

impl<T: Shaped + ?Sized> Shaped for Arc<T> {
    const SHAPE: Shape = T::SHAPE;
}

impl<T: Shaped> Shaped for [T] {
    const SHAPE: Shape = Shape::List(&T::SHAPE);
}

impl<T: Shaped> Shaped for Vec<T> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);
}

impl<V: Shaped> Shaped for BTreeMap<String, V> {
    const SHAPE: Shape = Shape::Map(&V::SHAPE);
}

impl Shaped for Approvers {
    const SHAPE: Shape = Shape::List(&Shape::Text);
}
