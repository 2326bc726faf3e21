//! Tools that answer from a record, to compare another model on the same run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use backstop_event_log::current_agent;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError, ToolRegistrationError, Toolset};
use layer0::event::{Event, EventKind, ToolResponded};
use layer0::id::CallId;
use layer0::{Approvers, JsonText, ToolSpec, code};
use serde::Deserialize;

use crate::dispatch::{Dispatcher, PriorAnswer};

/// The tools that read stored errors and results.
const DETAILS: [&str; 2] = ["get_error_detail", "get_tool_result"];

/// The recorded answers of a run's tools, returned again by tool name and arguments, in the order of the record and
/// unchanged. The last answer of equal calls is repeated. No tool runs, and no person is asked; a call without a
/// recorded answer is answered as `tool.unavailable`. The agent has the tools of the recorded one, including those of
/// servers.
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
/// let other = agent(other).tool(look()).recorded_tools(RecordedTools::from_events(&events)).build()?;
/// assert_eq!(other.fork(ForkRequest::new(run, 1)).await?.text(), "Make room.");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct RecordedTools {
    answers: Arc<Mutex<RecordedToolAnswers>>,
    /// The tools of the recorded agent.
    specs: Arc<[ToolSpec]>,
}

#[derive(Debug, Default)]
struct RecordedToolAnswers {
    all: Vec<RecordedToolAnswer>,
    by_call: BTreeMap<Call, Vec<usize>>,
}

/// The events of an answer, the answer last.
#[derive(Debug)]
struct RecordedToolAnswer {
    facts: Vec<EventKind>,
    is_given: bool,
}

/// A tool, and the arguments of a call in the form that the tool takes.
type Call = (Arc<str>, String);

impl RecordedTools {
    /// Reads the answers from the events of a run.
    #[must_use]
    pub fn from_events(events: &[Event]) -> Self {
        #[derive(Deserialize)]
        struct RecordedDefinition {
            tools: Vec<ToolSpec>,
        }
        let definition = current_agent(events)
            .and_then(|agent| agent.definition.read::<RecordedDefinition>().ok());
        let specs = definition.map(|definition| definition.tools).unwrap_or_default();
        let mut recorded = Self { answers: Arc::default(), specs: specs.into() };
        let answers = Arc::new(Mutex::new(recorded.read(events)));
        recorded.answers = answers;
        recorded
    }

    fn read(&self, events: &[Event]) -> RecordedToolAnswers {
        // Under the model's arguments, and under those that ran: gates and people may have changed them.
        let mut asked: BTreeMap<&CallId, &JsonText> = BTreeMap::new();
        let mut ran: BTreeMap<&CallId, &JsonText> = BTreeMap::new();
        let mut stored: Vec<EventKind> = Vec::new();
        let mut answers = RecordedToolAnswers::default();
        for event in events {
            match &event.kind {
                EventKind::ModelResponded(responded) => {
                    asked = responded.tool_calls.iter().map(|it| (&it.id, &it.arguments)).collect();
                    ran.clear();
                }
                EventKind::ToolRequested(request) => {
                    ran.insert(&request.call_id, &request.arguments);
                }
                EventKind::ErrorStored(_) | EventKind::ResultStored(_) => {
                    stored.push(event.kind.clone());
                }
                EventKind::ToolResponded(answer) => {
                    let of_call =
                        |fact: &mut EventKind| find_call_id(fact) == Some(&answer.call_id);
                    let mut facts: Vec<_> = stored.extract_if(.., of_call).collect();
                    facts.push(event.kind.clone());
                    let arguments = [asked.get(&answer.call_id), ran.get(&answer.call_id)];
                    if arguments[1].is_some() || is_denied(answer) {
                        let calls = arguments.into_iter().flatten();
                        answers.add(calls.map(|text| self.call(&answer.tool, text)), facts);
                    }
                }
                _ => {}
            }
        }
        answers
    }

