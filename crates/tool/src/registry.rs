use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use layer0::name::{NameError, check_name, wire_name};
use layer0::{Approvers, JsonText, ToolSpec, text};
use serde_json::Value;
use thiserror::Error;

use crate::capability::check_capability;
use crate::nulls::without_nulls;
use crate::policy::Grants;
use crate::text::{missing_text, nearest};
use crate::validate::{self, Schema, SchemaViolation};
use crate::{Arguments, DispatchSpec, StateType, Tool, ToolError};
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};

/// Maximum time that people may have to decide: times after the year 9999 cannot be printed.
const MAX_EXPIRY: Duration = Duration::from_hours(7_900 * 365 * 24);

/// The tools of an agent, in the order in which the model sees them. Cloning copies no tool.
#[derive(Clone, Default)]
pub struct Toolset(Vec<Arc<RegisteredTool>>);

#[derive(Clone)]
struct RegisteredTool {
    tool: Arc<dyn Tool>,
    /// Spec of the tool when it was added.
    spec: ToolSpec,
    /// `None` if no schema can be compiled and the tool checks its arguments itself.
    input: Option<Schema>,
    output: Option<Schema>,
    /// Whether its failures are stored; read once, when it was added.
    stores_errors: bool,
    /// Name of the operator that it dispatches.
    operator: Option<Box<str>>,
}

impl RegisteredTool {
    fn check(&self, arguments: &Arguments) -> Result<(), SchemaViolation> {
        let checked = self.input.as_ref().map(|schema| schema.check_arguments(arguments.value()));
        checked.unwrap_or(Ok(()))
    }
}

/// A call that may run: the tool was found, its arguments fit and its needs are granted.
#[derive(Clone)]
pub struct Admitted {
    entry: Arc<RegisteredTool>,
    /// The arguments.
    pub arguments: Arc<Arguments>,
    needs: Arc<[String]>,
    dispatch: Option<DispatchSpec>,
}

impl Toolset {
    /// Returns an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool.
    ///
    /// # Errors
    ///
    /// [`ToolRegistrationError`] if its name is not valid or taken, or a schema is not valid. Providers receive a name with
    /// other characters than letters, digits, `_` and `-` as mapped by [`wire_name`].
    pub fn with(mut self, tool: impl Tool + 'static) -> Result<Self, ToolRegistrationError> {
        self.add(Arc::new(tool))?;
        Ok(self)
    }

