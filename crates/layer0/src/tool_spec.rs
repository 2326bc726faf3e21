//! The description of a tool.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approvers::Approvers;
use crate::json_text::JsonText;

/// Describes a tool: to the model (name, description, schema) and to the runtime (the rest).
///
/// Clones share what they say until one of them is changed, so that any number of agents with the same
/// tool hold it once. The fields are those of [`ToolFacts`].
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
    /// The name the model calls it by.
    pub name: Arc<str>,
    /// The description for the model: its use, and when to use it.
    pub description: Arc<str>,
    /// JSON Schema of the arguments; always of type `object`.
    pub schema: JsonText,
    /// JSON Schema the output is checked against, where it declares one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<JsonText>,
    /// The capabilities it needs whatever its arguments are, such as `process:spawn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// Whether a call may be repeated after it may have acted.
    #[serde(default)]
    pub idempotent: bool,
    /// Whether it only looks around, so that repeating it can be progress.
    #[serde(default)]
    pub exploratory: bool,
    /// Whether a person must agree to each call.
    #[serde(default)]
    pub approval: bool,
    /// The time a person has to decide about a call; unlimited if `None`.
    #[serde(default, rename = "expires_after_ms", with = "crate::millis::optional")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Duration>,
    /// JSON Schema of the data that is given with each approval, where it needs some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_schema: Option<JsonText>,
    /// The people who may decide about a call.
    #[serde(default, skip_serializing_if = "Approvers::is_empty")]
    pub approvers: Approvers,
    /// The longest time of one execution; the agent's limit if `None`.
    #[serde(default, rename = "timeout_ms", with = "crate::millis::optional")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Whether a call only dispatches an operator. It is continued after its process died.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dispatches: bool,
    /// Whether it can find out if a call of unknown outcome happened.
    #[serde(default, skip_serializing_if = "is_false")]
    pub probe: bool,
    /// Whether the verdict "it did not happen" is final, so that the call may be run again. Otherwise a request may
    /// still be on its way.
    #[serde(default, skip_serializing_if = "is_false")]
    pub probe_is_final: bool,
    /// JSON pointer to the argument whose value names what is done once, whichever run asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<Arc<str>>,
    /// The name it has where it comes from, if that is listed elsewhere, such as at an MCP server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Arc<str>>,
    /// What decides what a call does, beyond its arguments: of a program its command line, and its walls under the
    /// key `walls`. A tool with another contract is another tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract: Option<JsonText>,
}

impl ToolSpec {
    /// Describes a tool that needs no capability, is not idempotent and asks for no approval.
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

    /// Adds a capability it needs.
    #[must_use]
    pub fn capability(mut self, capability: impl Into<String>) -> Self {
        self.capabilities.push(capability.into());
        self
    }

    /// States the name it has where it comes from.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<Arc<str>>) -> Self {
        self.origin = Some(origin.into());
        self
    }

    /// States what decides what a call does, beyond its arguments; without secrets.
    #[must_use]
    pub fn contract(mut self, contract: &Value) -> Self {
        self.contract = Some(contract.into());
        self
    }

    /// States that a call may be repeated.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// States that it only looks around.
    #[must_use]
    pub fn exploratory(mut self) -> Self {
        self.exploratory = true;
        self
    }

    /// States that a person must agree to each call.
    #[must_use]
    pub fn approval(mut self) -> Self {
        self.approval = true;
        self
    }

    /// States that a person must agree to each call, within this time: then it counts as denied.
    #[must_use]
    pub fn expires_after(mut self, time: Duration) -> Self {
        (self.approval, self.expires_after) = (true, Some(time));
        self
    }

    /// States that a person must agree to each call and give data that fits this JSON Schema, such as a
    /// delivery date. The tool is given it with the call.
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

    /// States that one of these must agree to each call; what others decide is refused.
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

    /// States that a call does nothing but dispatch an operator.
    #[must_use]
    pub fn dispatches(mut self) -> Self {
        self.dispatches = true;
        self
    }

    /// States that the tool can say whether a call happened whose outcome is unknown.
    #[must_use]
    pub fn probe(mut self) -> Self {
        self.probe = true;
        self
    }

    /// States that the tool can say whether a call happened, and that one which did not happen then never
    /// will: the runtime may run it again.
    #[must_use]
    pub fn probe_is_final(mut self) -> Self {
        (self.probe, self.probe_is_final) = (true, true);
        self
    }

    /// States that a call is made once for each value of an argument, in all runs that share a state store: a later
    /// call gets the recorded answer, with a note. `pointer` is a JSON pointer, such as `/invoice_id`.
    #[must_use]
    pub fn once(mut self, pointer: impl Into<Arc<str>>) -> Self {
        self.once = Some(pointer.into());
        self
    }

    /// Limits how long one execution may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Declares what its output looks like.
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
