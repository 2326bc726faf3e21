//! Written values can be read again, even if they are very large.

use std::time::Duration;

use layer0::event::{EVENT_TYPES, EventKind, Shape, event_fields};
use layer0::failure::{Chain, ErrorText, Retry};
use layer0::{JsonText, Timestamp, ToolSpec};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

const DURATIONS: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_secs(3_600),
    Duration::from_millis(u64::MAX),
    Duration::from_secs(u64::MAX),
    Duration::MAX,
];

fn read_again<T: Serialize + DeserializeOwned>(written: &T) -> T {
    let text = serde_json::to_string(written).unwrap();
    let tree = serde_json::to_value(written).unwrap();
    let _: T = serde_json::from_value(tree).unwrap();
    let _: T = JsonText::from_value(written).unwrap().read().unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Spec: E11, R3
#[test]
fn durations_are_read_again() {
    for time in DURATIONS {
        let kept = time.min(Duration::from_millis(u64::MAX));
        let kept = kept - Duration::from_nanos(u64::from(kept.subsec_nanos() % 1_000_000));
        let tool = ToolSpec::new("t", "", json!({"type": "object"})).timeout(time);
        let tool = read_again(&tool.expires_after(time));
        assert_eq!((tool.timeout, tool.expires_after), (Some(kept), Some(kept)));
        assert_eq!(read_again(&Retry::After(time)), Retry::After(kept));
    }
}

/// Spec: E11
#[test]
fn moments_are_read_again() {
    let start = Timestamp::from_millis(0);
    for at in [i64::MIN, -1, 0, i64::MAX].map(Timestamp::from_millis) {
        assert_eq!(read_again(&at), at);
        assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
    }
    let last = start.after(Duration::MAX);
    assert_eq!(last.to_string(), "9999-12-30T22:00:00.000Z");
    assert_eq!("9999-12-30T22:00:00.999Z".parse::<Timestamp>().unwrap(), last);
}

/// Spec: E11, S9
#[test]
fn error_texts_are_bounded_where_they_are_read() {
    let texts: Vec<String> = (0..100_000).map(|depth| format!("cause {depth}")).collect();
    let read: ErrorText = serde_json::from_value(json!(texts)).unwrap();
    let kept = texts[..64].join(": ");
    assert_eq!(Chain(&read).to_string(), kept);
    assert_eq!(Chain(&read_again(&read)).to_string(), kept);
    assert_eq!(Chain(&read.caused_by(&read)).to_string(), kept);
    drop(read);
}

/// Spec: E11, L1
#[test]
fn extreme_payloads_are_read_again() {
    for event_type in EVENT_TYPES {
        let shape = Shape::Object(event_fields(event_type).unwrap());
        let kind = largest(event_type, shape);
        let text = serde_json::to_string(&kind).unwrap();
        assert_eq!(EventKind::decode(event_type, &text).unwrap(), kind, "{event_type}");
        let text = JsonText::from_value(&kind).unwrap();
        assert_eq!(EventKind::decode(event_type, text.get()).unwrap(), kind, "{event_type}");
    }
}

/// Returns a payload with the largest value of each field.
fn largest(event_type: &str, shape: Shape) -> EventKind {
    let mut draft = Draft::default();
    loop {
        (draft.text, draft.starts) = (String::new(), Vec::new());
        draft.write(event_type, shape);
        let error = match EventKind::decode(event_type, &draft.text) {
            Ok(kind) => return kind,
            Err(error) => error,
        };
        let source: &serde_json::Error =
            std::error::Error::source(&error).unwrap().downcast_ref().unwrap();
        let leaf = draft.starts.partition_point(|start| *start <= source.column()) - 1;
        draft.picks[leaf] += 1;
        assert!(draft.picks[leaf] < 8, "{error}: {source} in {}", draft.text);
    }
}

const DIGEST: &str = r#""ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff""#;

#[derive(Default)]
struct Draft {
    text: String,
    /// The start of each scalar value.
    starts: Vec<usize>,
    /// The index of each value among the values of its shape.
    picks: Vec<usize>,
}

impl Draft {
    fn write(&mut self, name: &str, shape: Shape) {
        match shape {
            Shape::Object(fields) => {
                let mut separator = '{';
                for (name, field) in fields {
                    self.text += &format!("{separator}{name:?}:");
                    self.write(name, *field);
                    separator = ',';
                }
                self.text.push('}');
            }
            Shape::List(item) => {
                self.text.push('[');
                self.write(name, *item);
                self.text.push(']');
            }
            Shape::Map(value) => {
                self.text += r#"{"key":"#;
                self.write(name, *value);
                self.text.push('}');
            }
            _ => self.write_leaf(name, shape),
        }
    }

    fn write_leaf(&mut self, name: &str, shape: Shape) {
        let index = self.starts.len();
        self.starts.push(self.text.len());
        if self.picks.len() == index {
            self.picks.push(0);
        }
        let values: &[&str] = match shape {
            Shape::Any => &[
                r#"{"after_ms":18446744073709551615}"#,
                r#"{"n":[18446744073709551616,3.10,1e308],"z":{}}"#,
                "[]",
            ],
            Shape::Boolean => &["true"],
            Shape::Count => &["18446744073709551615", "4294967295", "65535"],
            Shape::Number => &["1.7976931348623157e308", "18446744073709551615"],
            Shape::Time => &[r#""9999-12-30T22:00:00.000Z""#],
            // If the value has one of several forms, the error does not name the part that does not fit.
            _ if name == "digest" => &[DIGEST],
            _ => &[
                r#""\u0000\uffff😀""#,
                DIGEST,
                r#""budget_exhausted""#,
                r#""happened""#,
                r#""parked""#,
                r#""local""#,
            ],
        };
        self.text += values.get(self.picks[index]).copied().unwrap_or("null");
    }
}
