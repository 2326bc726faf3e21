//! Runs that go on with another definition of their agent.

use std::sync::Arc;

use async_trait::async_trait;
use backstop_event_log::{Decision, EventLog, MemoryLog, agent_of, read_events};
use backstop_provider::ScriptedProvider;
use backstop_react::{
    Agent, AgentBuilder, Budget, Memory, MemoryEntry, MemoryQuery, ResumeError, ResumeRequest,
    RunRequest, replay,
};
use layer0::Timestamp;
use layer0::event::{Event, EventKind};
use layer0::id::{RunId, SessionId};
use layer0::message::Message;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::*;
use crate::durable;

const NEW: &str = "Be brief.";

fn adopting(run: &RunId) -> ResumeRequest {
    ResumeRequest::new(run.clone()).by("deploy").allow_other_agent()
}

/// Returns what a run says of definitions that it went on with.
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
        let digest = agent_of(&after).unwrap().digest.to_string();
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

/// Spec: J2w. Whoever goes on with the run next needs the definition that it has now, and records nothing more.
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