    /// Adds a shared tool.
    ///
    /// # Errors
    ///
    /// As [`Toolset::with`]; then the set is unchanged.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), ToolRegistrationError> {
        let described = read_properties(&*tool).map_err(ToolRegistrationError::Panicked)?;
        let ToolProperties { spec, checks_arguments, stores_errors, operator } = described;
        let name = Arc::clone(&spec.name);
        check_name(&name)?;
        if self.contains(&name) {
            return Err(ToolRegistrationError::Duplicate(name));
        }
        let mapped = wire_name(&name);
        if let Some(alike) = self.names().find(|other| wire_name(other) == mapped) {
            let other = alike.into();
            return Err(ToolRegistrationError::Alike {
                other,
                mapped: mapped.into(),
                name: name.clone(),
            });
        }
        if spec.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(ToolRegistrationError::ZeroTimeout(name));
        }
        check_approval(&spec)?;
        for capability in &spec.capabilities {
            check_capability(capability).map_err(|why| ToolRegistrationError::Capability {
                tool: Arc::clone(&name),
                capability: capability.as_str().into(),
                why,
            })?;
        }
        let malformed =
            |why: String| ToolRegistrationError::Schema { tool: Arc::clone(&name), why };
        let compile = |schema: &JsonText| {
            Schema::new(&schema.value()).map_err(|error| malformed(error.to_string()))
        };
        let is_compiled = cfg!(feature = "json-schema") || !checks_arguments;
        let input = is_compiled.then(|| compile(&spec.schema)).transpose()?;
        if spec.schema.value()["type"] != "object" {
            return Err(malformed("its `type` must be `object`".to_owned()));
        }
        let output = spec.output_schema.as_ref().map(compile).transpose()?;
        // The data of decisions is checked against it later, in any process.
        spec.approval_schema.as_ref().map(compile).transpose()?;
        // Tools are added once and kept for long.
        self.0.reserve_exact(1);
        let entry = RegisteredTool { tool, spec, input, output, stores_errors, operator };
        self.0.push(Arc::new(entry));
        Ok(())
    }

    /// Returns whether there is a tool of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Checks that there is a tool of this name.
    ///
    /// # Errors
    ///
    /// [`ToolNotFound`] with the name of the most similar tool.
    pub fn require(&self, name: &str) -> Result<(), ToolNotFound> {
        if self.contains(name) {
            return Ok(());
        }
        let nearest = nearest(name, self.names());
        Err(ToolNotFound { name: name.into(), nearest: nearest.map(Into::into) })
    }

    /// Requires the approval of a person for every call of a tool, whatever its spec.
    ///
    /// # Errors
    ///
    /// [`ToolNotFound`] with the name of the most similar tool.
    pub fn require_approval(&mut self, name: &str) -> Result<(), ToolNotFound> {
        let Some(entry) = self.0.iter_mut().find(|entry| *entry.spec.name == *name) else {
            let nearest = nearest(name, self.names());
            return Err(ToolNotFound { name: name.into(), nearest: nearest.map(Into::into) });
        };
        if !entry.spec.approval {
            let spec = entry.spec.clone().approval();
            *entry = Arc::new(RegisteredTool { spec, ..RegisteredTool::clone(entry) });
        }
        Ok(())
    }

    /// Sets the contract of a tool: a value for everything besides the arguments that determines what its calls do.
    /// Does nothing for an unknown tool.
    pub fn set_contract(&mut self, name: &str, contract: &Value) {
        if let Some(entry) = self.0.iter_mut().find(|entry| *entry.spec.name == *name) {
            let spec = entry.spec.clone().contract(contract);
            *entry = Arc::new(RegisteredTool { spec, ..RegisteredTool::clone(entry) });
        }
    }

    /// Replaces each tool for which `other` returns another one; the specs do not change.
    pub fn replace(&mut self, other: impl Fn(&ToolSpec, &Arc<dyn Tool>) -> Option<Arc<dyn Tool>>) {
        for entry in &mut self.0 {
            if let Some(tool) = other(&entry.spec, &entry.tool) {
                *entry = Arc::new(RegisteredTool { tool, ..RegisteredTool::clone(entry) });
            }
        }
    }

    /// Returns the names of the tools that take a state, and its type.
    pub fn state_types(&self) -> impl Iterator<Item = (&str, StateType)> {
        self.0.iter().filter_map(|entry| Some((&*entry.spec.name, entry.tool.state_type()?)))
    }

    /// Limits the approvals of a tool, whatever its spec: the time to decide, and who may decide. A limit that is not
    /// given is unchanged; does nothing for an unknown tool.
    ///
    /// # Errors
    ///
    /// [`ToolRegistrationError::ZeroExpiry`], [`ToolRegistrationError::LongExpiry`], [`ToolRegistrationError::BlankApprover`]; then
    /// nothing has changed.
    pub fn limit_approvals(
        &mut self,
        name: &str,
        expires_after: Option<Duration>,
        approvers: Approvers,
    ) -> Result<(), ToolRegistrationError> {
        let found = self.0.iter_mut().find(|entry| *entry.spec.name == *name);
        let Some(entry) = found else { return Ok(()) };
        let mut spec = entry.spec.clone();
        if let Some(time) = expires_after {
            spec = spec.expires_after(time);
        }
        if !approvers.is_empty() {
            spec = spec.approvers(approvers.names());
        }
        check_approval(&spec)?;
        *entry = Arc::new(RegisteredTool { spec, ..RegisteredTool::clone(entry) });
        Ok(())
    }

    /// Requests data with each approval of a tool, whatever its spec; does nothing for an unknown tool.
    ///
    /// # Errors
    ///
    /// [`ToolRegistrationError::Schema`]; then nothing has changed.
    pub fn ask_for_data(
        &mut self,
        name: &str,
        schema: &Value,
    ) -> Result<(), ToolRegistrationError> {
        let found = self.0.iter_mut().find(|entry| *entry.spec.name == *name);
        let Some(entry) = found else { return Ok(()) };
        Schema::new(schema).map_err(|error| ToolRegistrationError::Schema {
            tool: Arc::clone(&entry.spec.name),
            why: error.to_string(),
        })?;
        let spec = entry.spec.clone().asks(schema.clone());
        *entry = Arc::new(RegisteredTool { spec, ..RegisteredTool::clone(entry) });
        Ok(())
    }

    /// Returns the specs of the tools, in order.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.0.iter().map(|entry| &entry.spec)
    }

    /// Returns the names of the operators that tools dispatch.
    pub fn operators(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|entry| entry.operator.as_deref())
    }

    /// Decides whether a call may run: finds the tool, checks the arguments and then the policy.
    ///
    /// # Errors
    ///
    /// [`ToolError::NotFound`], [`ToolError::InvalidInput`], [`ToolError::PermissionDenied`].
    pub fn admit(
        &self,
        name: &str,
        arguments: impl Into<JsonText>,
        grants: &Grants,
    ) -> Result<Admitted, ToolError> {
        let entry = self.find(name).ok_or_else(|| ToolError::NotFound(name.to_owned()))?;
        let text = arguments.into();
        let unparsed = text.as_string().map(|text| validate::explain_parse_failure(&text));
        let mut arguments = Arc::new(Arguments::new(text));
        let checked = match unparsed {
            Some(why) => Err(why),
            None => {
                let mut checked = entry.check(&arguments);
                if checked.is_err()
                    && let Some(text) = without_nulls(arguments.text(), &entry.spec.schema.value())
                {
                    arguments = Arc::new(Arguments::new(text));
                    checked = entry.check(&arguments);
                }
                let schema = || format!("the input schema of `{name}`");
                checked.map_err(|misfit| misfit.with_schema(schema).to_string())
            }
        };
        checked.map_err(|why| {
            let error = ToolError::InvalidInput(why);
            match entry.tool.input_code() {
                Some(code) => error.with_code(code),
                None => error,
            }
        })?;
        let spec = &entry.spec;
        let needs = entry.tool.needs(&arguments)?;
        let denied = |missing| Err(ToolError::permission_denied(&*spec.name, missing));
        if let Some(missing) = spec.capabilities.iter().find(|needed| !grants.allow(needed)) {
            return denied(missing.clone());
        }
        if let Some(missing) = needs.iter().find(|needed| !grants.allow(needed)) {
            return denied(entry.tool.describe_denied_need(&arguments, missing));
        }
        let needs = if needs.is_empty() { Arc::default() } else { needs.into() };
        let dispatch = entry.tool.dispatch(&arguments);
        Ok(Admitted { entry: Arc::clone(entry), arguments, needs, dispatch })
    }

    /// Returns the text for a call of a tool that does not exist.
    #[must_use]
    pub fn missing_text(&self, name: &str) -> String {
        missing_text(name, self.names())
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.specs().map(|spec| &*spec.name)
    }

    /// Searches linearly: sending the tools to the model takes far longer, however many they are.
    fn find(&self, name: &str) -> Option<&Arc<RegisteredTool>> {
        self.0.iter().find(|entry| *entry.spec.name == *name)
    }
}

