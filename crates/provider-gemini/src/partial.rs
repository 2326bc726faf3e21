//! Arguments that are streamed value by value, each with its JSON path.

use backstop_provider_http::lenient;
use layer0::text::replace_lone_surrogates;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The maximum depth of a path, so that a record can hold the arguments.
const MAX_DEPTH: usize = 100;

/// The most fields of an object, as each piece is matched with them.
const MAX_FIELDS: usize = 4096;

/// A piece of a call's arguments.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePiece {
    #[serde(default, deserialize_with = "lenient::text_or_empty")]
    json_path: String,
    string_value: Option<String>,
    number_value: Option<Box<RawValue>>,
    bool_value: Option<bool>,
}

impl WirePiece {
    /// Returns the value as JSON, unless it is a text.
    fn json(&self) -> Option<String> {
        let number = self.number_value.as_ref().map(|number| number.get().to_owned());
        number.or_else(|| Some(self.bool_value?.to_string()))
    }
}

/// The arguments so far.
#[derive(Debug, Default)]
pub(crate) struct PartialArguments {
    root: Node,
    /// The pieces without a place in the arguments, as they were received.
    misfits: String,
    /// The number of bytes received.
    taken: usize,
}

#[derive(Debug, Default)]
enum Node {
    #[default]
    Empty,
    Fields(Vec<(String, Self)>),
    Items(Vec<Self>),
    Text(String),
    /// JSON as it was written.
    Json(String),
}

impl PartialArguments {
    /// Adds a list of pieces.
    pub(crate) fn take(&mut self, pieces: &RawValue) {
        self.taken += pieces.get().len();
        let text = replace_lone_surrogates(pieces.get());
        let known: Option<Vec<WirePiece>> = serde_json::from_str(&text).ok();
        let fits = known.is_some_and(|known| known.into_iter().all(|piece| self.add(piece)));
        if !fits {
            self.misfits.push_str(pieces.get());
        }
    }

    /// Returns an upper bound of the bytes held.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.taken
    }

    /// Returns the arguments as a JSON string with their text, as other protocols send them.
    pub(crate) fn into_text(self) -> String {
        quote_json(&self.into_json())
    }

    /// Returns the arguments as JSON. Pieces without a place are appended, which makes it invalid.
    fn into_json(self) -> String {
        let mut json = String::new();
        match self.root {
            Node::Empty => json.push_str("{}"),
            root => root.write(&mut json),
        }
        json + &self.misfits
    }

    fn add(&mut self, piece: WirePiece) -> bool {
        let Some(node) = self.root.at(&piece.json_path) else { return false };
        match (node, piece) {
            (Node::Text(text), WirePiece { string_value: Some(more), .. }) => text.push_str(&more),
            (node @ Node::Empty, WirePiece { string_value: Some(text), .. }) => {
                *node = Node::Text(text);
            }
            (node, piece) => match (node, piece.json()) {
                // The piece only announces a value, which may be null.
                (_, None) => return piece.string_value.is_none(),
                (node @ Node::Empty, Some(json)) => *node = Node::Json(json),
                (Node::Json(known), Some(json)) => return *known == json,
                (Node::Fields(_) | Node::Items(_) | Node::Text(_), Some(_)) => return false,
            },
        }
        true
    }
}

impl Node {
    /// Returns the node at a path such as `$.list[0].name`, which is created if it is missing;
    /// `None` if the path is invalid, or leads through a value.
    fn at(&mut self, path: &str) -> Option<&mut Self> {
        let mut rest = path.strip_prefix('$')?;
        let mut node = self;
        for _ in 0..MAX_DEPTH {
            if rest.is_empty() {
                return Some(node);
            }
            let (step, behind) = PathStep::read(rest)?;
            node = node.child(step)?;
            rest = behind;
        }
        None
    }

    /// Returns the node of a step; `None` if there is none, or if there would be too many.
    fn child(&mut self, step: PathStep<'_>) -> Option<&mut Self> {
        match step {
            PathStep::Field(name) => {
                if matches!(self, Self::Empty) {
                    *self = Self::Fields(Vec::new());
                }
                let Self::Fields(fields) = self else { return None };
                let known = fields.iter().rposition(|(known, _)| known == name);
                let at = known.unwrap_or(fields.len());
                if at == fields.len() && at < MAX_FIELDS {
                    fields.push((name.to_owned(), Self::Empty));
                }
                fields.get_mut(at).map(|(_, node)| node)
            }
            PathStep::Item(at) => {
                if matches!(self, Self::Empty) {
                    *self = Self::Items(Vec::new());
                }
                let Self::Items(items) = self else { return None };
                if at == items.len() {
                    items.push(Self::Empty);
                }
                items.get_mut(at)
            }
        }
    }

