//! The record of a run: an envelope, and one payload per event type (schema 1).
//!
//! An event is a **fact** (it happened outside the machine, and is given to the machine again on replay) or a
//! **decision** (the machine derived it, and derives it again on replay). The [`Actor`] distinguishes them: decisions
//! are the machine's.

mod hash;
mod payload;
mod shape;

pub use hash::{Hash, Salt};
pub use payload::*;
pub use shape::Shape;

use serde::de::{self, Deserializer};
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::code;
use crate::failure::{Effect, Facts, Failure};
use crate::id::RunId;
use crate::time::Timestamp;

/// Schema of the payloads in this version.
pub const SCHEMA: u32 = 1;

/// An entry of a run's log.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// The run that the event belongs to.
    pub run: RunId,
    /// The number of the event in its run: 1, 2, ….
    pub seq: u64,
    /// The time at which the event was recorded.
    pub at: Timestamp,
    /// The source of the event.
    pub actor: Actor,
    /// The seq of the event that led to this one.
    pub caused_by: Option<u64>,
    /// The schema of the payload.
    pub schema: u32,
    /// The type and payload.
    pub kind: EventKind,
    /// The bytes hashed with the payload, so that an erased payload cannot be guessed; `None` if no log keeps the run,
    /// and in records of the first layout.
    pub salt: Option<Salt>,
    /// The chained hash over the previous event's hash and everything but `run`; zero if no log keeps the run.
    pub hash: Hash,
}

impl Event {
    /// Creates an event of the current schema, without a cause and without a log.
    #[must_use]
    pub fn new(
        run: impl Into<RunId>,
        seq: u64,
        at: Timestamp,
        actor: Actor,
        kind: impl Into<EventKind>,
    ) -> Self {
        let (run, kind, hash) = (run.into(), kind.into(), Hash::default());
        Self { run, seq, at, actor, caused_by: None, schema: SCHEMA, kind, salt: None, hash }
    }
}

/// The source of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Actor {
    /// The driver around the machine.
    Runtime,
    /// The machine; such an event is a decision, all others are facts.
    Machine,
    /// The model or its provider.
    Model,
    /// A tool.
    Tool,
    /// A person.
    Person,
    /// A hook.
    Hook,
    /// The memory.
    Memory,
}

impl Actor {
    /// All actors.
    pub const ALL: &[Self] = &[
        Self::Runtime,
        Self::Machine,
        Self::Model,
        Self::Tool,
        Self::Person,
        Self::Hook,
        Self::Memory,
    ];

    /// Returns the actor's text in events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Machine => "machine",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Person => "person",
            Self::Hook => "hook",
            Self::Memory => "memory",
        }
    }

    /// Returns the actor with this text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|actor| actor.as_str() == text)
    }
}

/// The reason that a stored event cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The type is not one of this schema.
    ///
    /// Retry: never. Effect: none.
    #[error("unknown event type `{0}`")]
    UnknownType(String),
    /// The payload does not have the shape of its type.
    ///
    /// Retry: never. Effect: none.
    #[error("malformed payload of `{event_type}`")]
    #[non_exhaustive]
    Payload {
        /// The event's type.
        event_type: &'static str,
        /// The error of serde.
        source: serde_json::Error,
    },
}

impl Failure for DecodeError {
    fn facts(&self) -> Facts {
        match self {
            Self::UnknownType(_) | Self::Payload { .. } => {
                Facts::never(code::LOG_UNREADABLE, Effect::None)
            }
        }
    }
}

impl DecodeError {
    /// Creates a [`DecodeError::Payload`].
    #[must_use]
    pub const fn payload(event_type: &'static str, source: serde_json::Error) -> Self {
        Self::Payload { event_type, source }
    }
}

