use std::fmt;
use std::sync::Arc;

use layer0::{JsonText, ToolSpec};
use serde_json::Value;
use thiserror::Error;

use crate::policy::Grants;
use crate::text::{missing_text, nearest};
use crate::validate::{self, Schema, is_deeper};
use crate::{Tool, ToolError};

/// How deep a schema may be nested. Its text has to be read again inside that of its agent, which
/// serde_json does down to 128.
const MAX_SCHEMA_DEPTH: usize = 100;

/// The tools of an agent, in the order the model sees them. Cloning copies no tool.
#[derive(Clone, Default)]
pub struct Toolset(Vec<Arc<Entry>>);

#[derive(Clone)]
struct Entry {
    tool: Arc<dyn Tool>,
    /// What the tool said of itself when it was added.
    spec: ToolSpec,
    input: Schema,
    output: Option<Schema>,
}

/// A call that may run: the tool was found, its arguments fit and its needs are granted.
#[derive(Clone)]
pub struct Admitted {
    entry: Arc<Entry>,
    /// The arguments.
    pub arguments: Arc<Value>,
    needs: Arc<[String]>,
}

impl Toolset {
    /// Makes an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool.
    ///
    /// # Errors
    ///
    /// [`RegistrationError`], when its name is empty or taken, or a schema is not valid.
    pub fn with(mut self, tool: impl Tool + 'static) -> Result<Self, RegistrationError> {
        self.add(Arc::new(tool))?;
        Ok(self)
    }

    /// Adds a shared tool.
    ///
    /// # Errors
    ///
    /// As [`Toolset::with`]; then the set is unchanged.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistrationError> {
        let spec = tool.spec().clone();
        let name = Arc::clone(&spec.name);
        if name.trim().is_empty() {
            return Err(RegistrationError::EmptyName);
        }
        if self.contains(&name) {
            return Err(RegistrationError::Duplicate(name));
        }
        let compile = |schema: &JsonText| {
            let why = |why: String| RegistrationError::Schema { tool: Arc::clone(&name), why };
            let schema: Value = schema.read().map_err(|error| why(error.to_string()))?;
            if is_deeper(&schema, MAX_SCHEMA_DEPTH) {
                return Err(why(format!("it is nested deeper than {MAX_SCHEMA_DEPTH} levels")));
            }
            Schema::new(&schema).map_err(|error| why(error.to_string()))
        };
        let input = compile(&spec.schema)?;
        let output = spec.output_schema.as_ref().map(compile).transpose()?;
        // Tools are added once and held for long.
        self.0.reserve_exact(1);
        self.0.push(Arc::new(Entry { tool, spec, input, output }));
        Ok(())
    }

    /// Is there a tool of this name?
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Lets a person agree to every call of a tool, whatever the tool itself says.
    ///
    /// # Errors
    ///
    /// [`ToolNotFound`], naming the tool that comes nearest.
    pub fn require_approval(&mut self, name: &str) -> Result<(), ToolNotFound> {
        let Some(entry) = self.0.iter_mut().find(|entry| *entry.spec.name == *name) else {
            let nearest = nearest(name, self.names());
            return Err(ToolNotFound { name: name.into(), nearest: nearest.map(Into::into) });
        };
        if !entry.spec.approval {
            let spec = entry.spec.clone().approval();
            *entry = Arc::new(Entry { spec, ..Entry::clone(entry) });
        }
        Ok(())
    }

    /// Returns what the tools say of themselves, in order.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.0.iter().map(|entry| &entry.spec)
    }

    /// Decides whether a call may run: finds the tool, checks the arguments, asks the policy.
    ///
    /// # Errors
    ///
    /// [`ToolError::NotFound`], [`ToolError::InvalidInput`], [`ToolError::PermissionDenied`].
    pub fn admit(
        &self,
        name: &str,
        arguments: impl Into<Arc<Value>>,
        grants: &Grants,
    ) -> Result<Admitted, ToolError> {
        let entry = self.find(name).ok_or_else(|| ToolError::NotFound(name.to_owned()))?;
        let arguments = arguments.into();
        let checked = match &*arguments {
            Value::String(text) => Err(validate::unparsed(text)),
            arguments => entry.input.check_arguments(arguments),
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
        match spec.capabilities.iter().chain(&needs).find(|needed| !grants.allow(needed)) {
            Some(missing) => Err(ToolError::permission_denied(&*spec.name, missing)),
            None if needs.is_empty() => Ok(Admitted::new(entry, arguments, Arc::default())),
            None => Ok(Admitted::new(entry, arguments, needs.into())),
        }
    }

    /// Returns the text for a call of a tool that does not exist.
    #[must_use]
    pub fn missing_text(&self, name: &str) -> String {
        missing_text(name, self.names())
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.specs().map(|spec| &*spec.name)
    }

    /// Looks at one after the other: sending them to the model takes far longer, however many they
    /// are.
    fn find(&self, name: &str) -> Option<&Arc<Entry>> {
        self.0.iter().find(|entry| *entry.spec.name == *name)
    }
}

impl Admitted {
    fn new(entry: &Arc<Entry>, arguments: Arc<Value>, needs: Arc<[String]>) -> Self {
        Self { entry: Arc::clone(entry), arguments, needs }
    }

    /// Returns the tool.
    #[must_use]
    pub fn tool(&self) -> &Arc<dyn Tool> {
        &self.entry.tool
    }

    /// Returns what the tool said of itself when it was added.
    #[must_use]
    pub fn spec(&self) -> &ToolSpec {
        &self.entry.spec
    }

    /// Are the tool's failures stored?
    #[must_use]
    pub fn stores_errors(&self) -> bool {
        self.entry.tool.stores_errors()
    }

    /// Returns what the call said it needs and was granted.
    #[must_use]
    pub fn needs(&self) -> &Arc<[String]> {
        &self.needs
    }

    /// Checks what the tool returned against its output schema, where it declares one.
    ///
    /// # Errors
    ///
    /// [`ToolError::InvalidOutput`].
    pub fn check_output(&self, output: &Value) -> Result<(), ToolError> {
        match &self.entry.output {
            Some(schema) => {
                schema.check(output).map_err(|misfit| ToolError::InvalidOutput(misfit.to_string()))
            }
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Toolset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// Says that no tool has this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no tool named `{name}`")]
#[non_exhaustive]
pub struct ToolNotFound {
    /// The name.
    pub name: Arc<str>,
    /// The name that comes nearest.
    pub nearest: Option<Arc<str>>,
}

/// Says why a tool cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// There is already a tool of this name.
    #[error("there is already a tool named `{0}`")]
    Duplicate(Arc<str>),
    /// The name is empty.
    #[error("a tool needs a name")]
    EmptyName,
    /// A schema is not valid JSON Schema.
    #[error("the schema of tool `{tool}` is not valid: {why}")]
    #[non_exhaustive]
    Schema {
        /// The tool.
        tool: Arc<str>,
        /// What is wrong with it.
        why: String,
    },
}
