use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use layer0::error::BoxError;
use layer0::failure::Chain;
use layer0::id::{CallId, RunId, SessionId};
use layer0::{Timestamp, ToolSpec};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::ToolError;

/// Does one thing in the world for the model.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Describes the tool; the same at every call.
    fn spec(&self) -> &ToolSpec;

    /// Returns what a call with these arguments needs beyond the spec's capabilities, such as
    /// `fs:read:/data/a.csv`.
    ///
    /// # Errors
    ///
    /// [`ToolError::InvalidInput`] when the arguments name something that cannot be.
    fn needs(&self, arguments: &Value) -> Result<Vec<String>, ToolError> {
        let _ = arguments;
        Ok(Vec::new())
    }

    /// Returns the author's code for arguments that do not fit the schema.
    fn input_code(&self) -> Option<&str> {
        None
    }

    /// Are the tool's failures worth storing? Not those of a tool that reads stored errors. The same at
    /// every call.
    fn stores_errors(&self) -> bool {
        true
    }

    /// Runs the tool. The arguments match its schema and policy has granted what it needs.
    ///
    /// # Errors
    ///
    /// Usually [`ToolError::ExecutionFailed`]; the whole text is kept for whoever asks for it, so
    /// it need not be short.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped at timeout and cancellation. A tool that must not be left half done
    /// says so by not being idempotent.
    async fn call(&self, arguments: &Value, context: &ToolContext) -> Result<Value, ToolError>;
}

/// What a tool may know of the call it serves.
#[derive(Clone)]
#[non_exhaustive]
pub struct ToolContext {
    /// The run.
    pub run: RunId,
    /// The conversation.
    pub session: SessionId,
    /// The call.
    pub call_id: CallId,
    /// The same text when the same call is run again; give it to services that know such keys.
    pub idempotency_key: String,
    /// When the call will be given up.
    pub deadline: Timestamp,
    /// What the call said it needs ([`Tool::needs`]) and was granted. A tool that names a thing
    /// twice, once to be judged and once to use it, compares what it holds with this.
    pub granted: Arc<[String]>,
    /// The conversations whose stored errors and results the call may read: its own, then those of
    /// the runs that its run is a copy of.
    pub sessions: Arc<[SessionId]>,
    /// How many dispatches are above the run.
    pub depth: u32,
    /// Is cancelled when the call is given up: at its timeout, and when the run is stopped. The
    /// future is dropped then anyway; code that blocks its thread has to look.
    pub cancellation: CancellationToken,
    /// What the application gave the agent; see [`ToolContext::state`].
    pub app_state: Option<Arc<dyn Any + Send + Sync>>,
}

impl ToolContext {
    /// Makes the context of one call.
    #[must_use]
    pub fn new(run: RunId, session: SessionId, call_id: CallId, deadline: Timestamp) -> Self {
        let idempotency_key = [run.as_str(), "/", call_id.as_str()].concat();
        Self {
            run,
            sessions: Arc::from([session.clone()]),
            session,
            call_id,
            idempotency_key,
            deadline,
            granted: Arc::default(),
            depth: 0,
            cancellation: CancellationToken::new(),
            app_state: None,
        }
    }

    /// Returns what the application gave the agent, if it is of this type.
    #[must_use]
    pub fn state<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.app_state.as_ref()?.downcast_ref()
    }
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("run", &self.run)
            .field("session", &self.session)
            .field("call_id", &self.call_id)
            .field("deadline", &self.deadline)
            .field("granted", &self.granted)
            .field("depth", &self.depth)
            .finish_non_exhaustive()
    }
}

/// Returns the JSON Schema of a tool's arguments.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    schema.to_value()
}

/// Reads checked arguments into a tool's parameters.
///
/// # Errors
///
/// [`ToolError::InvalidInput`] for what a schema cannot say, such as a number out of range.
pub fn decode_arguments<T: DeserializeOwned>(arguments: &Value) -> Result<T, ToolError> {
    T::deserialize(arguments).map_err(|error| ToolError::InvalidInput(error.to_string()))
}

/// Turns what a tool function returned into its output.
///
/// # Errors
///
/// The function's own [`ToolError`], any other error as [`ToolError::ExecutionFailed`] with its
/// whole chain, and [`ToolError::InvalidOutput`] for a value that is no JSON.
pub fn encode_output<T: Serialize, E: Into<BoxError>>(
    result: Result<T, E>,
) -> Result<Value, ToolError> {
    match result {
        Ok(output) => serde_json::to_value(output)
            .map_err(|error| ToolError::InvalidOutput(error.to_string())),
        Err(error) => Err(match error.into().downcast::<ToolError>() {
            Ok(error) => *error,
            Err(error) => ToolError::ExecutionFailed(Chain(&*error).to_string()),
        }),
    }
}
