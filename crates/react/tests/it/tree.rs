//! A tree of agents three levels deep, whose process dies after every append, and which is resumed.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_event_log::{
    Batch, Decision, EventLog, Inbox, Log, LogError, RunFilter, RunSummary, Runs, read_events,
};
use backstop_provider::{ModelRequest, ScriptedAnswer, ScriptedProvider};
use backstop_react::{
    Agent, HookContext, HookPoint, Moment, Observer, ResumeRequest, RunOutcome, RunRequest, replay,
};
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::Timestamp;
use layer0::error::BoxError;
use layer0::event::EventKind;
use layer0::failure::Retry;
use layer0::message::Message;
use layer0::stop::Stop;
use layer0::usage::Usage;
use serde_json::json;

use crate::bench::*;
use crate::tape::{Tape, cut};

/// The effects of the tools; they outlive the process.
#[derive(Default)]
pub(crate) struct World {
    paid: Mutex<Vec<String>>,
    tried: Mutex<Vec<String>>,
}

/// Pays an invoice.
#[tool(idempotent)]
pub(crate) async fn pay(context: &ToolContext) -> Result<String, ToolError> {
    let world: &Arc<World> = context.state().unwrap();
    let mut paid = world.paid.lock().unwrap();
    if !paid.contains(&context.idempotency_key) {
        paid.push(context.idempotency_key.clone());
    }
    Ok("paid".into())
}

/// Is busy once.
#[tool(idempotent)]
async fn busy(context: &ToolContext) -> Result<String, ToolError> {
    let world: &Arc<World> = context.state().unwrap();
    let mut tried = world.tried.lock().unwrap();
    let call = format!("{}/{}", context.run, context.call_id);
    if tried.contains(&call) {
        return Ok("free".into());
    }
    tried.push(call);
    Err(ToolError::ExecutionFailed("busy".into())
        .with_retry(Retry::After(std::time::Duration::from_millis(5))))
}

impl World {
    /// Returns the world in its state after these appends.
    pub(crate) fn after(batches: &[Batch]) -> Arc<Self> {
        let world = Self::default();
        for batch in batches {
            for record in &batch.records {
                if let EventKind::ToolAttempted(attempted) = record.decode(&batch.run).unwrap().kind
                {
                    let call = format!("{}/{}", batch.run, attempted.call_id);
                    world.tried.lock().unwrap().push(call);
                }
            }
        }
        Arc::new(world)
    }
}

/// A model that calls these tools in one answer, then repeats their answers.
pub(crate) fn calling(calls: &'static [(&'static str, &'static str)]) -> ScriptedProvider {
    ScriptedProvider::from_fn(move |request: &ModelRequest| {
        let messages = request.messages.messages();
        let answers: Vec<String> = messages
            .iter()
            .filter_map(|message| match &**message {
                Message::Tool { content, .. } => Some(content.to_string()),
                _ => None,
            })
            .collect();
        if !answers.is_empty() || calls.is_empty() {
            return billed(ScriptedAnswer::saying(format!("[{}]", answers.join(", "))));
        }
        let asked = calls.iter().enumerate().map(|(index, (name, input))| {
            let arguments = match *input {
                "" => json!({}),
                input => json!({ "input": input }),
            };
            call(&format!("c{index}"), name, arguments)
        });
        billed(crate::bench::calls(asked))
    })
}

fn billed(answer: ScriptedAnswer) -> ScriptedAnswer {
    answer.usage(layer0::usage::TokenUsage::new(10, 3))
}

/// Looks at how each run ends.
struct Farewell;

#[async_trait]
impl Observer for Farewell {
    fn name(&self) -> &str {
        "farewell"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::RunEnd]
    }
    async fn observe(&self, _: Moment<'_>, _: &HookContext) -> Result<(), BoxError> {
        Ok(())
    }
}