/// Refuses approvals that nobody could decide.
fn check_approval(spec: &ToolSpec) -> Result<(), ToolRegistrationError> {
    let name = || Arc::clone(&spec.name);
    if spec.expires_after.is_some_and(|time| time.is_zero()) {
        return Err(ToolRegistrationError::ZeroExpiry(name()));
    }
    if spec.expires_after.is_some_and(|time| time > MAX_EXPIRY) {
        return Err(ToolRegistrationError::LongExpiry(name()));
    }
    match spec.approvers.names().any(|approver| approver.trim().is_empty()) {
        true => Err(ToolRegistrationError::BlankApprover(name())),
        false => Ok(()),
    }
}

/// The properties of a tool.
struct ToolProperties {
    spec: ToolSpec,
    checks_arguments: bool,
    stores_errors: bool,
    operator: Option<Box<str>>,
}

/// Reads the properties of a tool once, because its code may panic.
fn read_properties(tool: &dyn Tool) -> Result<ToolProperties, String> {
    let ask = AssertUnwindSafe(|| ToolProperties {
        spec: tool.spec().clone(),
        checks_arguments: tool.checks_arguments(),
        stores_errors: tool.stores_errors(),
        operator: tool.operator().map(Into::into),
    });
    catch_unwind(ask).map_err(text::panic_message)
}

impl Admitted {
    /// Returns the tool.
    #[must_use]
    pub fn tool(&self) -> &Arc<dyn Tool> {
        &self.entry.tool
    }

    /// Returns the spec of the tool when it was added.
    #[must_use]
    pub fn spec(&self) -> &ToolSpec {
        &self.entry.spec
    }

    /// Returns whether the tool's failures are stored.
    #[must_use]
    pub fn stores_errors(&self) -> bool {
        self.entry.stores_errors
    }

    /// Returns the name of the operator that the tool dispatches.
    #[must_use]
    pub fn operator(&self) -> Option<&str> {
        self.entry.operator.as_deref()
    }

    /// Returns the child run that the call starts, if it starts one.
    #[must_use]
    pub const fn dispatch(&self) -> Option<&DispatchSpec> {
        self.dispatch.as_ref()
    }

    /// Returns the needs of the call, which were granted.
    #[must_use]
    pub fn needs(&self) -> &Arc<[String]> {
        &self.needs
    }

