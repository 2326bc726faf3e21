//! Requests to a run from outside: decisions of people, cancellation, input.
//!
//! Each request is a row that any process can insert under a condition. The run's writer reads the rows, and removes
//! each one in the append that records it, so that an accepted request is recorded exactly once.

use std::sync::Arc;
use std::task::{Context, Poll};

use layer0::event::Cause;
use layer0::id::{ApprovalId, CallId, RunId};
use layer0::{JsonText, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};

use crate::watches::{KeyedWatches, Watch};
use crate::{Decision, Settlement};

/// A request to a run from any process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum InboxRequest {
    /// Stops the run. Accepted while the run is open.
    Cancel {
        /// The run.
        run: RunId,
    },
    /// Decides an approval. Accepted while the approval is open, undecided and not expired, from a person who may
    /// decide it, and unless the run is to stop. The row is removed if something else closes the approval.
    Decide {
        /// The approval.
        approval: ApprovalId,
        /// The decision.
        decision: Decision,
    },
    /// Expires an approval. Accepted while the approval is open and undecided, after its expiry time.
    Expire {
        /// The approval.
        approval: ApprovalId,
    },
    /// Adds text that the model reads with its next request. Accepted while the run is open; input that arrives too
    /// late is kept for the next writer of the run.
    Input {
        /// The run.
        run: RunId,
        /// The text.
        text: Arc<str>,
    },
    /// Settles a call of unknown outcome. Accepted while no other settlement of the call is pending or recorded (as
    /// `tool.resolved`), also for an ended run: the sender has read from the record that the outcome is open.
    Settle {
        /// The run.
        run: RunId,
        /// The call.
        call: CallId,
        /// The outcome of the call.
        settlement: Settlement,
    },
    /// Delivers a signal that the run itself interprets. Accepted and kept as input is.
    Signal {
        /// The run.
        run: RunId,
        /// Name of the signal.
        name: Arc<str>,
        /// Data of the signal.
        data: JsonText,
        /// The delivery to a behaviour that caused it, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<Box<Cause>>,
    },
}

impl InboxRequest {
    /// Returns the kind, as stores write it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Cancel { .. } => "cancel",
            Self::Decide { .. } => "decision",
            Self::Expire { .. } => "expiry",
            Self::Input { .. } => "input",
            Self::Settle { .. } => "settlement",
            Self::Signal { .. } => "signal",
        }
    }

    /// Returns whether it also waits for the writer of a run that has ended.
    #[must_use]
    pub const fn outlasts_the_run(&self) -> bool {
        matches!(self, Self::Input { .. } | Self::Settle { .. } | Self::Signal { .. })
    }

    /// Returns the approval that it decides, if any.
    #[must_use]
    pub const fn decides(&self) -> Option<&ApprovalId> {
        match self {
            Self::Decide { approval, .. } | Self::Expire { approval } => Some(approval),
            Self::Cancel { .. }
            | Self::Input { .. }
            | Self::Settle { .. }
            | Self::Signal { .. } => None,
        }
    }
}

/// A row of an inbox: a request that was accepted and is not recorded yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InboxMessage {
    /// Id of the row, unique among the pending rows of the log, whichever process sent them.
    pub id: u64,
    /// The request.
    pub request: InboxRequest,
    /// The sender.
    pub by: Arc<str>,
    /// Time at which it was sent.
    pub at: Timestamp,
}

impl InboxMessage {
    /// Creates a row.
    pub fn new(id: u64, request: InboxRequest, by: impl Into<Arc<str>>, at: Timestamp) -> Self {
        Self { id, request, by: by.into(), at }
    }
}

/// The data of a row as JSON, for logs that store text.
#[derive(Debug, Default, Serialize, Deserialize)]
struct RowData {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approved: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arguments: Option<JsonText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<JsonText>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "read_present")]
    signal: Option<JsonText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<CallId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    happened: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<JsonText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<Box<Cause>>,
}

/// Reads a value that is there: the data of a signal is often `null`.
fn read_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<JsonText>, D::Error> {
    JsonText::deserialize(deserializer).map(Some)
}

impl InboxRequest {
    /// Returns the data of a row as JSON: everything except its kind, run and approval.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "a truth value, a text and JSON are JSON")]
    pub fn data(&self) -> String {
        let data = match self {
            Self::Cancel { .. } | Self::Expire { .. } => RowData::default(),
            Self::Decide { decision, .. } => RowData {
                approved: Some(decision.approved),
                text: decision.reason.clone(),
                arguments: decision.arguments.clone(),
                data: decision.data.clone(),
                ..RowData::default()
            },
            Self::Input { text, .. } => {
                RowData { text: Some(text.to_string()), ..RowData::default() }
            }
            Self::Settle { call, settlement, .. } => RowData {
                call: Some(call.clone()),
                happened: Some(settlement.happened),
                output: settlement.output.clone(),
                ..RowData::default()
            },
            Self::Signal { name, data, cause, .. } => RowData {
                text: Some(name.to_string()),
                signal: Some(data.clone()),
                cause: cause.clone(),
                ..RowData::default()
            },
        };
        serde_json::to_string(&data).expect("a truth value, a text and JSON are JSON")
    }

