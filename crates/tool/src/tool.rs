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
    Arguments, Given, Grants, NotShown, People, ShownImages, StateType, Stderr, ToolError, Written,
};

/// Does one thing in the world for the model.
#[async_trait]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no tool",
    label = "this is no tool",
    note = "`#[backstop::tool]` on an `async fn` makes one of it; `FnTool` makes one of a closure"
)]
pub trait Tool: Send + Sync {
    /// Describes the tool; the same at every call.
    fn spec(&self) -> &ToolSpec;

    /// Returns what a call with these arguments needs beyond the spec's capabilities, such as
    /// `fs:read:/data/a.csv`.
    ///
    /// # Errors
    ///
    /// [`ToolError::InvalidInput`] when the arguments name something that cannot be.
    fn needs(&self, arguments: &Arguments) -> Result<Vec<String>, ToolError> {
        let _ = arguments;
        Ok(Vec::new())
    }

    /// Returns how a denial names one of the call's needs. A tool whose needs say more than the model
    /// may learn, such as where a link leads, names what the arguments name.
    fn denied(&self, arguments: &Arguments, need: &str) -> String {
        let _ = arguments;
        need.to_owned()
    }

    /// Returns whether an argument that is `null`, and need not be there, counts as left out where the schema lets it not
    /// be `null`. Models write so what others describe, and their servers may refuse it.
    fn omits_nulls(&self) -> bool {
        false
    }

    /// Does the tool check by itself, in [`Tool::call`], that its arguments are what its schema says? One
    /// whose arguments are read into a type does. Without the feature `json-schema` only such tools can
    /// be added: their schemas are shown to the model and not compiled.
    fn checks_arguments(&self) -> bool {
        false
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

    /// Returns the type of the state it takes ([`State`]); an agent that has no such state is not built.
    ///
    /// [`State`]: crate::State
    fn state_type(&self) -> Option<StateType> {
        None
    }

    /// Returns what a call with these arguments starts, if it starts a run that counts for its caller's,
    /// as an agent that is a tool does. Those of one answer run side by side.
    fn dispatch(&self, arguments: &Arguments) -> Option<DispatchSpec> {
        let _ = arguments;
        None
    }

    /// Returns the operator of the run's orchestrator that every call of the tool dispatches, if it names
    /// one. It is looked for when the agent is registered there, and before each call.
    fn operator(&self) -> Option<&str> {
        None
    }

    /// Returns the arguments as a person is asked to agree to them, such as with a diff of what the call
    /// would change; `None` where they say it all. It is asked of a call that a person decides, once
    /// its arguments match the schema and policy has granted what it needs. What it returns is what is
    /// shown, recorded and, once a person agreed, run; it has to match the schema too.
    ///
    /// # Errors
    ///
    /// Why no person need be asked: the call is answered with it.
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

    /// Says whether the call with the context's idempotency key happened, where its spec says that the tool
    /// can ([`ToolSpec::probe`](layer0::ToolSpec::probe)). It is asked before a call of unknown outcome is
    /// answered as interrupted, and when a call failed that may have acted; never of an idempotent tool. It
    /// must not act itself.
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

    /// Runs the tool. The arguments match its schema, unless it said that it checks them
    /// ([`Tool::checks_arguments`]), and policy has granted what it needs. A [`Value`] converts into the
    /// output.
    ///
    /// # Errors
    ///
    /// Usually [`ToolError::ExecutionFailed`]; the whole text is kept for the model to ask for, so
    /// it need not be short.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped at timeout and cancellation. A tool that must not be left half done
    /// says so by not being idempotent.
    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError>;
}

/// What a tool says of a call whose outcome is unknown.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Probe {
    /// It did not happen.
    DidNot,
    /// It happened, with this result where it is known.
    Happened(Option<JsonText>),
    /// It cannot be said.
    Unknown,
}

impl Probe {
    /// It happened, and this is what it answered.
    pub fn happened(output: impl Into<JsonText>) -> Self {
        Self::Happened(Some(output.into()))
    }
}

