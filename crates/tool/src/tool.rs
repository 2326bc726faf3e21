use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use backstop_redact::Redactor;
use layer0::error::{BoxError, OperatorError};
use layer0::failure::Chain;
use layer0::id::{CallId, RunId, SessionId};
use layer0::message::Image;
use layer0::operator::{Answer, Context, Task};
use layer0::usage::Allowance;
use layer0::{JsonText, Orchestrator, Timestamp, ToolSpec, push_hex};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::{
    Arguments, Given, Grants, NotShown, PartialOutput, People, ShownImages, StateType, Stderr,
    ToolError,
};

/// A tool that the model can call.
///
/// ```
/// use backstop_tool::{Arguments, Tool, ToolContext, ToolError, ToolSpec};
/// use layer0::JsonText;
/// use serde_json::json;
///
/// struct Add(ToolSpec);
///
/// impl Add {
///     fn new() -> Self {
///         let numbers = json!({
///             "type": "object",
///             "properties": { "x": { "type": "integer" }, "y": { "type": "integer" } },
///             "required": ["x", "y"]
///         });
///         Self(ToolSpec::new("add", "Add two numbers.", numbers).idempotent())
///     }
/// }
///
/// #[async_trait::async_trait]
/// impl Tool for Add {
///     fn spec(&self) -> &ToolSpec {
///         &self.0
///     }
///
///     async fn call(&self, arguments: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
///         let (x, y) = (arguments.whole_number("x")?, arguments.whole_number("y")?);
///         Ok(json!(x.unwrap_or(0) + y.unwrap_or(0)).into())
///     }
/// }
/// assert_eq!(Add::new().spec().name.as_ref(), "add");
/// ```
#[async_trait]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no tool",
    label = "this is no tool",
    note = "`#[backstop::tool]` on an `async fn` makes one of it; `FnTool` makes one of a closure"
)]
pub trait Tool: Send + Sync {
    /// Returns the spec of the tool; the same at every call.
    fn spec(&self) -> &ToolSpec;

    /// Returns the needs of a call with these arguments beyond the spec's capabilities, such as `fs:read:/data/a.csv`.
    ///
    /// # Errors
    ///
    /// [`ToolError::InvalidInput`] if an argument names something that cannot exist.
    fn needs(&self, arguments: &Arguments) -> Result<Vec<String>, ToolError> {
        let _ = arguments;
        Ok(Vec::new())
    }

    /// Returns the text for one of the call's needs in a denial. A tool whose needs reveal more than the model may
    /// learn, such as the target of a link, returns the text of the arguments instead.
    fn describe_denied_need(&self, arguments: &Arguments, need: &str) -> String {
        let _ = arguments;
        need.to_owned()
    }

    /// Returns whether the tool itself checks, in [`Tool::call`], that its arguments fit its schema, and refuses others
    /// with [`ToolError::InvalidInput`]. A tool whose arguments are decoded into a type does. Without the feature `json-schema` only such tools can be added: their
    /// schemas are shown to the model and not compiled.
    fn checks_arguments(&self) -> bool {
        false
    }

    /// Returns the author's code for arguments that do not fit the schema.
    fn input_code(&self) -> Option<&str> {
        None
    }

    /// Returns whether the tool's failures are stored, which is not useful for a tool that reads stored errors. The
    /// same at every call.
    fn stores_errors(&self) -> bool {
        true
    }

    /// Returns the type of the state that it takes ([`State`]); an agent without such a state cannot be built.
    ///
    /// [`State`]: crate::State
    fn state_type(&self) -> Option<StateType> {
        None
    }

    /// Returns the child run that a call with these arguments starts, if it starts one, as an agent that is a tool
    /// does. The child runs of one model answer run concurrently.
    fn dispatch(&self, arguments: &Arguments) -> Option<DispatchSpec> {
        let _ = arguments;
        None
    }

    /// Returns the name of the operator in the run's orchestrator that every call of the tool dispatches, if any. It is
    /// looked up when the agent is registered there, and before each call.
    fn operator(&self) -> Option<&str> {
        None
    }

