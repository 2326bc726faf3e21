//! Processes that execute a history, and the agent that they execute it with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, RunClock, VirtualClock};
use backstop_error_store::MemoryErrorStore;
use backstop_event_log::{
    Decision, EventLog, Log, MemoryLog, RunFilter, RunSummary, RunWriter, Runs, read_events,
};
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react_machine::{Budget, HookPoint, Machine, Setup};
use backstop_retry::RetryConfig;
use backstop_tool::{Arguments, JsonText, Tool, ToolContext, ToolError, ToolSpec};
use futures_util::FutureExt;
use layer0::Timestamp;
use layer0::error::BoxError;
use layer0::event::Event;
use layer0::failure::Retry;
use layer0::id::{RunId, SessionId};
use layer0::stop::Stop;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::durable::{Durable, Entries};
use crate::AgentBuilder;
use crate::agent::Agent;
use crate::approval::{ApprovalRequest, Approver};
use crate::hook::{Gate, GateVerdict, HookContext, Moment};
use crate::journal::AnyJournal;
use crate::local_journal::LocalJournal;
use crate::memory::{Memory, MemoryEntry, MemoryQuery};
use crate::request::RunRequest;
use crate::run::start::StartingRun;

pub(super) const RUN: &str = "run_durable";

/// The model's answers and the limits of a run.
#[derive(Debug, Clone)]
pub(super) struct History {
    /// The answers of its model.
    pub(super) answers: Value,
    /// Its budget of model calls and tool calls.
    pub(super) model_calls: Option<u32>,
    pub(super) tool_calls: Option<u32>,
}

impl History {
    /// Makes a history in which nothing is used up.
    pub(super) const fn of(answers: Value) -> Self {
        Self { answers, model_calls: None, tool_calls: None }
    }
}

/// The behaviour of a tool in a history.
enum Does {
    Answers,
    /// Asks to be called again later, if it has not done so yet.
    Waits(AtomicU32),
    /// Stops the run.
    Cancels(CancellationToken),
}

struct Scripted {
    spec: ToolSpec,
    does: Does,
}

#[async_trait]
impl Tool for Scripted {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        match &self.does {
            Does::Waits(left) if left.swap(0, Ordering::Relaxed) > 0 => {
                let busy = ToolError::ExecutionFailed("busy".into());
                Err(busy.with_retry(Retry::After(Duration::from_millis(9))))
            }
            Does::Cancels(token) => {
                token.cancel();
                Ok(JsonText::string("stopped"))
            }
            Does::Answers | Does::Waits(_) => Ok(JsonText::string("seen")),
        }
    }
}

/// Agrees to everything.
struct Agrees;

#[async_trait]
impl Approver for Agrees {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        Some(Decision::approve("ops"))
    }
}

/// Skips a look, changes another one, fails where there is no such tool, and looks at the end.
struct Careful;

#[async_trait]
impl Gate for Careful {
    fn name(&self) -> &str {
        "careful"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::BeforeTool, HookPoint::RunEnd]
    }
    async fn judge(&self, moment: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        let Moment::BeforeTool { call } = moment else { return Ok(GateVerdict::Continue) };
        match (&*call.name, call.arguments.value()["at"].as_i64()) {
            ("absent", _) => Err("there is no such tool".into()),
            ("look", Some(1)) => {
                Ok(GateVerdict::ReplaceArguments(JsonText::from(json!({ "at": 0 }))))
            }
            ("look", Some(2)) => Ok(GateVerdict::Abort("it was seen".to_owned())),
            _ => Ok(GateVerdict::Continue),
        }
    }
}

/// A memory with one entry, which only accepts the output `done`.
struct Knows;

#[async_trait]
impl Memory for Knows {
    async fn read(&self, _: MemoryQuery) -> Result<Vec<String>, BoxError> {
        Ok(vec!["there is little at 0".to_owned()])
    }
    async fn write(&self, entry: MemoryEntry) -> Result<(), BoxError> {
        if &*entry.output == "done" { Ok(()) } else { Err("it is full".into()) }
    }
    async fn forget(&self, _: Option<&SessionId>) -> Result<u64, BoxError> {
        Ok(0)
    }
}

/// The end of a run, or the code of its failure.
pub(super) type Ended = Result<Stop, &'static str>;

/// One process: the next one continues from its state.
pub(super) struct Process {
    pub(super) log: Arc<MemoryLog>,
    pub(super) errors: Arc<MemoryErrorStore>,
    pub(super) entries: Entries,
    /// Number of entries of the durable journal at its death; `None` on the local journal.
    pub(super) dies_after: Option<usize>,
}

impl Process {
    pub(super) fn new(entries: Entries, dies_after: Option<usize>) -> Self {
        let (log, errors) = Default::default();
        Self { log, errors, entries, dies_after }
    }

