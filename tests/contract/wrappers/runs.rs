//! Runs that call a tool, and the description of its answer.

use std::sync::Arc;

use backstop::clock::{Clock, VirtualClock};
use backstop::error_store::{MemoryResultStore, ResultStore};
use backstop::event_log::Settlement;
use backstop::layer0::event::{EventKind, ToolResponded};
use backstop::layer0::id::RunId;
use backstop::layer0::message::Message;
use backstop::layer0::operator::{Context, Task};
use backstop::layer0::{StateStore, Timestamp};
use backstop::provider::ScriptedToolCall;
use backstop::react::{ForkRequest, RecordedTools, resolve};
use backstop::{
    Agent, AgentBuilder, EventLog, LocalOrchestrator, MemoryLog, MemoryStateStore, Orchestrator,
    Redactor, RunOutcome, ScriptedAnswer, ScriptedProvider, read_events,
};
use serde_json::{Value, json};

use super::Wrapper;
use super::tools::{Act, Place, SECRET, Subject, clock_of};

/// The stores and the clock of the runs of one cell.
struct Bench {
    virtual_clock: VirtualClock,
    clock: Arc<dyn Clock>,
    log: Arc<dyn EventLog>,
    results: Arc<dyn ResultStore>,
    state: Arc<dyn StateStore>,
}

impl Bench {
    fn new(place: Place) -> Self {
        let virtual_clock = VirtualClock::starting_at(Timestamp::default());
        let clock = clock_of(place, &virtual_clock);
        let state = Arc::new(MemoryStateStore::new().clock(Arc::clone(&clock)));
        let (log, results) = (Arc::new(MemoryLog::new()), Arc::new(MemoryResultStore::new()));
        Self { virtual_clock, clock, log, results, state }
    }

    fn agent(&self, subject: &Subject) -> AgentBuilder {
        let name = Arc::clone(&subject.tool.spec().name);
        Agent::builder(asks(name))
            .name("lead")
            .grant("process:spawn")
            .grant("network:outbound")
            .clock(Arc::clone(&self.clock))
            .shared_log(Arc::clone(&self.log))
            .shared_result_store(Arc::clone(&self.results))
            .shared_state_store(Arc::clone(&self.state))
            .redactor(Redactor::new().with_secret(SECRET))
    }

    /// Awaits work while the clock runs.
    async fn track<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let (done, result) = tokio::sync::oneshot::channel();
        tokio::spawn(self.clock.track(Box::pin(async move {
            let _ = done.send(work.await);
        })));
        result.await.unwrap()
    }

    /// Runs an agent that calls the tool.
    async fn run(&self, subject: &Subject) -> RunOutcome {
        let agent = self.agent(subject).shared_tool(Arc::clone(&subject.tool)).build().unwrap();
        let Some(operator) = subject.operator.clone() else {
            return self.track(async move { agent.run("input").await.unwrap() }).await;
        };
        let orchestrator = LocalOrchestrator::builder()
            .clock(Arc::clone(&self.clock))
            .operator(operator)
            .operator(agent.clone())
            .build()
            .unwrap();
        let work = async move {
            let root = Context::root();
            let answer = orchestrator.dispatch("lead", Task::text("input"), root).await.unwrap();
            agent.resume(answer.run.unwrap()).await.unwrap()
        };
        self.track(work).await
    }

    /// Forks a run from its beginning, with its recorded answers.
    async fn fork(&self, subject: &Subject, run: &RunId) -> RunOutcome {
        let (_, events) = read_events(&*self.log, run).await.unwrap();
        let tools = RecordedTools::from_events(&events);
        let agent = self.agent(subject).recorded_tools(tools).build().unwrap();
        let fork = ForkRequest::new(run.clone(), 1);
        self.track(async move { agent.fork(fork).await.unwrap() }).await
    }

    /// Returns the answer of a run's call, after a check that the record has no secret.
    async fn answer(&self, run: &RunId) -> ToolResponded {
        let (_, events) = read_events(&*self.log, run).await.unwrap();
        let record = format!("{events:?}");
        assert!(!record.contains(SECRET), "{record}");
        let answers = events.into_iter().filter_map(|event| match event.kind {
            EventKind::ToolResponded(answer) if answer.call_id.as_str() == "c1" => Some(answer),
            _ => None,
        });
        let [answer] = &answers.collect::<Vec<_>>()[..] else { panic!("answered once: {record}") };
        answer.clone()
    }

    /// Describes an answer by its code and the beginning of its text for the model.
    async fn describe(&self, outcome: &RunOutcome) -> String {
        let answer = self.answer(&outcome.run_id).await;
        let code = answer.error.as_ref().map_or("ok", |error| error.reason.as_str());
        let texts = tool_texts(outcome.transcript.messages());
        let first = texts[0].0.lines().next().unwrap_or_default();
        let first: String = first.chars().take(32).collect();
        let referred = match texts.get(1) {
            Some((text, false)) => {
                assert!(text.contains("xxxx"), "{text}");
                ", by reference"
            }
            Some(_) => ", by a reference that cannot be read",
            None => "",
        };
        format!("{code}: {first}{referred}")
    }
}