    /// Returns the arguments in the form in which a person approves them, such as with a diff of the change; `None` if
    /// they are complete as they are. It is called only if a person decides about the call, once its arguments match
    /// the schema and policy has granted its needs. The returned arguments are shown, recorded and, once approved, run;
    /// they have to match the schema too.
    ///
    /// # Errors
    ///
    /// The reason that no approval is needed: the call fails with this error.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped at the tool's timeout and when the run is stopped.
    async fn proposal(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<Option<JsonText>, ToolError> {
        let _ = (arguments, context);
        Ok(None)
    }

    /// Returns whether the call with the context's idempotency key happened, for a tool whose spec allows it
    /// ([`ToolSpec::probe`](layer0::ToolSpec::probe)). It is called before a call of unknown outcome is answered as
    /// interrupted, and after a failed call that may have acted; never for an idempotent tool. It must not act itself,
    /// and does not answer for another call.
    ///
    /// # Errors
    ///
    /// Any; then the outcome stays unknown.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped at the tool's timeout and when the run is stopped.
    async fn probe(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<Probe, ToolError> {
        let _ = (arguments, context);
        Ok(Probe::Unknown)
    }

    /// Runs the tool. The arguments match its schema, unless it checks them itself ([`Tool::checks_arguments`]), and
    /// policy has granted its needs. A [`Value`] converts into the output.
    ///
    /// # Errors
    ///
    /// Usually [`ToolError::ExecutionFailed`]; the whole text is stored for the model to request, so it need not be
    /// short.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped at timeout and cancellation, and the tool does not act afterwards: a task that it has
    /// spawned is aborted with the future. A tool that must not be interrupted half-way declares that by not being
    /// idempotent.
    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError>;
}

/// The answer of a tool about a call whose outcome is unknown.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Probe {
    /// It did not happen.
    DidNot,
    /// It happened, with its result if that is known.
    Happened(Option<JsonText>),
    /// The outcome remains unknown.
    Unknown,
}

impl Probe {
    /// Returns that the call happened, with its result.
    pub fn happened_with(output: impl Into<JsonText>) -> Self {
        Self::Happened(Some(output.into()))
    }
}

/// A child run that a call starts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatchSpec {
    /// The operator of the child run.
    pub operator: Arc<str>,
    /// SHA-256, in hex, of its input.
    pub input_digest: Arc<str>,
    /// Whether its cost will be known.
    pub is_priced: bool,
    /// Maximum depth of its dispatch; no limit if `None`.
    pub max_depth: Option<u32>,
    /// Whether it keeps a record, from which it can resume after its process died. If `None`, its orchestrator decides.
    pub can_go_on: Option<bool>,
    /// Maximum part of its caller's budget, from its task.
    pub at_most: Option<Allowance>,
}

impl DispatchSpec {
    /// Returns the description of a child run.
    pub fn new(
        operator: impl Into<Arc<str>>,
        input_digest: impl Into<Arc<str>>,
        is_priced: bool,
    ) -> Self {
        Self {
            operator: operator.into(),
            input_digest: input_digest.into(),
            is_priced,
            max_depth: None,
            can_go_on: None,
            at_most: None,
        }
    }

    /// Limits the part of its caller's budget that it may use.
    #[must_use]
    pub const fn at_most(mut self, allowance: Allowance) -> Self {
        self.at_most = Some(allowance);
        self
    }

    /// Sets whether the child run keeps a record. A call whose child run keeps none is handled like any tool call when
    /// its process dies: it is run again if the tool is idempotent, and answered as interrupted otherwise.
    #[must_use]
    pub const fn can_go_on(mut self, can_go_on: bool) -> Self {
        self.can_go_on = Some(can_go_on);
        self
    }

    /// Limits the depth of its dispatch.
    #[must_use]
    pub const fn max_depth(mut self, max_depth: Option<u32>) -> Self {
        self.max_depth = max_depth;
        self
    }
}