    /// Decodes a request from the columns of a row; `None` if no version wrote such a row.
    #[must_use]
    pub fn read(
        kind: &str,
        run: RunId,
        approval: Option<ApprovalId>,
        by: &str,
        data: &str,
    ) -> Option<Self> {
        let row: RowData = serde_json::from_str(data).ok()?;
        let RowData { approved, text, arguments, data, signal, .. } = row;
        let RowData { call, happened, output, cause, .. } = row;
        Some(match kind {
            "cancel" => Self::Cancel { run },
            "decision" => {
                let mut decision = Decision::approve(by);
                (decision.approved, decision.reason) = (approved?, text);
                (decision.arguments, decision.data) = (arguments, data);
                Self::Decide { approval: approval?, decision }
            }
            "expiry" => Self::Expire { approval: approval? },
            "input" => Self::Input { run, text: text?.into() },
            "settlement" => {
                let mut settlement = Settlement::call_happened(by);
                (settlement.happened, settlement.output) = (happened?, output);
                Self::Settle { run, call: call?, settlement }
            }
            "signal" => Self::Signal { run, name: text?.into(), data: signal?, cause },
            _ => return None,
        })
    }
}

/// Wakes the watchers of a run's inbox when it has a new row. Clones share the watches.
#[derive(Debug, Clone, Default)]
pub struct InboxWatches(KeyedWatches<RunId>);

impl InboxWatches {
    /// Watches the inbox of a run. Earlier rows count as new.
    #[must_use]
    pub fn watch(&self, run: &RunId) -> InboxWatch {
        InboxWatch(self.0.watch(run))
    }

    /// Wakes the watchers of a run's inbox, because it has a new row.
    pub fn ring(&self, run: &RunId) {
        self.0.ring(run);
    }

    /// Returns whether there is no watch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A watch on the inbox of a run, active until dropped.
#[derive(Debug)]
pub struct InboxWatch(Watch<RunId>);

impl InboxWatch {
    /// Returns ready when the inbox may have new rows; the first time at once.
    pub fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_changed(cx)
    }

    /// Waits until the inbox may have new rows; returns at once the first time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: a change is taken only when it returns.
    pub async fn wait_for_change(&mut self) {
        std::future::poll_fn(|cx| self.poll_changed(cx)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_request_reads_back_as_it_was_written() {
        let run = RunId::from("run_1");
        let deny = Decision::deny("ops", "no \"quotes\"\u{0}");
        let arguments = JsonText::parse(r#"{"amount":3.10,"to":"\u0000"}"#).unwrap();
        let changed = Decision::approve("ops").with_arguments(arguments);
        let day = JsonText::parse(r#"{"day":"\u0000"}"#).unwrap();
        let informed = Decision::approve("ops").with_data(day);
        assert!(changed.arguments.is_some() && informed.data.is_some());
        for request in [
            InboxRequest::Cancel { run: run.clone() },
            InboxRequest::Decide { approval: "apr_1".into(), decision: deny },
            InboxRequest::Decide { approval: "apr_1".into(), decision: Decision::approve("ops") },
            InboxRequest::Decide { approval: "apr_1".into(), decision: changed },
            InboxRequest::Decide { approval: "apr_1".into(), decision: informed },
            InboxRequest::Expire { approval: "apr_1".into() },
            InboxRequest::Input { run: run.clone(), text: "go on".into() },
            InboxRequest::Settle {
                run: run.clone(),
                call: "c \"1\"\u{0}".into(),
                settlement: Settlement::call_happened("ops").with_output(JsonText::string("paid")),
            },
            InboxRequest::Settle {
                run: run.clone(),
                call: "c1".into(),
                settlement: Settlement::did_not("ops"),
            },
            InboxRequest::Signal {
                run: run.clone(),
                name: "look".into(),
                data: JsonText::parse(r#"{"at":[1]}"#).unwrap(),
                cause: Some(Box::new(Cause::new("tell", "run_0", 3, 1))),
            },
            InboxRequest::Signal {
                run: run.clone(),
                name: "cancel".into(),
                data: JsonText::default(),
                cause: None,
            },
        ] {
            let approval = Some("apr_1".into());
            let read =
                InboxRequest::read(request.kind(), run.clone(), approval, "ops", &request.data());
            assert_eq!(read, Some(request));
        }
        assert_eq!(InboxRequest::read("other", run, None, "ops", "{}"), None);
    }

    #[test]
    fn a_watch_is_rung_once_per_change() {
        let watches = InboxWatches::default();
        let run = RunId::from("run_1");
        let mut watch = watches.watch(&run);
        let mut look = || watch.poll_changed(&mut Context::from_waker(Waker::noop()));
        assert_eq!(look(), Poll::Ready(()), "what was there before counts");
        assert_eq!(look(), Poll::Pending);
        watches.ring(&run);
        watches.ring(&"run_2".into());
        assert_eq!(look(), Poll::Ready(()));
        assert_eq!(look(), Poll::Pending);
        assert!(!watches.is_empty());
        drop(watch);
        assert!(watches.is_empty());
    }
}