    /// Returns the key of a call: its tool, and its arguments in the form that the recorded tool takes.
    fn call(&self, tool: &Arc<str>, arguments: &JsonText) -> Call {
        let spec = self.specs.iter().find(|spec| spec.name == *tool);
        let taken = spec.map_or_else(|| arguments.clone(), |it| arguments.taken_by(&it.schema));
        (Arc::clone(tool), taken.get().to_owned())
    }

    /// Returns recorded tools in place of all tools, including those that only the recorded agent has.
    pub(crate) fn stand_ins(&self, tools: &Toolset) -> Result<Toolset, ToolRegistrationError> {
        let own = |name: &str| tools.specs().find(|spec| *spec.name == *name);
        // The detail tools are not replaced.
        let is_detail = |spec: &&ToolSpec| DETAILS.contains(&&*spec.name);
        let recorded = self.specs.iter().filter(|spec| !is_detail(spec));
        let recorded = recorded.map(|spec| own(&spec.name).unwrap_or(spec));
        let is_new = |spec: &&ToolSpec| !self.specs.iter().any(|known| known.name == spec.name);
        let mut all = Toolset::new();
        for spec in recorded.chain(tools.specs().filter(is_new)) {
            let spec = without_approval(spec.clone());
            all.add(Arc::new(RecordedTool { spec, recorded: self.clone() }))?;
        }
        Ok(all)
    }

    fn next(&self, call: &Call) -> Option<Vec<EventKind>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let RecordedToolAnswers { all, by_call } = &mut *answers;
        let places = by_call.get(call)?;
        let place = places.iter().find(|place| !all[**place].is_given).or(places.last())?;
        let answer = all.get_mut(*place)?;
        answer.is_given = true;
        Some(answer.facts.clone())
    }
}

impl RecordedToolAnswers {
    fn add(&mut self, calls: impl Iterator<Item = Call>, facts: Vec<EventKind>) {
        let place = self.all.len();
        self.all.push(RecordedToolAnswer { facts, is_given: false });
        for call in calls {
            let places = self.by_call.entry(call).or_default();
            if places.last() != Some(&place) {
                places.push(place);
            }
        }
    }
}

/// Returns whether a call was denied by a person, before it could run.
fn is_denied(answer: &ToolResponded) -> bool {
    answer.error.as_ref().is_some_and(|error| error.reason == code::TOOL_APPROVAL_DENIED)
}

fn find_call_id(fact: &EventKind) -> Option<&CallId> {
    match fact {
        EventKind::ErrorStored(stored) => Some(&stored.call_id),
        EventKind::ResultStored(stored) => Some(&stored.call_id),
        _ => None,
    }
}

/// Changes the call id of events to that of another call.
fn answering(mut facts: Vec<EventKind>, call: &CallId) -> Vec<EventKind> {
    for fact in &mut facts {
        match fact {
            EventKind::ErrorStored(stored) => stored.call_id = call.clone(),
            EventKind::ResultStored(stored) => stored.call_id = call.clone(),
            EventKind::ToolResponded(answer) => answer.call_id = call.clone(),
            _ => {}
        }
    }
    facts
}

/// Returns the spec of a tool without approvals: the decisions are in the record.
fn without_approval(mut spec: ToolSpec) -> ToolSpec {
    spec.approval = false;
    (spec.approval_schema, spec.expires_after) = (None, None);
    spec.approvers = Approvers::default();
    spec
}

/// A tool that answers from the record.
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
        let call = self.recorded.call(&self.spec.name, arguments.text());
        let Some(facts) = self.recorded.next(&call) else {
            let why = "the record has no such call, and no tool is run";
            return Err(ToolError::Unavailable(why.to_owned()));
        };
        if let Some(dispatcher) = Dispatcher::from_context(context) {
            dispatcher.give_prior(PriorAnswer::Recorded(answering(facts, &context.call_id)));
        }
        // The run uses the recorded events instead.
        Ok(JsonText::default())
    }
}