/// The context of a tool call.
#[derive(Clone)]
#[non_exhaustive]
pub struct ToolContext {
    /// The run.
    pub run: RunId,
    /// The session.
    pub session: SessionId,
    /// The call.
    pub call_id: CallId,
    /// The same text each time the same call runs, also after the run was reopened, and another text in a fork of the
    /// run; pass it to services that accept idempotency keys. `bs_` and the first 32 hex digits of SHA-256 over run and
    /// call.
    pub idempotency_key: String,
    /// The time limit of the call as it was when the call began. The limit is extended by the time for which the call
    /// waits for a person, or for which all its child runs wait.
    pub deadline: Timestamp,
    /// The needs of the call ([`Tool::needs`]), which were granted. A tool that names a resource twice, once for the
    /// check and once for its use, compares the used one with this.
    pub granted: Arc<[String]>,
    /// The grants of the agent. A tool that learns a need only while it runs, such as the target of a redirect, checks
    /// it here before it continues.
    pub grants: Grants,
    /// The sessions whose stored errors and results the call may read: its own, then those of the origins of its run,
    /// if that is a fork.
    pub sessions: Arc<[SessionId]>,
    /// The depth of the run below its root.
    pub depth: u32,
    /// Redactor with the secrets of the process. A tool's errors are redacted anyway; a tool that encodes bytes removes
    /// secrets before that, because they cannot be found in Base64.
    pub redactor: Redactor,
    /// Cancelled when the call is given up: at its timeout, and when the run is stopped. The future is dropped in any
    /// case; code that blocks its thread has to check the token.
    pub cancellation: CancellationToken,
    /// Access to the output written so far, which a tool can set up: it is stored with the error if the call times out.
    pub written: PartialOutput,
    /// The data that a person gave with the approval of the call, if its spec requests data
    /// ([`ToolSpec::asks`](layer0::ToolSpec::asks)). It fits the schema.
    pub approval_data: Option<JsonText>,
    /// The run's position in a distributed trace, as W3C `traceparent`, if its caller gave one; for the tool's own
    /// requests.
    pub trace_parent: Option<Arc<str>>,
    /// The state that the application gave the agent; see [`ToolContext::state`].
    pub app_state: Option<Arc<dyn Any + Send + Sync>>,
    /// Images that the tool shows in addition to its output; see [`ToolContext::show_image`].
    pub images: ShownImages,
    /// Standard error of the tool; the model reads it after the output of a call that succeeds.
    pub stderr: Stderr,
    /// Orchestrator through which the tool dispatches other operators; see [`ToolContext::dispatch`].
    pub operators: Option<Arc<dyn Orchestrator>>,
    /// Interface to people; see [`ToolContext::ask_person`]. `None` outside of a run.
    pub people: Option<Arc<dyn People>>,
    /// Data of the runtime for its own tools; `None` outside of a run.
    #[doc(hidden)]
    pub runtime: Option<Arc<dyn Any + Send + Sync>>,
}

impl ToolContext {
    /// Returns the context of one call.
    #[must_use]
    pub fn new(run: RunId, session: SessionId, call_id: CallId, deadline: Timestamp) -> Self {
        let sessions = Arc::from([session.clone()]);
        Self::reading(run, session, sessions, call_id, deadline)
    }

    /// Returns the context of one call that may read the stored errors and results of these sessions.
    #[must_use]
    pub fn reading(
        run: RunId,
        session: SessionId,
        sessions: Arc<[SessionId]>,
        call_id: CallId,
        deadline: Timestamp,
    ) -> Self {
        let idempotency_key = idempotency_key(&run, &call_id);
        Self {
            run,
            sessions,
            session,
            call_id,
            idempotency_key,
            deadline,
            granted: Arc::default(),
            grants: Grants::none(),
            depth: 0,
            redactor: Redactor::new(),
            cancellation: CancellationToken::new(),
            written: PartialOutput::default(),
            trace_parent: None,
            approval_data: None,
            app_state: None,
            images: ShownImages::default(),
            stderr: Stderr::default(),
            operators: None,
            people: None,
            runtime: None,
        }
    }

    /// Dispatches another operator of the run's orchestrator as a child run, within the run's budget, depth and time,
    /// in its session. The run records the dispatch before it starts, and ends it with the call.
    ///
    /// # Errors
    ///
    /// [`OperatorError::SubDispatch`], with the error of the orchestrator inside.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the operator, which closes its record by itself.
    pub async fn dispatch(&self, operator: &str, task: Task) -> Result<Answer, OperatorError> {
        let Some(operators) = &self.operators else {
            return Err(OperatorError::cannot_dispatch(operator, "the call is outside of a run"));
        };
        operators
            .dispatch(operator, task, Context::root())
            .await
            .map_err(|error| OperatorError::sub_dispatch(operator, error))
    }