/// Returns a root that calls two agents concurrently, one of which calls a third that needs an approval.
pub(crate) fn root(bench: &Bench, log: &Arc<dyn EventLog>, world: &Arc<World>) -> Agent {
    let agent = |name: &'static str, calls| {
        let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
        Agent::builder(calling(calls))
            .name(name)
            .clock(clock)
            .price(backstop_react::Price::new(1.0, 2.0))
            .shared_log(Arc::clone(log))
            .shared_error_store(Arc::clone(&bench.errors) as _)
            .observer(Farewell)
            .state(Arc::clone(world))
    };
    let payer = agent("payer", &[("pay", "")]).tool(pay).require_approval("pay").build().unwrap();
    let clerk = agent("clerk", &[("payer", "pay it"), ("busy", "")])
        .tool(payer.as_tool("Pays."))
        .tool(busy)
        .build()
        .unwrap();
    let looker = agent("looker", &[("busy", "")]).tool(busy).build().unwrap();
    agent("root", &[("clerk", "see to it"), ("looker", "look")])
        .tool(clerk.as_tool("Sees to invoices."))
        .tool(looker.as_tool("Looks."))
        .build()
        .unwrap()
}

/// Resumes until the run is over; approves every request.
pub(crate) async fn to_the_end(bench: &Bench, agent: &Agent, log: &dyn EventLog) -> RunOutcome {
    loop {
        let agent = agent.clone();
        let outcome = on(bench, async move {
            let known = agent.resume(ResumeRequest::new("run_root")).await;
            match known {
                Err(backstop_react::ResumeError::Log(LogError::NotFound(_))) => {
                    agent.run(RunRequest::new("go").run("run_root".into())).await.unwrap()
                }
                other => other.unwrap(),
            }
        })
        .await;
        if outcome.stop != Stop::WaitingApproval {
            return outcome;
        }
        let open = log.open_approvals().await.unwrap();
        assert_eq!(open.len(), 1);
        assert_eq!(outcome.approvals.len(), 1, "the root names what is open below it");
        for open in open {
            let decision = Decision::approve("ops");
            assert!(log.decide(&open.id, decision, Timestamp::default()).await.unwrap());
        }
    }
}

/// Returns the sum of the usage in the events of all records.
pub(crate) async fn added_up(log: &dyn EventLog, runs: &[RunSummary]) -> Usage {
    let mut used = Usage::default();
    used.add_cost(0);
    for run in runs {
        let (_, events) = read_events(log, &run.run).await.unwrap();
        for event in events {
            match event.kind {
                EventKind::ModelAttempted(attempted) => {
                    used.model_attempts += 1;
                    used.add_tokens(attempted.usage.unwrap_or_default());
                    used.add_cost(attempted.cost_nanousd.unwrap_or_default());
                }
                EventKind::ModelRequested(_) => used.model_calls += 1,
                EventKind::ToolRequested(_) | EventKind::ToolAttempted(_) => used.tool_calls += 1,
                EventKind::RunRecovered(recovered) => {
                    used.model_attempts += recovered.models;
                    used.model_calls -= recovered.models;
                    used.tool_calls += u32::try_from(recovered.rerun.len()).unwrap();
                }
                _ => {}
            }
        }
    }
    used
}

pub(crate) fn without_time(usage: Usage) -> Usage {
    let mut usage = usage;
    usage.wall_ms = 0;
    usage
}