    fn write(&self, json: &mut String) {
        match self {
            Self::Empty => json.push_str("null"),
            Self::Json(value) => json.push_str(value),
            Self::Text(text) => json.push_str(&quote_json(text)),
            Self::Fields(fields) => {
                json.push('{');
                for (at, (name, node)) in fields.iter().enumerate() {
                    json.push_str(if at > 0 { "," } else { "" });
                    json.push_str(&quote_json(name));
                    json.push(':');
                    node.write(json);
                }
                json.push('}');
            }
            Self::Items(items) => {
                json.push('[');
                for (at, node) in items.iter().enumerate() {
                    json.push_str(if at > 0 { "," } else { "" });
                    node.write(json);
                }
                json.push(']');
            }
        }
    }
}

fn quote_json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// One step of a path.
enum PathStep<'a> {
    Field(&'a str),
    Item(usize),
}

impl<'a> PathStep<'a> {
    /// Reads the first step of a path; returns the rest of the path with it.
    fn read(path: &'a str) -> Option<(Self, &'a str)> {
        if let Some(name) = path.strip_prefix('.') {
            let end = name.find(['.', '[']).unwrap_or(name.len());
            return (end > 0).then(|| (Self::Field(&name[..end]), &name[end..]));
        }
        let inside = path.strip_prefix('[')?;
        for quote in ['\'', '"'] {
            if let Some(name) = inside.strip_prefix(quote) {
                let (name, behind) = name.split_once(quote)?;
                return Some((Self::Field(name), behind.strip_prefix(']')?));
            }
        }
        let (index, behind) = inside.split_once(']')?;
        Some((Self::Item(index.parse().ok()?), behind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_assembled_by_their_paths() {
        #[track_caller]
        fn check(lists: &[&str], expected: &str) {
            let mut arguments = PartialArguments::default();
            for list in lists {
                arguments.take(&RawValue::from_string((*list).to_owned()).unwrap());
            }
            assert_eq!(arguments.into_json(), expected, "{lists:?}");
        }
        check(&[], "{}");
        check(
            &[
                r#"[{"jsonPath":"$.to","stringValue":"Bo","willContinue":true}]"#,
                r#"[{"jsonPath":"$.to","stringValue":"nn"},{"jsonPath":"$.amount","numberValue":3.10}]"#,
                r#"[{"jsonPath":"$.tags[0]","stringValue":"\"a"},{"jsonPath":"$.tags[1].x","boolValue":true}]"#,
                r#"[{"jsonPath":"$['a b']","nullValue":"NULL_VALUE"}]"#,
            ],
            r#"{"to":"Bonn","amount":3.10,"tags":["\"a",{"x":true}],"a b":null}"#,
        );
        // Half a character, whose other half does not follow.
        check(&[r#"[{"jsonPath":"$.to","stringValue":"a\ud83d"}]"#], "{\"to\":\"a\u{fffd}\"}");
        check(
            &[
                r#"[{"jsonPath":"$.to","willContinue":true}]"#,
                r#"[{"jsonPath":"$.to","stringValue":"Bonn"},{"jsonPath":"$.to"}]"#,
            ],
            r#"{"to":"Bonn"}"#,
        );
        for contradictory in [
            [r#"{"jsonPath":"$.x","numberValue":1}"#, r#"{"jsonPath":"$.x","stringValue":"a"}"#],
            [r#"{"jsonPath":"$.x","numberValue":1}"#, r#"{"jsonPath":"$.x","numberValue":2}"#],
            [r#"{"jsonPath":"$.x","stringValue":"a"}"#, r#"{"jsonPath":"$.x","boolValue":true}"#],
            [r#"{"jsonPath":"$.x.y","stringValue":"a"}"#, r#"{"jsonPath":"$.x","boolValue":true}"#],
            [
                r#"{"jsonPath":"$.x[0]","stringValue":"a"}"#,
                r#"{"jsonPath":"$.x","stringValue":"b"}"#,
            ],
        ] {
            let mut arguments = PartialArguments::default();
            let lists = contradictory.map(|piece| format!("[{piece}]"));
            for list in lists.clone() {
                arguments.take(&RawValue::from_string(list).unwrap());
            }
            assert!(arguments.into_json().ends_with(&lists[1]), "{contradictory:?}");
        }
        for misfit in [
            r#"[{"jsonPath":"$.x[7]","stringValue":"a"}]"#,
            r#"[{"jsonPath":"x","stringValue":"a"}]"#,
            r#"[{"jsonPath":"$..x","stringValue":"a"}]"#,
            "{}",
        ] {
            let mut arguments = PartialArguments::default();
            arguments.take(&RawValue::from_string(misfit.to_owned()).unwrap());
            assert!(arguments.into_json().ends_with(misfit), "{misfit}");
        }
    }
}
