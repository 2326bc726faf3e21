//! Runs that adopt another definition of their agent.

use std::sync::Arc;

use async_trait::async_trait;
use backstop_event_log::{
    Batch, Decision, EventLog, Inbox, MemoryLog, RunFilter, Runs, current_agent, read_events,
};
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::{
    Agent, AgentBuilder, Budget, Limits, Memory, MemoryEntry, MemoryQuery, Price, ResumeError,
    ResumeRequest, RunRequest, replay,
};
use layer0::event::{Event, EventKind};
use layer0::failure::Failure;
use layer0::id::{RunId, SessionId};
use layer0::message::Message;
use layer0::operator::{Context, Task};
use layer0::stop::Stop;
use layer0::usage::{Allowance, TokenUsage};
use layer0::{Operator, Timestamp};
use serde_json::json;

use crate::bench::*;
use crate::durable;
use crate::tape::Tape;

const NEW: &str = "Be brief.";

fn adopting(run: &RunId) -> ResumeRequest {
    ResumeRequest::new(run.clone()).by("deploy").allow_other_agent()
}

/// Returns the definitions that a run adopted, from its record.
fn adopted(events: &[Event]) -> Vec<String> {
    let of = |event: &Event| match &event.kind {
        EventKind::RunResumed(resumed) => Some(resumed.agent.as_ref()?.digest.to_string()),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

/// Spec: J2w, D2, D5. Wherever its process died, a run goes on with the new definition, once; what the record says is
/// replayed, and the old definition is another agent from then on.
#[tokio::test]
async fn another_definition_goes_on_after_every_append() {
    let (log, run, appends) = durable::whole().await;
    let last = appends.len() - 1;
    for at in &appends[..last] {
        let (copy, before) = durable::cut(&log, &run, *at).await;
        let from = durable::outcomes(&before);
        let new = durable::agent(&copy, from).instructions(NEW).build().unwrap();
        let mut outcome = new.resume(adopting(&run)).await.unwrap();
        while outcome.stop == Stop::WaitingApproval {
            let id = outcome.approvals[0].id.clone();
            let decision = Decision::approve("ops");
            assert!(copy.decide(&id, decision, Timestamp::default()).await.unwrap(), "{at}");
            outcome = new.resume(adopting(&run)).await.unwrap();
        }
        assert_eq!(outcome.stop, Stop::Completed, "{at}");
        let said = outcome.transcript.messages().first().map(|first| (**first).clone());
        assert_eq!(said, Some(Message::system(NEW)), "{at}");
        let (_, after) = read_events(&*copy, &run).await.unwrap();
        let digest = current_agent(&after).unwrap().digest.to_string();
        assert_eq!(adopted(&after), [digest], "{at}");
        assert!(replay(&*copy, &run).await.unwrap().is_some(), "{at}");
        assert!(new.replay(&run).await.unwrap().is_some(), "{at}");
        let old = durable::agent(&copy, 0).build().unwrap();
        assert!(matches!(old.replay(&run).await, Err(ResumeError::Diverged(_))), "{at}");
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Remembers one thing.
struct Remembering;

#[async_trait]
impl Memory for Remembering {
    async fn read(&self, _: MemoryQuery) -> Result<Vec<String>, BoxError> {
        Ok(vec!["They like tea.".to_owned()])
    }

    async fn write(&self, _: MemoryEntry) -> Result<(), BoxError> {
        Ok(())
    }

    async fn forget(&self, _: Option<&SessionId>) -> Result<u64, BoxError> {
        Ok(0)
    }
}

fn remembering(log: &Arc<MemoryLog>, model: ScriptedProvider) -> AgentBuilder {
    let agent = Agent::builder(model).name("agent").memory(Remembering).tool(add);
    agent.shared_log(Arc::clone(log) as Arc<dyn EventLog>)
}

/// Spec: J2w, M1. What the memory held stays beside the new instructions; tools and budget are the new ones, and what
/// was used counts.
#[tokio::test]
async fn model_reads_new_instructions_and_tools() {
    let log = Arc::new(MemoryLog::new());
    let adds = || calls([call("c1", "add", json!({"x": 1, "y": 2}))]);
    let old = remembering(&log, ScriptedProvider::new(vec![adds(), says("three")]));
    let old = old.instructions("Be kind.").build().unwrap();
    let run = old.run(RunRequest::new("go").run("run_1".into())).await.unwrap().run_id;
    let (_, events) = read_events(&*log, &run).await.unwrap();
    let is_request = |event: &&Event| matches!(event.kind, EventKind::ModelRequested(_));
    let second = events.iter().filter(is_request).nth(1).unwrap().seq;
    let (log, _) = durable::cut(&log, &run, second).await;

    let model =
        ScriptedProvider::from_fn(|_| calls([call("c2", "broken", json!({"how": "long"}))]));
    let asked = model.requests();
    let new = remembering(&log, model).instructions(NEW).tool(broken);
    let new = new.budget(Budget::new().model_calls(3)).build().unwrap();
    let ended = new.resume(adopting(&run)).await.unwrap();
    assert!(matches!(&ended.stop, Stop::BudgetExhausted { .. }), "{:?}", ended.stop);
    assert_eq!(ended.usage.model_attempts, 3, "one before, one that was lost, one since");
    let asked = asked.all();
    assert_eq!(asked.len(), 1);
    let first = &*asked[0].messages.messages()[0];
    assert_eq!(*first, Message::system("Be brief.\n\nMemory:\n- They like tea."));
    let offered: Vec<_> = asked[0].tools.iter().map(|tool| tool.name.to_string()).collect();
    assert!(offered.contains(&"broken".to_owned()), "{offered:?}");
    assert!(replay(&*log, &run).await.unwrap().is_some());
}

/// Spec: J2w. The agent that resumes the run next has to have the definition that the run has now, and records nothing
/// more.
#[tokio::test]
async fn adopted_definition_is_the_run_s_own() {
    let (log, run, appends) = durable::whole().await;
    let (copy, before) = durable::cut(&log, &run, appends[0]).await;
    let build = |log: &Arc<MemoryLog>, events: &[Event]| {
        durable::agent(log, durable::outcomes(events)).instructions(NEW).build().unwrap()
    };
    build(&copy, &before).resume(adopting(&run)).await.unwrap();
    let (_, events) = read_events(&*copy, &run).await.unwrap();
    let is_resumed = |event: &Event| matches!(event.kind, EventKind::RunResumed(_));
    let resumed = events.iter().find(|event| is_resumed(event)).unwrap().seq;
    let (copy, before) = durable::cut(&copy, &run, resumed).await;
    let old = durable::agent(&copy, 0).build().unwrap();
    assert!(matches!(old.resume(run.clone()).await, Err(ResumeError::Diverged(_))));
    let waiting = build(&copy, &before).resume(run.clone()).await.unwrap();
    assert_eq!(waiting.stop, Stop::WaitingApproval);
    assert_eq!(adopted(&read_events(&*copy, &run).await.unwrap().1).len(), 1);
}

mod once {
    use backstop_tool::{ToolError, tool};

    /// Pays, and must not do so twice.
    #[tool]
    pub(super) async fn pay() -> Result<String, ToolError> {
        Ok("paid".into())
    }
}

mod again {
    use backstop_tool::{ToolError, tool};

    /// Pays, and may be asked to do so again.
    #[tool(idempotent)]
    pub(super) async fn pay() -> Result<String, ToolError> {
        Ok("paid".into())
    }
}

/// Spec: J2w, D5. A call that may have acted is not repeated because the new definition says that it could be.
#[tokio::test]
async fn running_call_keeps_to_its_own_definition() {
    let tape = Arc::new(Tape::default());
    let asks = || calls([call("c1", "pay", json!({}))]);
    let payer = |tape: &Arc<Tape>, answers: Vec<ScriptedAnswer>| {
        let agent = Agent::builder(ScriptedProvider::new(answers)).name("payer");
        agent.shared_log(Arc::clone(tape) as Arc<dyn EventLog>)
    };
    let old = payer(&tape, vec![asks(), says("done")]).tool(once::pay).build().unwrap();
    let run = old.run(RunRequest::new("go").run("run_1".into())).await.unwrap().run_id;
    let batches = tape.batches();
    let begun = batches
        .iter()
        .position(|batch| batch.records.iter().any(|record| record.event_type == "tool.requested"));
    let begun = &batches[..=begun.unwrap()];
    let recovered = async |tape: &Tape| {
        let (_, events) = read_events(tape, &run).await.unwrap();
        let recovered = events.iter().find_map(|event| match &event.kind {
            EventKind::RunRecovered(recovered) => Some(recovered.clone()),
            _ => None,
        });
        assert!(replay(tape, &run).await.unwrap().is_some());
        recovered.unwrap()
    };

    let tape = Tape::after(begun).await;
    let new = payer(&tape, vec![says("done")]).tool(again::pay).build().unwrap();
    new.resume(adopting(&run)).await.unwrap();
    let lost = recovered(&tape).await;
    assert_eq!((lost.rerun.len(), lost.interrupted.len()), (0, 1), "{lost:?}");

    // Nor because it only dispatches by now.
    let tape = Tape::after(begun).await;
    let below = payer(&tape, vec![says("paid")]).name("pay").build().unwrap();
    let new = payer(&tape, vec![says("done")]).tool(below.as_tool("Pays.")).build().unwrap();
    new.resume(adopting(&run)).await.unwrap();
    let lost = recovered(&tape).await;
    assert_eq!((lost.rerun.len(), lost.interrupted.len()), (0, 1), "{lost:?}");

    // A call that was safe to repeat from the start is repeated.
    let tape = Arc::new(Tape::default());
    let old = payer(&tape, vec![asks(), says("done")]).tool(again::pay).build().unwrap();
    old.run(RunRequest::new("go").run("run_1".into())).await.unwrap();
    let tape = Tape::after(&tape.batches()[..begun.len()]).await;
    let new = payer(&tape, vec![says("done")]).tool(again::pay).instructions(NEW).build().unwrap();
    new.resume(adopting(&run)).await.unwrap();
    assert_eq!(recovered(&tape).await.rerun.len(), 1);
}

/// Spec: J2w, D2. What waits below a tool that is gone is answered after the record has the new definition.
#[tokio::test]
async fn definition_is_recorded_before_what_follows_from_it() {
    let bench = Bench::new();
    let agent = |tape: &Arc<Tape>, name: &str, answers| {
        let agent = Agent::builder(ScriptedProvider::new(answers)).name(name);
        let agent = agent.clock(Arc::new(bench.clock.clone()));
        agent.shared_log(Arc::clone(tape) as Arc<dyn EventLog>)
    };
    let lead = |tape: &Arc<Tape>, answers, has_clerk: bool| {
        let asks = vec![calls([call("c1", "pay", json!({}))])];
        let clerk = agent(tape, "clerk", asks).tool(once::pay).require_approval("pay");
        let lead = agent(tape, "lead", answers);
        let lead = if has_clerk {
            lead.tool(clerk.build().unwrap().as_tool("Helps."))
        } else {
            lead.instructions(NEW)
        };
        lead.build().unwrap()
    };
    let tape = Arc::new(Tape::default());
    let asks = vec![calls([call("c0", "clerk", json!({"input": "go"}))])];
    let old = lead(&tape, asks, true);
    let request = RunRequest::new("go").run("run_lead".into());
    let waiting = on(&bench, async move { old.run(request).await }).await.unwrap();
    assert_eq!(waiting.stop, Stop::WaitingApproval);
    let new = lead(&tape, vec![says("done")], false);
    let run = waiting.run_id.clone();
    let request = adopting(&run);
    let ended = on(&bench, async move { new.resume(request).await }).await.unwrap();
    assert_eq!(ended.stop, Stop::Completed);
    let (_, events) = read_events(&*tape, &run).await.unwrap();
    let types = types(&events);
    let place = |kind: &str| types.iter().rposition(|it| *it == kind).unwrap();
    assert!(place("run.resumed") < place("tool.responded"), "{types:?}");
    assert_eq!(adopted(&events).len(), 1);
    assert!(replay(&*tape, &run).await.unwrap().is_some());
}

/// Spec: J2w, B2. Another name is another agent; a price that comes later counts what was used before, and a model
/// without one is no way around the cost that a caller allows.
#[tokio::test]
async fn name_and_price_are_looked_at() {
    let million = || TokenUsage::new(1_000_000, 0);
    let three = || says("three").usage(million());
    let build = |tape: &Arc<Tape>, name: &str, answers, price: Option<Price>| {
        let agent = Agent::builder(ScriptedProvider::new(answers)).name(name).tool(add);
        let agent = price.into_iter().fold(agent, AgentBuilder::price);
        agent.shared_log(Arc::clone(tape) as Arc<dyn EventLog>)
    };
    let run = RunId::from("run_1");
    // Returns the log as it is before the last answer.
    let begun = async |price: Option<Price>, allowance: Option<Allowance>| {
        let tape = Arc::new(Tape::default());
        let adds = calls([call("c1", "add", json!({"x": 1, "y": 2}))]).usage(million());
        let agent = build(&tape, "payer", vec![adds, three()], price).build().unwrap();
        let mut context = Context::root();
        (context.run, context.allowance) = (Some(run.clone()), allowance);
        Operator::run(&agent, Task::text("go"), &context).await.unwrap();
        let batches = tape.batches();
        Tape::after(&batches[..batches.len() - 1]).await
    };
    let price = || Some(Price::new(2.0, 0.0));
    let new = |tape: &Arc<Tape>, name: &str, price| {
        build(tape, name, vec![three()], price).instructions(NEW).build().unwrap()
    };

    let tape = begun(None, None).await;
    let renamed = new(&tape, "another", price()).resume(adopting(&run)).await;
    assert!(matches!(renamed, Err(ResumeError::Diverged(_))), "{renamed:?}");
    let ended = new(&tape, "payer", price()).resume(adopting(&run)).await.unwrap();
    assert_eq!(ended.usage.cost_usd, Some(4.0), "a million tokens before, and one since");

    let mut allowance = Allowance::default();
    allowance.cost_nanousd = Some(9_000_000_000);
    let tape = begun(price(), Some(allowance)).await;
    let unpriced = new(&tape, "payer", None).resume(adopting(&run)).await;
    assert!(matches!(unpriced, Err(ResumeError::Diverged(_))), "{unpriced:?}");
    let ended = new(&tape, "payer", price()).resume(adopting(&run)).await.unwrap();
    assert_eq!(ended.usage.cost_usd, Some(4.0));
}

/// Spec: J2w, O3. Runs that it dispatched go on with their agents as those are now, too.
#[tokio::test]
async fn runs_below_go_on_likewise() {
    let bench = Bench::new();
    let build = |tape: &Arc<Tape>, instructions: &str, answered: usize| {
        let agent = |name: &str, answers: Vec<ScriptedAnswer>| {
            let model = ScriptedProvider::new(answers);
            let agent = Agent::builder(model).clock(Arc::new(bench.clock.clone())).name(name);
            agent.shared_log(Arc::clone(tape) as Arc<dyn EventLog>).instructions(instructions)
        };
        let adds = calls([call("c1", "add", json!({"x": 1, "y": 2}))]);
        let clerk = agent("clerk", [adds, says("three")][answered..].to_vec()).tool(add);
        let asks = calls([call("c0", "clerk", json!({"input": "go"}))]);
        let lead = agent("lead", [asks, says("done")][answered..].to_vec());
        lead.tool(clerk.build().unwrap().as_tool("Helps.")).build().unwrap()
    };
    let tape = Arc::new(Tape::default());
    let old = build(&tape, "Be kind.", 0);
    let request = RunRequest::new("go").run("run_lead".into());
    on(&bench, async move { old.run(request).await }).await.unwrap();
    let batches = tape.batches();
    let asked_again = |batch: &&Batch| {
        let has = |kind| batch.records.iter().any(|record| record.event_type == kind);
        &*batch.summary.agent == "clerk" && has("tool.responded")
    };
    let place = batches.iter().position(|batch| asked_again(&batch)).unwrap();
    let tape = Tape::after(&batches[..=place]).await;
    let new = build(&tape, NEW, 1);
    let request = adopting(&"run_lead".into());
    let ended = on(&bench, async move { new.resume(request).await }).await.unwrap();
    assert_eq!(ended.stop, Stop::Completed);
    for run in tape.log.runs(RunFilter::new()).await.unwrap() {
        let (_, events) = read_events(&*tape, &run.run).await.unwrap();
        assert_eq!(adopted(&events).len(), 1, "{}", run.agent);
        assert!(replay(&*tape, &run.run).await.unwrap().is_some());
    }
}

/// Spec: E7, J2w. The error has what changed, and how to continue with it.
#[tokio::test]
async fn another_definition_is_named_by_its_keys() {
    let (log, run, appends) = durable::whole().await;
    let (copy, _) = durable::cut(&log, &run, appends[0]).await;
    let agent = || durable::agent(&copy, 0);
    let limits = Limits::new().max_iterations(7);
    let new = agent().instructions(NEW).limits(limits).build().unwrap();
    let error = new.resume(run.clone()).await.unwrap_err();
    let hint = error.hint().unwrap().into_owned();
    let expected = "changed since the run began: `instructions`, `limits.max_iterations`; give the agent as it \
                    was, or continue with the new definition: `ResumeRequest::allow_other_agent`";
    assert_eq!((error.code(), hint.as_str()), ("replay.diverged", expected));
    let ResumeError::Diverged(divergence) = error else { panic!("{error}") };
    assert_eq!(divergence.actual["instructions"], NEW);

    let renamed = agent().name("another").build().unwrap();
    let error = renamed.resume(run).await.unwrap_err();
    assert!(error.hint().unwrap().starts_with("the run is one of agent `"), "{:?}", error.hint());
}