macro_rules! event_kinds {
    ($($name:ident $event_type:literal)*) => {
        /// The type of an event, with its payload.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum EventKind {
            $(
                #[doc = concat!("`", $event_type, "`")]
                $name($name),
            )*
        }

        /// All event types, in the order of the catalogue.
        pub const EVENT_TYPES: &[&str] = &[$($event_type),*];

        /// Returns the fields of an event type's payload, by their names in JSON; `None` for an unknown type.
        #[must_use]
        pub fn event_fields(event_type: &str) -> Option<&'static [(&'static str, Shape)]> {
            match event_type {
                $($event_type => Some($name::FIELDS),)*
                _ => None,
            }
        }

        impl EventKind {
            /// Returns the event's type, such as `tool.responded`.
            #[must_use]
            pub const fn event_type(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $event_type,)*
                }
            }

            /// Decodes an event from its type and its payload's JSON.
            ///
            /// # Errors
            ///
            /// [`DecodeError::UnknownType`] and [`DecodeError::Payload`].
            pub fn decode(event_type: &str, data: &str) -> Result<Self, DecodeError> {
                match event_type {
                    $(
                        $event_type => serde_json::from_str(data).map(Self::$name).map_err(
                            |source| DecodeError::Payload { event_type: $event_type, source },
                        ),
                    )*
                    _ => Err(DecodeError::UnknownType(event_type.to_owned())),
                }
            }
        }

        /// Serialises only the payload; the envelope has the type.
        impl Serialize for EventKind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$name(data) => data.serialize(serializer),)*
                }
            }
        }

        $(
            impl From<$name> for EventKind {
                fn from(data: $name) -> Self {
                    Self::$name(data)
                }
            }
        )*
    };
}

event_kinds! {
    RunStarted "run.started"
    RunForked "run.forked"
    RunResumed "run.resumed"
    RunReopened "run.reopened"
    RunParked "run.parked"
    RunRecovered "run.recovered"
    RunWaiting "run.waiting"
    RunFinished "run.finished"
    RunFailed "run.failed"
    ModelRequested "model.requested"
    ModelAttempted "model.attempted"
    ModelResponded "model.responded"
    ModelFailed "model.failed"
    ToolRequested "tool.requested"
    ToolAttempted "tool.attempted"
    ToolResponded "tool.responded"
    ToolLate "tool.late"
    ToolProbed "tool.probed"
    ToolResolved "tool.resolved"
    ApprovalRequested "approval.requested"
    ApprovalGranted "approval.granted"
    ApprovalDenied "approval.denied"
    HookPassed "hook.passed"
    HookFailed "hook.failed"
    HookAborted "hook.aborted"
    MemoryRead "memory.read"
    MemoryWrote "memory.wrote"
    MemoryDegraded "memory.degraded"
    BudgetExhausted "budget.exhausted"
    GuardTripped "guard.tripped"
    ErrorStored "error.stored"
    ErrorStoreDegraded "error_store.degraded"
    ResultStored "result.stored"
    ContextCompacted "context.compacted"
    Warning "warning"
    McpToolsChanged "mcp.tools_changed"
    OperatorDispatched "operator.dispatched"
    OperatorWaiting "operator.waiting"
    OperatorRefused "operator.refused"
    OperatorReturned "operator.returned"
    WorkflowRouted "workflow.routed"
    BudgetGranted "budget.granted"
    SignalReceived "signal.received"
    SubscriptionOpened "subscription.opened"
    BehaviorDelivered "behavior.delivered"
    BehaviorCompleted "behavior.completed"
    BehaviorFailed "behavior.failed"
}

impl EventKind {
    /// Returns the delivery to a behaviour that led to the event and to the rest of its run.
    #[must_use]
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::RunStarted(started) => started.cause.as_deref(),
            Self::RunReopened(reopened) => reopened.cause.as_deref(),
            Self::SignalReceived(signal) => signal.cause.as_deref(),
            _ => None,
        }
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut event = serializer.serialize_struct("Event", 10)?;
        event.serialize_field("run", &self.run)?;
        event.serialize_field("seq", &self.seq)?;
        event.serialize_field("at", &self.at)?;
        event.serialize_field("type", self.kind.event_type())?;
        event.serialize_field("actor", &self.actor)?;
        event.serialize_field("caused_by", &self.caused_by)?;
        event.serialize_field("schema", &self.schema)?;
        event.serialize_field("data", &self.kind)?;
        event.serialize_field("salt", &self.salt)?;
        event.serialize_field("hash", &self.hash)?;
        event.end()
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct EventEnvelope {
            run: RunId,
            seq: u64,
            at: Timestamp,
            #[serde(rename = "type")]
            event_type: String,
            actor: Actor,
            caused_by: Option<u64>,
            schema: u32,
            data: Box<RawValue>,
            #[serde(default)]
            salt: Option<Salt>,
            hash: Hash,
        }
        let envelope = EventEnvelope::deserialize(deserializer)?;
        let kind = EventKind::decode(&envelope.event_type, envelope.data.get())
            .map_err(|error| de::Error::custom(crate::failure::Chain(&error)))?;
        Ok(Self {
            run: envelope.run,
            seq: envelope.seq,
            at: envelope.at,
            actor: envelope.actor,
            caused_by: envelope.caused_by,
            schema: envelope.schema,
            kind,
            salt: envelope.salt,
            hash: envelope.hash,
        })
    }
}
