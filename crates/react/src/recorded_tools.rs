//! Tools that answer from a record: what would another model have done?

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::event::{Event, EventKind, ToolResponded};
use layer0::id::CallId;
use layer0::{JsonText, ToolSpec};

/// What the tools of a run answered, to be answered again: by the name of the tool and its arguments, in the order of
/// the record. The last answer of equal calls is given as often as asked. No tool runs; a call that the record does
/// not have is answered as `tool.unavailable`.
///
/// ```
/// use backstop_event_log::{EventLog, MemoryLog, read_events};
/// use backstop_provider::ScriptedProvider;
/// use backstop_react::{Agent, ForkRequest, RecordedTools, RunRequest};
/// use backstop_tool::FnTool;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let log = std::sync::Arc::new(MemoryLog::new());
/// let agent = |model| Agent::builder(model).shared_log(log.clone());
/// # struct Look(layer0::ToolSpec);
/// # #[async_trait::async_trait]
/// # impl backstop_tool::Tool for Look {
/// #     fn spec(&self) -> &layer0::ToolSpec { &self.0 }
/// #     async fn call(&self, _: &backstop_tool::Arguments, _: &backstop_tool::ToolContext)
/// #         -> Result<layer0::JsonText, backstop_tool::ToolError> { Ok(layer0::JsonText::string("full")) }
/// # }
/// # let look = || Look(layer0::ToolSpec::new("look", "Looks.", json!({"type": "object"})));
/// let first = ScriptedProvider::calling("look", json!({"at": "disk"}), "It is full.");
/// let run = agent(first).tool(look()).build()?.run("How is the disk?").await?.run_id;
/// // Another model is asked the same; what it asks the tool is answered from the record.
/// let (_, events) = read_events(&*log, &run).await?;
/// let other = ScriptedProvider::calling("look", json!({"at": "disk"}), "Make room.");
/// let other = agent(other).tool(look()).recorded_tools(RecordedTools::of(&events)).build()?;
/// assert_eq!(other.fork(ForkRequest::new(run, 1)).await?.text(), "Make room.");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct RecordedTools {
    answers: Arc<Mutex<BTreeMap<Call, VecDeque<ToolResponded>>>>,
}

/// A tool, and the arguments of a call with their keys in order.
type Call = (Arc<str>, String);

impl RecordedTools {
    /// Takes the answers from the events of a run.
    #[must_use]
    pub fn of(events: &[Event]) -> Self {
        let mut asked: BTreeMap<&CallId, Call> = BTreeMap::new();
        let mut answers: BTreeMap<Call, VecDeque<ToolResponded>> = BTreeMap::new();
        for event in events {
            match &event.kind {
                EventKind::ToolRequested(request) => {
                    let arguments = request.arguments.get().to_owned();
                    asked.insert(&request.call_id, (Arc::clone(&request.tool), arguments));
                }
                EventKind::ToolResponded(answer) => {
                    if let Some(call) = asked.get(&answer.call_id) {
                        answers.entry(call.clone()).or_default().push_back(answer.clone());
                    }
                }
                _ => {}
            }
        }
        Self { answers: Arc::new(Mutex::new(answers)) }
    }

    /// Puts what is recorded in the place of a tool.
    pub(crate) fn stand_in(&self, spec: &ToolSpec) -> Arc<dyn Tool> {
        Arc::new(RecordedTool { spec: spec.clone(), recorded: self.clone() })
    }

    fn next(&self, call: &Call) -> Option<ToolResponded> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let left = answers.get_mut(call)?;
        if left.len() > 1 { left.pop_front() } else { left.front().cloned() }
    }
}

/// A tool that does nothing but answer.
struct RecordedTool {
    spec: ToolSpec,
    recorded: RecordedTools,
}

#[async_trait]
impl Tool for RecordedTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let call =
            (Arc::clone(&self.spec.name), JsonText::from(arguments.value()).get().to_owned());
        let Some(answer) = self.recorded.next(&call) else {
            let why = "the record has no such call, and no tool is run";
            return Err(ToolError::Unavailable(why.to_owned()));
        };
        match answer.error {
            None => {
                for image in &*answer.images {
                    // They were within the bounds when they were recorded.
                    let _ = context.show_image(image.clone());
                }
                if let Some(stderr) = answer.stderr {
                    context.stderr.keep(stderr);
                }
                Ok(answer.output)
            }
            Some(failure) => {
                let error = ToolError::ExecutionFailed(failure.message.to_string());
                Err(match failure.code {
                    Some(code) => error.with_code(code.to_string()),
                    None => error,
                })
            }
        }
    }
}