/// Spec: O2, O3, D5, D8. After a death at any append of any record the tree goes on to the end of an
/// undisturbed run: nothing is started twice, and what was used adds up.
#[tokio::test]
async fn tree_goes_on_after_death_at_any_append() {
    let (bench, world) = (Bench::new(), Arc::<World>::default());
    let tape = Arc::new(Tape::default());
    let log = Arc::clone(&tape) as Arc<dyn EventLog>;
    let whole = to_the_end(&bench, &root(&bench, &log, &world), &*tape).await;
    assert_eq!(whole.text(), "[[[paid], free], [free]]");
    let runs = tape.log.runs(RunFilter::default()).await.unwrap();
    assert_eq!(runs.len(), 4);
    assert_eq!(without_time(whole.usage), added_up(&*tape, &runs).await);
    let batches = tape.batches();
    for at in 0..=batches.len() {
        let (bench, world) = (Bench::new(), World::after(&batches[..at]));
        let log = Arc::new(cut(&batches[..at]).await);
        let shared = Arc::clone(&log) as Arc<dyn EventLog>;
        let outcome = to_the_end(&bench, &root(&bench, &shared, &world), &*log).await;
        assert_eq!(outcome.text(), whole.text(), "after {at} appends");
        assert_eq!(outcome.stop, Stop::Completed);
        let runs = log.runs(RunFilter::default()).await.unwrap();
        let mut names: Vec<_> = runs.iter().map(|run| run.agent.to_string()).collect();
        names.sort();
        assert_eq!(names, ["clerk", "looker", "payer", "root"], "after {at} appends");
        assert!(world.paid.lock().unwrap().len() <= 1);
        assert_eq!(without_time(outcome.usage), added_up(&*log, &runs).await, "after {at} appends");
        for run in &runs {
            assert!(!run.is_open(), "after {at} appends: {} {:?}", run.agent, run.state);
            replay(&*log, &run.run).await.unwrap();
            let (_, events) = read_events(&*log, &run.run).await.unwrap();
            let kinds = types(&events);
            assert!(kinds.iter().filter(|kind| **kind == "run.recovered").count() <= 1);
            let answers = kinds.iter().filter(|kind| **kind == "tool.responded").count();
            let asked = kinds.iter().filter(|kind| **kind == "tool.requested").count();
            assert_eq!(answers, asked, "after {at} appends: {}", run.agent);
        }
    }
}

/// Spec: O2. What waits below rises, bottom-up, and the call stays open.
#[tokio::test]
async fn waiting_rises_to_the_root() {
    let (bench, world) = (Bench::new(), Arc::<World>::default());
    let log = Arc::clone(&bench.log) as Arc<dyn EventLog>;
    let agent = root(&bench, &log, &world);
    let running = agent.clone();
    let request = RunRequest::new("go").run("run_root".into());
    let outcome = on(&bench, async move { running.run(request).await }).await.unwrap();
    assert_eq!(outcome.stop, Stop::WaitingApproval);
    let open = bench.log.open_approvals().await.unwrap();
    let runs = bench.log.runs(RunFilter::default()).await.unwrap();
    let last = |name: &str| {
        let run = runs.iter().find(|run| &*run.agent == name).unwrap().run.clone();
        let log = Arc::clone(&bench.log);
        async move { read_events(&*log, &run).await.unwrap().1 }
    };
    for name in ["root", "clerk", "payer"] {
        let events = last(name).await;
        let EventKind::RunWaiting(waiting) = &events.last().unwrap().kind else {
            panic!("{name}: {:?}", types(&events))
        };
        assert_eq!(waiting.approvals, [open[0].id.clone()], "{name}");
    }
    let kinds = types(&last("root").await);
    assert_eq!(kinds.iter().filter(|kind| **kind == "operator.waiting").count(), 1);
    assert_eq!(kinds.iter().filter(|kind| **kind == "tool.responded").count(), 1, "the looker's");
    // Nothing is decided: a resume appends nothing.
    let before = bench.log.summary(&"run_root".into()).await.unwrap().unwrap().last_seq;
    let again = agent.clone();
    let outcome = on(&bench, async move { again.resume("run_root").await }).await.unwrap();
    assert_eq!(outcome.stop, Stop::WaitingApproval);
    for run in bench.log.runs(RunFilter::default()).await.unwrap() {
        replay(&*bench.log, &run.run).await.unwrap();
        if &*run.agent == "root" {
            assert_eq!(run.last_seq, before);
        }
    }
}