/// A run that a call starts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatchSpec {
    /// The operator that runs.
    pub operator: Arc<str>,
    /// SHA-256, in hex, of what it is asked.
    pub input_digest: Arc<str>,
    /// Will be known what it costs?
    pub is_priced: bool,
    /// How many dispatches may be above it; without bound where `None`.
    pub max_depth: Option<u32>,
    /// Does it keep a record, to be gone on with after a process died? Where `None`, its orchestrator knows.
    pub can_go_on: Option<bool>,
    /// What it may use of its caller's budget at most, as its task says.
    pub at_most: Option<Allowance>,
}

impl DispatchSpec {
    /// Describes a run.
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

    /// Bounds what it may use of its caller's budget.
    #[must_use]
    pub const fn at_most(mut self, allowance: Allowance) -> Self {
        self.at_most = Some(allowance);
        self
    }

    /// States whether the run keeps a record. A call whose run keeps none is treated as one of any tool when
    /// its process dies: it is run again if the tool is idempotent, and answered as interrupted otherwise.
    #[must_use]
    pub const fn can_go_on(mut self, can_go_on: bool) -> Self {
        self.can_go_on = Some(can_go_on);
        self
    }

    /// Bounds how many dispatches may be above it.
    #[must_use]
    pub const fn max_depth(mut self, max_depth: Option<u32>) -> Self {
        self.max_depth = max_depth;
        self
    }
}

/// What a tool may know of the call it serves.
#[derive(Clone)]
#[non_exhaustive]
pub struct ToolContext {
    /// The run.
    pub run: RunId,
    /// The session.
    pub session: SessionId,
    /// The call.
    pub call_id: CallId,
    /// The same text when the same call is run again, also after the run was reopened, and another one in
    /// a copy of the run; give it to services that know such keys. `bs_` and the first 32 hex digits of
    /// SHA-256 over run and call.
    pub idempotency_key: String,
    /// The time at which the call is given up if it waits for nobody, as it was when the call began. While it asks a person,
    /// or all that it dispatched waits, its time does not pass, and it has that much more.
    pub deadline: Timestamp,
    /// What the call said it needs ([`Tool::needs`]) and was granted. A tool that names a thing
    /// twice, once to be judged and once to use it, compares what it holds with this.
    pub granted: Arc<[String]>,
    /// What the agent may use. A tool that learns only while it runs what it needs, such as where a
    /// redirect leads, asks this before it goes on.
    pub grants: Grants,
    /// The sessions whose stored errors and results the call may read: its own, then those of
    /// the runs that its run is a copy of.
    pub sessions: Arc<[SessionId]>,
    /// How many dispatches are above the run.
    pub depth: u32,
    /// Knows the secrets of the process. What a tool fails with is redacted anyway; a tool that encodes
    /// bytes takes secrets out before, as they cannot be found in Base64.
    pub redactor: Redactor,
    /// Is cancelled when the call is given up: at its timeout, and when the run is stopped. The
    /// future is dropped then anyway; code that blocks its thread has to look.
    pub cancellation: CancellationToken,
    /// Where a tool says how to read what it has written so far: it is kept with the error when the
    /// call is timed out.
    pub written: Written,
    /// The data that a person gave with the approval of the call, where its spec asks for some
    /// ([`ToolSpec::asks`](layer0::ToolSpec::asks)). It fits the schema.
    pub approval_data: Option<JsonText>,
    /// The run's place in a distributed trace, as W3C `traceparent`, where its caller gave one; for what the tool
    /// asks in its turn.
    pub trace_parent: Option<Arc<str>>,
    /// What the application gave the agent; see [`ToolContext::state`].
    pub app_state: Option<Arc<dyn Any + Send + Sync>>,
    /// What the tool shows beside its output; see [`ToolContext::show_image`].
    pub images: ShownImages,
    /// What the tool wrote to standard error; the model reads it after the output of a call that succeeds.
    pub stderr: Stderr,
    /// What the tool dispatches other operators through; see [`ToolContext::dispatch`].
    pub operators: Option<Arc<dyn Orchestrator>>,
    /// Whom the tool asks; see [`ToolContext::ask_person`]. `None` outside of a run.
    pub people: Option<Arc<dyn People>>,
    /// What the runtime tells its own tools; `None` outside of a run.
    #[doc(hidden)]
    pub runtime: Option<Arc<dyn Any + Send + Sync>>,
}

