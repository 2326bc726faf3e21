//! Events to record, as data.

use layer0::event::EventKind;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// An event to record. As data, it has its type next to its payload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PendingEvent(pub(crate) EventKind);

#[derive(Serialize)]
struct NoteParts<'a> {
    r#type: &'static str,
    data: &'a EventKind,
}

impl<'a> NoteParts<'a> {
    const fn new(event: &'a EventKind) -> Self {
        Self { r#type: event.event_type(), data: event }
    }
}

#[derive(Deserialize)]
struct OwnedParts {
    r#type: String,
    data: Box<RawValue>,
}

impl Serialize for PendingEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        NoteParts::new(&self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PendingEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let OwnedParts { r#type, data } = OwnedParts::deserialize(deserializer)?;
        EventKind::decode(&r#type, data.get()).map(Self).map_err(D::Error::custom)
    }
}

/// Events to record, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PendingEvents(pub(crate) Vec<EventKind>);

impl Serialize for PendingEvents {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(NoteParts::new))
    }
}

impl<'de> Deserialize<'de> for PendingEvents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let notes = Vec::<PendingEvent>::deserialize(deserializer)?;
        Ok(Self(notes.into_iter().map(|PendingEvent(event)| event).collect()))
    }
}
