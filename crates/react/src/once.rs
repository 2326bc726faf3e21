//! Tools whose calls are made once, whichever run makes them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_event_log::text_digest;
use backstop_tool::{Arguments, DispatchSpec, Probe, StateType, Tool, ToolContext, ToolError};
use layer0::error::StateError;
use layer0::failure::{Chain, Effect, Failure};
use layer0::state::{Expected, Scope, StateWrite, Versioned};
use layer0::{JsonText, StateStore, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How long is waited between two looks at a call that another run makes.
const WAIT: Duration = Duration::from_millis(100);

/// Makes each call of a tool once for each value of an argument, in all runs that share the state store. What the
/// first call answered is the answer of every later one, which says so.
pub(crate) struct Once {
    tool: Arc<dyn Tool>,
    name: Arc<str>,
    /// Where the argument stands.
    pointer: Arc<str>,
    store: Arc<dyn StateStore>,
    clock: Arc<dyn Clock>,
}

/// What is kept of a call.
#[derive(Debug, Serialize, Deserialize)]
struct Made {
    run: String,
    call_id: String,
    state: CallState,
    /// What it answered.
    output: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CallState {
    /// It is under way, or its process died.
    Begun,
    Done,
    /// It failed, and may have acted.
    Failed,
}

impl Once {
    /// Wraps a tool whose spec says which argument names what is done once.
    pub(crate) fn around(
        spec: &ToolSpec,
        tool: &Arc<dyn Tool>,
        store: &Arc<dyn StateStore>,
        clock: &Arc<dyn Clock>,
    ) -> Option<Arc<dyn Tool>> {
        let pointer = spec.once.clone()?;
        let (store, clock) = (Arc::clone(store), Arc::clone(clock));
        Some(Arc::new(Self {
            tool: Arc::clone(tool),
            pointer,
            name: Arc::clone(&spec.name),
            store,
            clock,
        }))
    }

    fn key(&self, arguments: &Arguments) -> Result<String, ToolError> {
        let value = arguments.value().pointer(&self.pointer).filter(|value| !value.is_null());
        let Some(value) = value else {
            let why = format!("`{}` says what is done once: it is required", self.pointer);
            return Err(ToolError::InvalidInput(why));
        };
        let digest = text_digest(JsonText::from(value).get());
        Ok(format!("once/{}/{digest}", self.name))
    }

    /// Notes how far the call is, over what is stored.
    async fn note(
        &self,
        key: &str,
        expected: Expected,
        context: &ToolContext,
        state: CallState,
        output: Option<Value>,
    ) -> Result<u64, StateError> {
        let (run, call_id) = (context.run.to_string(), context.call_id.to_string());
        let made = json!(Made { run, call_id, state, output });
        let write = StateWrite::new(Scope::Global, key, made).expecting(expected);
        self.store.write(write).await
    }

    /// Claims the call for this run, or returns what another one answered.
    async fn claim(&self, key: &str, context: &ToolContext) -> Result<Claim, ToolError> {
        let mut expected = Some(Expected::Absent);
        loop {
            if let Some(expected) = expected.take() {
                match self.note(key, expected, context, CallState::Begun, None).await {
                    Ok(version) => return Ok(Claim::Mine(version)),
                    Err(StateError::Conflict { .. }) => {}
                    Err(error) => return Err(failed(&error)),
                }
            }
            let found = self.store.read(&Scope::Global, key).await.map_err(|it| failed(&it))?;
            let Some(Versioned { value, version, .. }) = found else {
                expected = Some(Expected::Absent);
                continue;
            };
            let made: Made = serde_json::from_value(value)
                .map_err(|error| failed(&StateError::Serialization(format!("`{key}`: {error}"))))?;
            let is_this_call =
                (&*made.run, &*made.call_id) == (context.run.as_str(), context.call_id.as_str());
            match made.state {
                CallState::Done => return Ok(Claim::Done(made)),
                // The runtime makes it again: it knows that it may.
                _ if is_this_call => expected = Some(Expected::Version(version)),
                CallState::Failed => {
                    return Err(unknown(&made, "failed before, and may have acted"));
                }
                CallState::Begun if context.deadline <= self.clock.now().after(WAIT) => {
                    return Err(unknown(&made, "has begun before, and its end is not known"));
                }
                CallState::Begun => self.clock.sleep(WAIT).await,
            }
        }
    }
}

enum Claim {
    /// The call is this run's to make; this is what is stored of it.
    Mine(u64),
    Done(Made),
}

fn failed(error: &StateError) -> ToolError {
    ToolError::ExecutionFailed(Chain(error).to_string()).with_code(error.code())
}

fn unknown(made: &Made, what: &str) -> ToolError {
    let Made { run, call_id, .. } = made;
    ToolError::ExecutionFailed(format!("not run: it {what}. See to call {call_id} of run {run}"))
}

#[async_trait]
impl Tool for Once {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn needs(&self, arguments: &Arguments) -> Result<Vec<String>, ToolError> {
        self.tool.needs(arguments)
    }

    fn denied(&self, arguments: &Arguments, need: &str) -> String {
        self.tool.denied(arguments, need)
    }

    fn omits_nulls(&self) -> bool {
        self.tool.omits_nulls()
    }

    fn checks_arguments(&self) -> bool {
        self.tool.checks_arguments()
    }

    fn input_code(&self) -> Option<&str> {
        self.tool.input_code()
    }

    fn stores_errors(&self) -> bool {
        self.tool.stores_errors()
    }

    fn state_type(&self) -> Option<StateType> {
        self.tool.state_type()
    }

    fn dispatch(&self, arguments: &Arguments) -> Option<DispatchSpec> {
        self.tool.dispatch(arguments)
    }

    fn operator(&self) -> Option<&str> {
        self.tool.operator()
    }

    async fn proposal(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<Option<JsonText>, ToolError> {
        self.tool.proposal(arguments, context).await
    }

    async fn probe(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<Probe, ToolError> {
        self.tool.probe(arguments, context).await
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let key = self.key(arguments)?;
        let version = match self.claim(&key, context).await? {
            Claim::Mine(version) => Expected::Version(version),
            Claim::Done(Made { run, call_id, output, .. }) => {
                return Ok(JsonText::from(json!({
                    "done_before": { "run": run, "call_id": call_id },
                    "output": output,
                })));
            }
        };
        let result = self.tool.call(arguments, context).await;
        let noted = match &result {
            Ok(output) => {
                let output: Option<Value> = output.read().ok();
                match self.note(&key, version, context, CallState::Done, output).await {
                    // That it was done is worth more than what it answered.
                    Err(StateError::TooLarge { .. } | StateError::Serialization(_)) => {
                        self.note(&key, version, context, CallState::Done, None).await
                    }
                    noted => noted,
                }
            }
            // Nothing was done: another call may.
            Err(error) if error.facts().effect == Effect::None => {
                self.store.delete(&Scope::Global, &key, version).await.map(u64::from)
            }
            Err(_) => self.note(&key, version, context, CallState::Failed, None).await,
        };
        if let Err(error) = noted {
            // It stays begun: no other call is made, and a person looks.
            tracing::warn!(key, %error, "what became of a call that is made once was not noted");
        }
        result
    }
}