    /// Checks an output against the tool's output schema, if it has one.
    ///
    /// # Errors
    ///
    /// [`ToolError::InvalidOutput`], which contains the output.
    pub fn check_output(&self, output: &JsonText) -> Result<(), ToolError> {
        match &self.entry.output {
            Some(schema) => schema.check(&output.value()).map_err(|misfit| {
                let misfit = misfit
                    .with_schema(|| format!("the output schema of `{}`", self.entry.spec.name));
                ToolError::InvalidOutput(misfit.to_string()).with_output(output.display_text())
            }),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Toolset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// Error for a name that no tool has.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no tool named `{name}`")]
#[non_exhaustive]
pub struct ToolNotFound {
    /// The name.
    pub name: Arc<str>,
    /// The most similar name.
    pub nearest: Option<Arc<str>>,
}

impl Failure for ToolNotFound {
    fn facts(&self) -> Facts {
        Facts::never(code::CONFIG_INVALID, Effect::None)
    }
}

/// The reason that a tool cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ToolRegistrationError {
    /// An approver of the tool's calls has no name.
    ///
    /// Retry: never. Effect: none.
    #[error("an approver of tool `{0}` has no name")]
    BlankApprover(Arc<str>),
    /// The tool declares an invalid capability.
    ///
    /// Retry: never. Effect: none.
    #[error("capability `{capability}` of tool `{tool}` is not valid: {why}")]
    #[non_exhaustive]
    Capability {
        /// The tool.
        tool: Arc<str>,
        /// The capability.
        capability: Arc<str>,
        /// Reason that it is not valid.
        why: String,
    },
    /// A tool with this name is already registered.
    ///
    /// Retry: never. Effect: none.
    #[error("there is already a tool named `{0}`")]
    Duplicate(Arc<str>),
    /// Another tool has the same name for a provider, which allows fewer characters.
    ///
    /// Retry: never. Effect: none.
    #[error("tool `{name}` and tool `{other}` are both `{mapped}` to a provider")]
    #[non_exhaustive]
    Alike {
        /// The tool.
        name: Arc<str>,
        /// The existing tool.
        other: Arc<str>,
        /// The name of both for a provider.
        mapped: Arc<str>,
    },
    /// The name of the tool is invalid.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid name")]
    Name(#[from] NameError),
    /// The tool panicked while it was asked for its description; the panic was caught.
    ///
    /// Retry: never. Effect: none.
    #[error("a tool panicked when it was asked what it is: {0}")]
    Panicked(String),
    /// A schema is not valid JSON Schema.
    ///
    /// Retry: never. Effect: none.
    #[error("the schema of tool `{tool}` is not valid: {why}")]
    #[non_exhaustive]
    Schema {
        /// The tool.
        tool: Arc<str>,
        /// Reason that it is not valid.
        why: String,
    },
    /// The approvals of the tool expire at a time that cannot be printed.
    ///
    /// Retry: never. Effect: none.
    #[error("the approvals of tool `{0}` must expire before the year 9999: leave the time out")]
    LongExpiry(Arc<str>),
    /// The approvals of the tool expire at once.
    ///
    /// Retry: never. Effect: none.
    #[error("the approvals of tool `{0}` must not expire at once")]
    ZeroExpiry(Arc<str>),
    /// The timeout of the tool is zero.
    ///
    /// Retry: never. Effect: none.
    #[error("the timeout of tool `{0}` must not be zero")]
    ZeroTimeout(Arc<str>),
}

impl ToolRegistrationError {
    /// Returns the name of the tool; `None` if it is invalid or unknown.
    ///
    /// ```
    /// use backstop_tool::ToolRegistrationError;
    ///
    /// let error = ToolRegistrationError::ZeroTimeout("search".into());
    /// assert_eq!(error.tool(), Some("search"));
    /// ```
    #[must_use]
    pub fn tool(&self) -> Option<&str> {
        match self {
            Self::BlankApprover(name)
            | Self::Duplicate(name)
            | Self::LongExpiry(name)
            | Self::ZeroExpiry(name)
            | Self::ZeroTimeout(name)
            | Self::Alike { name, .. }
            | Self::Capability { tool: name, .. }
            | Self::Schema { tool: name, .. } => Some(name),
            Self::Name(_) | Self::Panicked(_) => None,
        }
    }
}

impl Failure for ToolRegistrationError {
    fn facts(&self) -> Facts {
        match self {
            Self::BlankApprover(_)
            | Self::Capability { .. }
            | Self::Duplicate(_)
            | Self::Alike { .. }
            | Self::Name(_)
            | Self::Panicked(_)
            | Self::Schema { .. }
            | Self::LongExpiry(_)
            | Self::ZeroExpiry(_)
            | Self::ZeroTimeout(_) => Facts::never(code::CONFIG_INVALID, Effect::None),
        }
    }
}