    /// Asks a person, while the tool is running, for data that fits a JSON Schema. If the agent has an approver in this
    /// process ([`Approver`]), the approver is asked, and the record has the approval, the answer and who gave it;
    /// otherwise the answer is [`Given::NobodyThere`] at once. The tool's time does not pass meanwhile. Concurrent
    /// requests of one call are made one after the other.
    ///
    /// ```
    /// # use backstop_tool::{Given, ToolContext, ToolError};
    /// # use serde_json::json;
    /// # async fn deliver(context: &ToolContext) -> Result<String, ToolError> {
    /// let day = json!({"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]});
    /// match context.ask_person("When may it be delivered?", day).await? {
    ///     Given::Data(data) => Ok(format!("delivered: {data}")),
    ///     _ => Err(ToolError::ExecutionFailed("no day was given".into())),
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ToolError::ExecutionFailed`] if the schema is not valid.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request: the approval is closed as expired.
    ///
    /// [`Approver`]: https://docs.rs/backstop-react/latest/backstop_react/trait.Approver.html
    pub async fn ask_person(
        &self,
        message: &str,
        schema: impl Into<JsonText> + Send,
    ) -> Result<Given, ToolError> {
        match &self.people {
            Some(people) => people.ask(message, schema.into()).await,
            None => Ok(Given::NobodyThere),
        }
    }

    /// Shows the model an image in addition to the output. The record contains it; a failed call shows none. A model
    /// whose provider accepts no images of tools reads only the output, which should mention the image.
    ///
    /// ```
    /// # use backstop_tool::{ToolContext, ToolError};
    /// use layer0::failure::Chain;
    /// use layer0::message::Image;
    ///
    /// # fn draw() -> Vec<u8> { b"GIF89a".to_vec() }
    /// # async fn chart(context: &ToolContext) -> Result<String, ToolError> {
    /// let drawn = Image::from_bytes(&draw()).map_err(|why| ToolError::ExecutionFailed(why.to_string()))?;
    /// Ok(match context.show_image(drawn) {
    ///     Ok(()) => "[a chart of the year]".to_owned(),
    ///     Err(why) => format!("[a chart of the year, not shown: {}]", Chain(&why)),
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotShown`]: one call shows at most four images of at most 3 MiB, and none that contains a secret.
    pub fn show_image(&self, image: Image) -> Result<(), NotShown> {
        self.images.show(image, &self.redactor)
    }

    /// Returns the state that the application gave the agent, if it has this type.
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

/// Returns the key of a call. The id of a run contains no NUL, so that no other run and call have the same key.
fn idempotency_key(run: &RunId, call: &CallId) -> String {
    let digest = Sha256::new().chain_update(run.as_str()).chain_update([0]);
    let digest = digest.chain_update(call.as_str()).finalize();
    let mut key = String::with_capacity(3 + 32);
    key.push_str("bs_");
    push_hex(&mut key, &digest[..16]);
    key
}

/// Returns the JSON Schema of a tool's arguments.
#[must_use]
pub fn generate_schema<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    schema.to_value()
}

/// Decodes checked arguments into a tool's parameters.
///
/// # Errors
///
/// [`ToolError::InvalidInput`] for a restriction that a schema cannot express, such as the range of a number.
pub fn decode_arguments<T: DeserializeOwned>(arguments: &Arguments) -> Result<T, ToolError> {
    arguments.read().map_err(|error| {
        // The argument at fault is searched only after an error.
        let place = serde_path_to_error::deserialize::<_, T>(arguments.value()).err();
        let place = place.map(|error| error.path().to_string()).filter(|path| path != ".");
        let named = place.map(|path| format!("{path}: "));
        ToolError::InvalidInput(format!("{}{error}", named.unwrap_or_default()))
    })
}

/// Converts the result of a tool function into its output.
///
/// # Errors
///
/// The function's own [`ToolError`], any other error as [`ToolError::ExecutionFailed`] with its whole chain, and
/// [`ToolError::InvalidOutput`] for a value that is not JSON.
pub fn encode_output<T: Serialize, E: Into<BoxError>>(
    result: Result<T, E>,
) -> Result<JsonText, ToolError> {
    match result {
        Ok(output) => match serde_json::to_string(&output) {
            // A value that is nested too deeply for a record becomes text.
            Ok(text) => Ok(JsonText::parse(&text).unwrap_or_else(|_| JsonText::string(&text))),
            Err(error) => Err(ToolError::InvalidOutput(error.to_string())),
        },
        Err(error) => Err(tool_error(error)),
    }
}

/// Converts the result of the probe of a tool function.
///
/// # Errors
///
/// As [`encode_output`].
pub fn encode_probe<E: Into<BoxError>>(result: Result<Probe, E>) -> Result<Probe, ToolError> {
    result.map_err(tool_error)
}

fn tool_error(error: impl Into<BoxError>) -> ToolError {
    match error.into().downcast::<ToolError>() {
        Ok(error) => *error,
        Err(error) => ToolError::ExecutionFailed(Chain(&*error).to_string()),
    }
}
