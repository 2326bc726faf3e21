//! The description of a tool.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approvers::Approvers;
use crate::json_text::JsonText;

/// The description of a tool for the model (name, description, schema) and for the runtime (all other fields).
///
/// Clones share their data until one of them is changed, so that all agents with the same tool share one copy. The
/// fields are those of [`ToolFacts`].
///
/// ```
/// use layer0::ToolSpec;
/// use serde_json::json;
///
/// let look = ToolSpec::new("look", "Looks around.", json!({"type": "object"}));
/// let careful = look.clone().approval();
/// assert!(careful.approval && !look.approval);
/// assert_eq!(careful.name, look.name);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolSpec(Arc<ToolFacts>);

/// The fields of a [`ToolSpec`], which dereferences to them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolFacts {
    /// The name for the model.
    pub name: Arc<str>,
    /// The description for the model: its use, and when to use it.
    pub description: Arc<str>,
    /// JSON Schema of the arguments; always of type `object`.
    pub schema: JsonText,
    /// JSON Schema of the output, if it declares one; the output is checked against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<JsonText>,
    /// The capabilities that every call requires, such as `process:spawn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// Whether a call may be repeated after it may have acted.
    #[serde(default)]
    pub idempotent: bool,
    /// Whether the tool only reads, so that a repeated call can be progress.
    #[serde(default)]
    pub exploratory: bool,
    /// Whether each call requires an approval.
    #[serde(default)]
    pub approval: bool,
    /// The time limit of an approval; unlimited if `None`.
    #[serde(default, rename = "expires_after_ms", with = "crate::millis::optional")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Duration>,
    /// JSON Schema of the data that each approval requires, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_schema: Option<JsonText>,
    /// The people who may decide about a call.
    #[serde(default, skip_serializing_if = "Approvers::is_empty")]
    pub approvers: Approvers,
    /// The time limit of one execution; the agent's limit if `None`.
    #[serde(default, rename = "timeout_ms", with = "crate::millis::optional")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Whether a call only dispatches an operator. Such a call is continued after its process died.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dispatches: bool,
    /// Whether the tool can determine if a call of unknown outcome happened.
    #[serde(default, skip_serializing_if = "is_false")]
    pub probe: bool,
    /// Whether the verdict "it did not happen" is final, so that the call may be run again. Otherwise a request may
    /// still be on its way.
    #[serde(default, skip_serializing_if = "is_false")]
    pub probe_is_final: bool,
    /// JSON pointer to the argument that identifies an action to perform only once, in all runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<Arc<str>>,
    /// The name of the tool at its source, if it is listed elsewhere, such as at an MCP server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Arc<str>>,
    /// The properties that determine the effect of a call, beyond its arguments: for a program its command line, and
    /// its walls under the key `walls`. A tool with another contract is another tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract: Option<JsonText>,
}

impl ToolSpec {
    /// Creates a tool without capabilities; it is not idempotent and requires no approval.
    pub fn new(name: impl Into<Arc<str>>, description: impl Into<Arc<str>>, schema: Value) -> Self {
        Self(Arc::new(ToolFacts {
            name: name.into(),
            description: description.into(),
            schema: (&schema).into(),
            output_schema: None,
            capabilities: Vec::new(),
            idempotent: false,
            exploratory: false,
            approval: false,
            expires_after: None,
            approval_schema: None,
            approvers: Approvers::default(),
            timeout: None,
            dispatches: false,
            probe: false,
            probe_is_final: false,
            once: None,
            origin: None,
            contract: None,
        }))
    }

    /// Adds a required capability.
    #[must_use]
    pub fn capability(mut self, capability: impl Into<String>) -> Self {
        self.capabilities.push(capability.into());
        self
    }

    /// Sets the name of the tool at its source.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<Arc<str>>) -> Self {
        self.origin = Some(origin.into());
        self
    }

    /// Sets the properties that determine the effect of a call, beyond its arguments; without secrets.
    #[must_use]
    pub fn contract(mut self, contract: &Value) -> Self {
        self.contract = Some(contract.into());
        self
    }

    /// Declares that a call may be repeated.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Declares that the tool only reads.
    #[must_use]
    pub fn exploratory(mut self) -> Self {
        self.exploratory = true;
        self
    }

    /// Requires an approval of each call.
    #[must_use]
    pub fn approval(mut self) -> Self {
        self.approval = true;
        self
    }

    /// Requires an approval of each call within this time; afterwards the call counts as denied.
    #[must_use]
    pub fn expires_after(mut self, time: Duration) -> Self {
        (self.approval, self.expires_after) = (true, Some(time));
        self
    }

    /// Requires an approval of each call with data that fits this JSON Schema, such as a delivery date. The tool
    /// receives the data with the call.
    ///
    /// ```
    /// # use layer0::ToolSpec;
    /// # use serde_json::json;
    /// let ship = ToolSpec::new("ship", "Ships an order.", json!({"type": "object"}));
    /// let ship = ship.asks(json!({
    ///     "type": "object",
    ///     "properties": {"day": {"type": "string"}},
    ///     "required": ["day"],
    /// }));
    /// assert!(ship.approval && ship.approval_schema.is_some());
    /// ```
    #[must_use]
    pub fn asks(mut self, schema: Value) -> Self {
        (self.approval, self.approval_schema) = (true, Some((&schema).into()));
        self
    }

    /// Requires an approval of each call by one of these people; decisions of others are refused.
    ///
    /// ```
    /// # use layer0::ToolSpec;
    /// # use serde_json::json;
    /// let refund = ToolSpec::new("refund", "Pays an order back.", json!({"type": "object"}));
    /// let refund = refund.approvers(["ops", "lead"]);
    /// assert!(refund.approval && refund.approvers.allow("ops") && !refund.approvers.allow("intern"));
    /// ```
    #[must_use]
    pub fn approvers<N: Into<Arc<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        (self.approval, self.approvers) = (true, names.into_iter().collect());
        self
    }

    /// Declares that a call only dispatches an operator.
    #[must_use]
    pub fn dispatches(mut self) -> Self {
        self.dispatches = true;
        self
    }

    /// Declares that the tool can determine whether a call of unknown outcome happened.
    #[must_use]
    pub fn probe(mut self) -> Self {
        self.probe = true;
        self
    }

    /// Declares that the tool can determine whether a call happened, and that a call that did not happen by then never
    /// will: the runtime may run it again.
    #[must_use]
    pub fn probe_is_final(mut self) -> Self {
        (self.probe, self.probe_is_final) = (true, true);
        self
    }

    /// Declares that a call is performed once for each value of an argument, in all runs that share a state store: a
    /// later call gets the recorded answer, with a note. `pointer` is a JSON pointer, such as `/invoice_id`.
    #[must_use]
    pub fn once(mut self, pointer: impl Into<Arc<str>>) -> Self {
        self.once = Some(pointer.into());
        self
    }

    /// Limits the time of one execution.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the JSON Schema of the output.
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.output_schema = Some((&schema).into());
        self
    }
}

impl Deref for ToolSpec {
    type Target = ToolFacts;

    fn deref(&self) -> &ToolFacts {
        &self.0
    }
}

impl DerefMut for ToolSpec {
    fn deref_mut(&mut self) -> &mut ToolFacts {
        Arc::make_mut(&mut self.0)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}