    /// Executes the run from its start; `None` when it dies. Nothing notifies its running steps.
    pub(super) fn execute(&self, history: &History) -> Option<Ended> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let ended = self.live(history).await;
            // They are processes of their own.
            while ended.is_none() && self.is_busy_below() {
                tokio::task::yield_now().await;
            }
            ended
        })
    }

    async fn live(&self, history: &History) -> Option<Ended> {
        let clock = VirtualClock::starting_at(Timestamp::from_millis(1_000));
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let log: Arc<dyn EventLog> = Arc::clone(&self.log) as _;
        let token = CancellationToken::new();
        let agent = agent(history, &self.entries, Arc::clone(&log), &shared, &token);
        let agent = agent.shared_error_store(Arc::clone(&self.errors) as _).build().unwrap();
        let request = RunRequest::new("go").run(RunId::from(RUN)).session("s-1");
        let request = request.cancelled_by(token.clone());
        let start = StartingRun::new(Arc::clone(&agent.inner), request);
        let effects = start.effects();
        // The record is there as far as it was written.
        let known = self.log.summary(&RunId::from(RUN)).await.unwrap();
        let writer = match known.filter(|summary| summary.last_seq > 0) {
            Some(summary) => match self.log.claim(&RunId::from(RUN)).await {
                Ok(claim) => RunWriter::resume(log, summary, claim),
                Err(_) => RunWriter::new_closed(summary),
            },
            None => RunWriter::new(log, RunId::from(RUN)),
        };
        let mut run_clock = RunClock::new(Arc::clone(&shared));
        run_clock.not_before(self.entries.last_time());
        let inbox = agent.inner.log.as_ref();
        let live = LocalJournal::new(writer, Arc::clone(&effects), run_clock, inbox, token);
        let (died, dies) = oneshot::channel();
        let journal = match self.dies_after {
            Some(entries) => {
                let journal = Durable::new(live, self.entries.clone(), entries, died);
                AnyJournal::Other(Box::new(journal))
            }
            None => {
                // The local journal does not die.
                std::mem::forget(died);
                AnyJournal::Local(Box::new(live))
            }
        };
        let machine = Machine::new(start.definition.clone(), Setup::new(RunId::from(RUN)));
        let (done, result) = oneshot::channel();
        let run = async move {
            let mut lived = Box::pin(async {
                let mut run = start.open_on(journal, effects, machine).await;
                let started = run.ledger.fact(start.build_run_started(Default::default()));
                run.ledger.step([started]).await.unwrap();
                run.go().await.map(|outcome| outcome.stop).map_err(|failure| failure.code())
            });
            let ended = tokio::select! {
                biased;
                _ = dies => None,
                ended = &mut lived => Some(ended),
            };
            let is_dead = ended.is_none();
            let _ = done.send(ended);
            if is_dead {
                std::future::pending::<()>().await;
            }
        };
        tokio::spawn(clock.track(Box::pin(run)));
        result.await.unwrap()
    }

    fn is_busy_below(&self) -> bool {
        let runs = self.log.runs(RunFilter::new()).now_or_never().unwrap().unwrap();
        let is_below = |run: &&RunSummary| run.run.as_str() != RUN;
        runs.iter().filter(is_below).any(RunSummary::is_open)
    }

    pub(super) fn record(&self) -> Vec<Event> {
        let run = RunId::from(RUN);
        read_events(&*self.log, &run).now_or_never().unwrap().unwrap().1
    }
}

pub(super) fn agent(
    history: &History,
    entries: &Entries,
    log: Arc<dyn EventLog>,
    clock: &Arc<dyn Clock>,
    token: &CancellationToken,
) -> AgentBuilder {
    let answers: Vec<ScriptedAnswer> = serde_json::from_value(history.answers.clone()).unwrap();
    let tool = |name: &str, does: Does| Scripted {
        spec: ToolSpec::new(name, "does it", json!({ "type": "object" })).idempotent(),
        does,
    };
    let pays = Scripted {
        spec: ToolSpec::new("pay", "pays", json!({ "type": "object" })).idempotent().approval(),
        does: Does::Answers,
    };
    // A tool that waited in an earlier process waits only for the rest.
    let waits = 1_u32.saturating_sub(entries.waits());
    let below = Agent::builder(ScriptedProvider::from_fn(|_| ScriptedAnswer::saying("seen below")));
    let below = below.name("below").clock(Arc::clone(clock)).shared_log(Arc::clone(&log));
    let budget = Budget::new().model_calls(history.model_calls).tool_calls(history.tool_calls);
    Agent::builder(ScriptedProvider::new(answers).starting_at(entries.attempts()))
        .name("durable")
        .clock(Arc::clone(clock))
        // No wait is random: a process that begins again would draw other waits.
        .retry(RetryConfig::new().base(Duration::ZERO))
        .budget(budget)
        .gate(Careful)
        .memory(Knows)
        .tool(below.build().unwrap().as_tool("Looks below."))
        .tool(tool("look", Does::Answers))
        .tool(tool("wait", Does::Waits(AtomicU32::new(waits))))
        .tool(tool("stop", Does::Cancels(token.clone())))
        .tool(pays)
        .approver(Agrees)
        .shared_log(log)
}
