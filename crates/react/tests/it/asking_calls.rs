//! Calls that ask a person while they are running (SPEC A3).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{Decision, EventLog, Inbox, MemoryLog, read_events};
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::{
    Agent, AgentBuilder, ApprovalDesk, ApprovalRequest, Approver, DecideError, decide, replay,
};
use backstop_tool::{
    Arguments, Given, JsonText, People, Tool, ToolContext, ToolError, ToolSpec, tool,
};
use layer0::Retry;
use layer0::event::{Actor, Event, EventKind};
use layer0::id::RunId;
use layer0::stop::Stop;
use serde_json::{Value, json};

use crate::bench::{Bench, call, calls, says, tool_texts, types};

fn day() -> Value {
    json!({"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]})
}

async fn which_day(context: &ToolContext) -> Result<String, ToolError> {
    Ok(match context.ask_person("Which day?", day()).await? {
        Given::Data(data) => data.get().to_owned(),
        other => format!("{other:?}"),
    })
}

/// Asks which day, and answers with what it was told.
#[tool(timeout = "60s")]
async fn plan(context: &ToolContext) -> Result<String, ToolError> {
    which_day(context).await
}

fn asks(tool: &str) -> Vec<ScriptedAnswer> {
    vec![calls([call("c1", tool, json!({}))]), says("done")]
}

fn monday() -> Decision {
    Decision::approve("ops").with_data(json!({"day": "monday"}))
}

/// An approver with this decision for each approval; `None` leaves it open.
struct Says(Option<Decision>);

#[async_trait]
impl Approver for Says {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        self.0.clone()
    }
}

fn denied(events: &[Event]) -> Vec<(Actor, &str)> {
    let denied = events.iter().filter_map(|event| match &event.kind {
        EventKind::ApprovalDenied(denied) => Some((event.actor, denied.reason.as_str())),
        _ => None,
    });
    denied.collect()
}

/// Waits for a request at a desk.
async fn asked(desk: &ApprovalDesk) -> ApprovalRequest {
    loop {
        if let Some(open) = desk.open().pop() {
            return open;
        }
        tokio::task::yield_now().await;
    }
}

/// Decides the question about the day, and leaves all other approvals open.
async fn says_monday(desk: &ApprovalDesk) {
    loop {
        let open = asked(desk).await.approval;
        if open.message.as_deref() == Some("Which day?") {
            return desk.decide(&open.id, monday()).unwrap();
        }
        tokio::task::yield_now().await;
    }
}

/// An agent on the time of day: no time passes while a test waits for a person.
fn agent(log: &Arc<MemoryLog>, answers: Vec<ScriptedAnswer>) -> AgentBuilder {
    let shared = Arc::clone(log) as Arc<dyn EventLog>;
    Agent::builder(ScriptedProvider::new(answers)).shared_log(shared)
}

/// Checks that nothing is open any more, and that the record replays.
async fn check_closed(log: &MemoryLog, run: &RunId) {
    assert!(log.open_approvals().await.unwrap().is_empty());
    assert!(replay(log, run).await.unwrap().is_some());
}

/// Spec: A3. What is asked and given stands in the record around the call.
#[tokio::test]
async fn what_a_call_asks_is_recorded() {
    let none_there = "NobodyThere";
    for (said, text, decided) in [
        (Some(monday()), r#"{"day":"monday"}"#, "approval.granted"),
        (Some(Decision::deny("ops", "no")), "Declined", "approval.denied"),
        (Some(Decision::approve("ops")), none_there, "approval.denied"),
        (Some(monday().with_data(json!({"day": 7}))), none_there, "approval.denied"),
        (Some(monday().with_arguments(json!({}))), none_there, "approval.denied"),
        (None, none_there, "approval.denied"),
    ] {
        let bench = Bench::new();
        let outcome = bench.run(bench.agent(asks("plan")).tool(plan).approver(Says(said))).await;
        let outcome = outcome.unwrap();
        assert_eq!(tool_texts(&outcome), [(text.to_owned(), false)]);
        let events = bench.events(&outcome.run_id).await;
        let told = types(&events);
        let at = told.iter().position(|kind| *kind == "tool.requested").unwrap();
        let around = ["tool.requested", "approval.requested", decided, "tool.responded"];
        assert_eq!(told[at..][..4], around);
        assert!(!told.contains(&"run.waiting"));
        let EventKind::ApprovalRequested(asked) = &events[at + 1].kind else { panic!("{told:?}") };
        assert_eq!(asked.message.as_deref(), Some("Which day?"));
        assert_eq!(asked.schema.as_ref().map(JsonText::value), Some(day()));
        assert_eq!(events[at + 1].actor, Actor::Runtime);
        let answer = matches!(&events[at + 2].kind, EventKind::ApprovalGranted(_));
        assert_eq!(answer, decided == "approval.granted");
        check_closed(&bench.log, &outcome.run_id).await;
    }
}

/// Asks as long as it is told something.
#[tool(timeout = "60s")]
async fn insist(context: &ToolContext) -> Result<String, ToolError> {
    for times in 0.. {
        if let Err(error) = which_day(context).await {
            return Ok(format!("{times} times: {error}"));
        }
    }
    unreachable!("it is refused at last")
}

/// Spec: A3, Q3
#[tokio::test]
async fn a_call_asks_a_person_so_often() {
    let bench = Bench::new();
    let agent = bench.agent(asks("insist")).tool(insist).approver(Says(Some(monday())));
    let outcome = bench.run(agent).await.unwrap();
    let [(text, false)] = &tool_texts(&outcome)[..] else { panic!("{outcome:?}") };
    assert!(text.starts_with("160 times: "), "{text}");
    assert!(text.ends_with("it asked a person 160 times, and asks again"), "{text}");
    check_closed(&bench.log, &outcome.run_id).await;
}

/// Spec: A3. Where there is no approver, no person is asked, and nothing is recorded.
#[tokio::test]
async fn nobody_is_there_without_an_approver() {
    let bench = Bench::new();
    let outcome = bench.run(bench.agent(asks("plan")).tool(plan)).await.unwrap();
    assert_eq!(tool_texts(&outcome), [("NobodyThere".to_owned(), false)]);
    assert!(!types(&bench.events(&outcome.run_id).await).contains(&"approval.requested"));
    let at = bench.clock.now();
    let outside = ToolContext::new("r".into(), "s".into(), "c".into(), at);
    assert_eq!(outside.ask_person("?", day()).await.unwrap(), Given::NobodyThere);
}

/// Spec: A3. What falls out of the mechanism: another process decides, and what it says has to fit.
#[tokio::test]
async fn another_process_may_answer() {
    let (log, desk) = (Arc::default(), ApprovalDesk::default());
    let agent = agent(&log, asks("plan")).tool(plan).approver(desk.clone()).build().unwrap();
    let at = "2026-01-01T00:00:00Z".parse().unwrap();
    let elsewhere = async {
        let request = asked(&desk).await;
        let open = log.open_approvals().await.unwrap().remove(0);
        assert_eq!((&open.id, open.message.as_deref()), (&request.approval.id, Some("Which day?")));
        let decides = |decision| decide(&*log, &open.id, decision, at);
        let refused = decides(monday().with_data(json!({}))).await.unwrap_err();
        assert!(matches!(refused, DecideError::Data(_)), "{refused}");
        let refused = decides(monday().with_arguments(json!({}))).await.unwrap_err();
        assert!(matches!(refused, DecideError::Arguments(_)), "{refused}");
        decides(monday()).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(agent.run("input"), elsewhere);
    let outcome = outcome.unwrap();
    assert_eq!(tool_texts(&outcome), [(r#"{"day":"monday"}"#.to_owned(), false)]);
    assert!(desk.open().is_empty(), "it is withdrawn here");
    check_closed(&log, &outcome.run_id).await;
}

/// Spec: O2, A3. A person who takes longer than the tool may is waited for.
#[tokio::test]
async fn asking_takes_no_time_of_the_tool() {
    /// Answers when it asked for the longest time.
    struct AnswersLate(VirtualClock);

    #[async_trait]
    impl Approver for AnswersLate {
        async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
            self.0.sleep(Duration::from_secs(300)).await;
            Some(monday())
        }
    }

    let bench = Bench::new();
    let late = AnswersLate(bench.clock.clone());
    let outcome = bench.run(bench.agent(asks("plan")).tool(plan).approver(late)).await.unwrap();
    assert_eq!(tool_texts(&outcome), [(r#"{"day":"monday"}"#.to_owned(), false)]);
    assert_eq!(bench.elapsed(), Duration::from_secs(300));
    check_closed(&bench.log, &outcome.run_id).await;
}

/// Spec: O2, A3, T7. The tool's own time passes before and behind what it asks.
#[tokio::test]
async fn tool_that_asked_times_out() {
    /// Waits for half its time, asks, and waits for more than the rest.
    #[tool(timeout = "60s")]
    async fn slow(context: &ToolContext) -> Result<String, ToolError> {
        let clock: &VirtualClock = context.state().unwrap();
        clock.sleep(Duration::from_secs(30)).await;
        which_day(context).await?;
        clock.sleep(Duration::from_secs(40)).await;
        Ok("too late".into())
    }
    let bench = Bench::new();
    let agent = bench.agent(asks("slow")).tool(slow).state(bench.clock.clone());
    let outcome = bench.run(agent.approver(Says(Some(monday())))).await.unwrap();
    assert!(tool_texts(&outcome)[0].0.contains("timed out"), "{:?}", tool_texts(&outcome));
    assert_eq!(bench.elapsed(), Duration::from_secs(60));
    check_closed(&bench.log, &outcome.run_id).await;
}

/// Spec: A3, B3
#[tokio::test]
async fn a_cancelled_call_asks_no_more() {
    let (log, desk) = (Arc::default(), ApprovalDesk::default());
    let agent = agent(&log, asks("plan")).tool(plan).approver(desk.clone()).build().unwrap();
    let cancels = async {
        let run = asked(&desk).await.run;
        assert!(agent.cancel(&run, "ops").await.unwrap());
    };
    let (outcome, ()) = tokio::join!(agent.run("input"), cancels);
    let outcome = outcome.unwrap();
    assert_eq!(outcome.stop, Stop::Cancelled);
    let events = read_events(&*log, &outcome.run_id).await.unwrap().1;
    assert_eq!(denied(&events), [(Actor::Machine, "tool.cancelled")]);
    assert!(desk.open().is_empty());
    check_closed(&log, &outcome.run_id).await;
}

/// Spec: A3. A tool that waits no longer for the answer withdraws what it asked, and may ask again.
#[tokio::test]
async fn a_tool_withdraws_what_it_asked() {
    /// Asks twice, once in vain.
    #[tool]
    async fn twice(context: &ToolContext) -> Result<String, ToolError> {
        let first = context.ask_person("now?", json!({}));
        tokio::select! {
            biased;
            _ = first => return Err(ToolError::ExecutionFailed("it was answered".into())),
            () = tokio::task::yield_now() => {}
        }
        which_day(context).await
    }
    let (log, desk) = (Arc::default(), ApprovalDesk::default());
    let agent = agent(&log, asks("twice")).tool(twice).approver(desk.clone()).build().unwrap();
    let (outcome, ()) = tokio::join!(agent.run("input"), says_monday(&desk));
    let outcome = outcome.unwrap();
    assert_eq!(tool_texts(&outcome), [(r#"{"day":"monday"}"#.to_owned(), false)]);
    check_closed(&log, &outcome.run_id).await;
}

/// Spec: A3. Two tasks of a call ask one after the other; two calls ask side by side.
#[tokio::test]
async fn calls_ask_side_by_side() {
    /// Asks two things at once.
    #[tool]
    async fn both(context: &ToolContext) -> Result<String, ToolError> {
        let (one, other) = tokio::join!(which_day(context), which_day(context));
        Ok(format!("{} {}", one?, other?))
    }
    let bench = Bench::new();
    let batch = [call("c1", "both", json!({})), call("c2", "both", json!({}))];
    let agent = bench.agent(vec![calls(batch), says("done")]).tool(both);
    let outcome = bench.run(agent.approver(Says(Some(monday())))).await.unwrap();
    let text = r#"{"day":"monday"} {"day":"monday"}"#.to_owned();
    assert_eq!(tool_texts(&outcome), [(text.clone(), false), (text, false)]);
    let told = types(&bench.events(&outcome.run_id).await);
    assert_eq!(told.iter().filter(|kind| **kind == "approval.granted").count(), 4);
    check_closed(&bench.log, &outcome.run_id).await;
}

/// Asks in a task that outlives an attempt that fails, and in the next attempt again.
struct Retried(ToolSpec);

#[async_trait]
impl Tool for Retried {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &Arguments, context: &ToolContext) -> Result<JsonText, ToolError> {
        static FIRST: std::sync::Once = std::sync::Once::new();
        let mut is_first = false;
        FIRST.call_once(|| is_first = true);
        if is_first {
            let people: Arc<dyn People> = context.people.clone().unwrap();
            tokio::spawn(async move { people.ask("in vain?", json!({}).into()).await });
            tokio::task::yield_now().await;
            let error = ToolError::ExecutionFailed("busy".into());
            return Err(error.with_retry(Retry::After(Duration::ZERO)));
        }
        which_day(context).await.map(|day| JsonText::string(&day))
    }
}

/// Spec: A3
#[tokio::test]
async fn an_attempt_that_failed_asks_no_more() {
    let spec = ToolSpec::new("retried", "d", json!({"type": "object"})).idempotent();
    let (log, desk) = (Arc::default(), ApprovalDesk::default());
    let agent =
        agent(&log, asks("retried")).tool(Retried(spec)).approver(desk.clone()).build().unwrap();
    let (outcome, ()) = tokio::join!(agent.run("input"), says_monday(&desk));
    let outcome = outcome.unwrap();
    assert_eq!(tool_texts(&outcome), [(r#"{"day":"monday"}"#.to_owned(), false)]);
    check_closed(&log, &outcome.run_id).await;
}

/// Spec: A3, E11. What is no schema is the tool's failure, and no person is asked.
#[tokio::test]
async fn a_schema_that_is_none_is_a_failure() {
    /// Asks for nothing that there is.
    #[tool]
    async fn wrong(context: &ToolContext) -> Result<(), ToolError> {
        context.ask_person("?", json!({"type": "nothing"})).await.map(drop)
    }
    let bench = Bench::new();
    let agent = bench.agent(asks("wrong")).tool(wrong).approver(Says(Some(monday())));
    let outcome = bench.run(agent).await.unwrap();
    assert!(tool_texts(&outcome)[0].0.contains("no JSON Schema"), "{:?}", tool_texts(&outcome));
    assert!(!types(&bench.events(&outcome.run_id).await).contains(&"approval.requested"));
}

/// Runs until a person is asked, and dies then.
async fn dies(tool: impl Tool + 'static, name: &str) -> (Arc<MemoryLog>, RunId) {
    let (log, desk) = (Arc::new(MemoryLog::new()), ApprovalDesk::default());
    let agent = agent(&log, asks(name)).tool(tool).approver(desk.clone()).build().unwrap();
    let running = tokio::spawn(async move { agent.run("input").await });
    let run = asked(&desk).await.run;
    assert_eq!(log.open_approvals().await.unwrap().len(), 1);
    running.abort();
    let _ = running.await;
    (log, run)
}

/// Spec: A3, D5. A process that died with the approval open: the call is answered as interrupted, or asks again.
#[tokio::test]
async fn a_run_that_died_closes_what_was_asked() {
    /// Asks which day, and may be repeated.
    #[tool(idempotent)]
    async fn again(context: &ToolContext) -> Result<String, ToolError> {
        which_day(context).await
    }
    for (is_repeated, (log, run)) in
        [(false, dies(plan, "plan").await), (true, dies(again, "again").await)]
    {
        // A decision that nothing waits for any more is lost with the approval.
        let open = log.open_approvals().await.unwrap().remove(0).id;
        assert!(
            decide(&*log, &open, monday(), "2026-01-01T00:00:00Z".parse().unwrap()).await.is_ok()
        );
        let agent = agent(&log, vec![says("done")]);
        let agent = if is_repeated { agent.tool(again) } else { agent.tool(plan) };
        let agent = agent.approver(Says(Some(monday()))).build().unwrap();
        let resumed = agent.resume(run.clone()).await.unwrap();
        let (text, _) = tool_texts(&resumed).remove(0);
        let events = read_events(&*log, &run).await.unwrap().1;
        let told = types(&events);
        let at = told.iter().position(|kind| *kind == "run.recovered").unwrap();
        match is_repeated {
            true => {
                assert_eq!(text, r#"{"day":"monday"}"#);
                let then = ["approval.denied", "approval.requested", "approval.granted"];
                assert_eq!(told[at + 1..][..3], then);
            }
            false => {
                assert!(text.starts_with("Interrupted"), "{text}");
                assert_eq!(told[at + 1..][..2], ["approval.denied", "tool.responded"]);
            }
        }
        assert_eq!(denied(&events), [(Actor::Machine, "tool.interrupted")]);
        assert!(log.inbox(&run).await.unwrap().is_empty());
        check_closed(&log, &run).await;
    }
}

/// Spec: A3, B3. A run that no process has is cancelled with all that it asked.
#[tokio::test]
async fn a_dead_run_cancelled_asks_no_more() {
    let (log, run) = dies(plan, "plan").await;
    let shared = Arc::clone(&log) as Arc<dyn EventLog>;
    assert!(backstop_react::cancel(shared, &run, "ops").await.unwrap());
    assert_eq!(denied(&read_events(&*log, &run).await.unwrap().1).len(), 1);
    check_closed(&log, &run).await;
}

/// Spec: A3, D7. In a copy, what the run before it asked is closed.
#[tokio::test]
async fn a_copy_closes_what_was_asked() {
    let (log, run) = dies(plan, "plan").await;
    let agent = agent(&log, vec![says("done")]).tool(plan).build().unwrap();
    let seq = read_events(&*log, &run).await.unwrap().1.len() as u64;
    let child = agent.fork(backstop_react::ForkRequest::new(run, seq)).await.unwrap();
    assert_eq!(child.stop, Stop::Completed);
    assert_eq!(log.open_approvals().await.unwrap().len(), 1, "that of the run itself");
    let events = read_events(&*log, &child.run_id).await.unwrap().1;
    assert_eq!(denied(&events), [(Actor::Machine, "tool.interrupted")]);
    assert!(replay(&*log, &child.run_id).await.unwrap().is_some());
}