/// A model that asks for one call, and reads its result if that is a reference.
fn asks(tool: Arc<str>) -> ScriptedProvider {
    ScriptedProvider::from_fn(move |request| {
        let ask = |id: &str, tool: &str, arguments: Value| {
            ScriptedAnswer::default().tool_calls([ScriptedToolCall::new(id, tool, arguments)])
        };
        let texts = tool_texts(request.messages.messages());
        match &texts[..] {
            [] => ask("c1", &tool, json!({ "n": 7 })),
            [(text, _)] => match reference(text) {
                Some(id) => ask("c2", "get_tool_result", json!({ "result_id": id })),
                None => ScriptedAnswer::saying("done"),
            },
            _ => ScriptedAnswer::saying("done"),
        }
    })
}

/// Returns the id of a stored result that a text names.
fn reference(text: &str) -> Option<&str> {
    let mut words = text.split(|c: char| c != '_' && !c.is_alphanumeric());
    words.find(|word| word.starts_with("res_"))
}

/// Returns the texts of the tools' answers, and whether each is a failure.
fn tool_texts(messages: &[Arc<Message>]) -> Vec<(String, bool)> {
    let text = |message: &Arc<Message>| match &**message {
        Message::Tool { content, is_error, .. } => Some((content.to_string(), *is_error)),
        _ => None,
    };
    messages.iter().filter_map(text).collect()
}

/// Has a tool called within a wrapper. Describes its answer, and whether a person can settle the call.
pub(super) async fn answer(place: Place, wrapper: Wrapper, act: Act) -> String {
    let bench = Bench::new(place);
    let is_once = wrapper == Wrapper::Once;
    let subject = Subject::new(place, act, &bench.virtual_clock, is_once).await;
    let first = bench.run(&subject).await;
    let outcome = match wrapper {
        Wrapper::Bare => first,
        Wrapper::Once => bench.run(&subject).await,
        Wrapper::Recorded => {
            let begun = subject.begun();
            let fork = bench.fork(&subject, &first.run_id).await;
            assert_eq!(subject.begun(), begun, "a recorded tool does not begin");
            fork
        }
    };
    let answer = bench.describe(&outcome).await;
    let settlement = Settlement::call_happened("ops");
    let log = Arc::clone(&bench.log);
    match resolve(log, &outcome.run_id, &"c1".into(), settlement).await {
        Ok(()) => format!("{answer}, can be settled"),
        Err(_) => answer,
    }
}

/// Has a lost call settled by a person. Describes the answer of the next call, and how often the tool has begun.
pub(super) async fn settled(place: Place, wrapper: Wrapper, happened: bool) -> String {
    let bench = Bench::new(place);
    let is_once = wrapper == Wrapper::Once;
    let subject = Subject::new(place, Act::IsLost, &bench.virtual_clock, is_once).await;
    let first = bench.run(&subject).await;
    let settlement = match happened {
        true => Settlement::call_happened("ops").with_output(json!({ "paid": 9 })),
        false => Settlement::did_not("ops"),
    };
    let log = Arc::clone(&bench.log);
    if resolve(log, &first.run_id, &"c1".into(), settlement).await.is_err() {
        return "cannot be settled".to_owned();
    }
    let next = match wrapper {
        Wrapper::Recorded => bench.fork(&subject, &first.run_id).await,
        Wrapper::Bare | Wrapper::Once => bench.run(&subject).await,
    };
    format!("{}, begun {}", bench.describe(&next).await, subject.begun())
}