impl ToolContext {
    /// Makes the context of one call.
    #[must_use]
    pub fn new(run: RunId, session: SessionId, call_id: CallId, deadline: Timestamp) -> Self {
        let sessions = Arc::from([session.clone()]);
        Self::reading(run, session, sessions, call_id, deadline)
    }

    /// Makes the context of one call that may read what is stored of these sessions.
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
            written: Written::default(),
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

    /// Calls another operator of the orchestrator in which the run is: below the run, within its budget,
    /// depth and time, in its session. The run records it before it starts, and ends it with the call.
    ///
    /// # Errors
    ///
    /// [`OperatorError::SubDispatch`], with what the orchestrator answered inside.
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

    /// Asks a person, while the tool is running, for data that fits a JSON Schema. Where the agent has an
    /// approver in this process ([`Approver`]), that is asked, and the record has the approval, what was given
    /// and by whom; elsewhere it is [`Given::NobodyThere`] at once. None of the tool's time passes meanwhile. What two
    /// tasks of a call ask at once is asked one after the other.
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
    /// [`ToolError::ExecutionFailed`] for a schema that is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws what is asked: the approval is closed as expired.
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

    /// Shows the model an image beside the output. The record holds it; a failed call shows none. A model whose
    /// provider takes no images of tools reads the output alone, which should say that there is one.
    ///
    /// ```
    /// # use backstop_tool::{ToolContext, ToolError};
    /// use layer0::message::Image;
    ///
    /// # fn draw() -> Vec<u8> { b"GIF89a".to_vec() }
    /// # async fn chart(context: &ToolContext) -> Result<String, ToolError> {
    /// let drawn = Image::from_bytes(&draw()).map_err(|why| ToolError::ExecutionFailed(why.to_string()))?;
    /// Ok(match context.show_image(drawn) {
    ///     Ok(()) => "[a chart of the year]".to_owned(),
    ///     Err(why) => format!("[a chart of the year, not shown: {why}]"),
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotShown`]: of one call, four images of at most 3 MiB are shown, and none in which a secret stands.
    pub fn show_image(&self, image: Image) -> Result<(), NotShown> {
        self.images.show(image, &self.redactor)
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

/// Makes the key of a call. The id of a run holds no NUL, so that no other run and call have the same.
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
pub fn decode_arguments<T: DeserializeOwned>(arguments: &Arguments) -> Result<T, ToolError> {
    arguments.read().map_err(|error| {
        // Which of them it was is looked for only when one does not fit.
        let place = serde_path_to_error::deserialize::<_, T>(arguments.value()).err();
        let place = place.map(|error| error.path().to_string()).filter(|path| path != ".");
        let named = place.map(|path| format!("{path}: "));
        ToolError::InvalidInput(format!("{}{error}", named.unwrap_or_default()))
    })
}

/// Turns what a tool function returned into its output.
///
/// # Errors
///
/// The function's own [`ToolError`], any other error as [`ToolError::ExecutionFailed`] with its
/// whole chain, and [`ToolError::InvalidOutput`] for a value that is no JSON.
pub fn encode_output<T: Serialize, E: Into<BoxError>>(
    result: Result<T, E>,
) -> Result<JsonText, ToolError> {
    match result {
        Ok(output) => match serde_json::to_string(&output) {
            // What is nested too deeply for a record is text.
            Ok(text) => Ok(JsonText::parse(&text).unwrap_or_else(|_| JsonText::string(&text))),
            Err(error) => Err(ToolError::InvalidOutput(error.to_string())),
        },
        Err(error) => Err(tool_error(error)),
    }
}

/// Turns what the probe of a tool function returned into what the runtime is told.
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
