//! Resume, replay, fork and sessions through the API, cut at every place.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop_event_log::{
    Decision, EventLog, Inbox, Log, LogError, MemoryLog, Ports, RunFilter, Runs, read_events,
};
use backstop_provider::{ErrorKind, ScriptedAnswer, ScriptedProvider};
use backstop_react::{
    Agent, AgentBuilder, Finish, ForkRequest, ResumeError, ResumeRequest, RunRequest, Source,
    replay,
};
use backstop_tool::{ToolError, tool};
use layer0::Timestamp;
use layer0::event::{Event, EventKind};
use layer0::failure::Failure;
use layer0::message::Message;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::*;

/// Pays.
#[tool]
async fn pay(cents: u32) -> Result<String, ToolError> {
    Ok(format!("paid {cents}"))
}

/// Wipes.
#[tool(approval)]
async fn wipe() -> Result<String, ToolError> {
    Ok("wiped".into())
}

fn script() -> Vec<ScriptedAnswer> {
    let fails = |text: &str| fails(ErrorKind::Transient).text(text);
    vec![
        calls([
            call("c1", "add", json!({"x": 1, "y": 2})),
            call("c2", "pay", json!({"cents": 5})),
            call("c3", "broken", json!({"how": "long"})),
        ]),
        fails("half"),
        calls([call("c4", "wipe", json!({})), call("c5", "add", json!({"x": 3, "y": 4}))]),
        says("done"),
    ]
}

/// An agent that continues its script from the end of a log.
pub(crate) fn agent(log: &Arc<MemoryLog>, from: usize) -> AgentBuilder {
    let retry = backstop_retry::RetryConfig::new()
        .base(std::time::Duration::from_millis(0))
        .cap(std::time::Duration::from_millis(0));
    Agent::builder(ScriptedProvider::new(script()[from..].to_vec()))
        .name("durable")
        .retry(retry)
        .tool(add)
        .tool(pay)
        .tool(broken)
        .tool(wipe)
        .error_store(backstop_error_store::MemoryErrorStore::new())
        .shared_log(Arc::clone(log) as Arc<dyn EventLog>)
}

/// Number of answers of the script in a record.
pub(crate) fn outcomes(events: &[Event]) -> usize {
    let used = |event: &&Event| match &event.kind {
        EventKind::ModelResponded(_) => true,
        EventKind::ModelAttempted(attempted) => attempted.code.is_some(),
        _ => false,
    };
    events.iter().filter(used).count()
}

/// Copies the first events of a run into a log of their own, as a process leaves them that dies.
pub(crate) async fn cut(
    log: &MemoryLog,
    run: &layer0::id::RunId,
    at: u64,
) -> (Arc<MemoryLog>, Vec<Event>) {
    let (_, mut events) = read_events(log, run).await.unwrap();
    events.truncate(usize::try_from(at).unwrap());
    let mut records = log.records(run, 1).await.unwrap();
    records.truncate(events.len());
    let copy = Arc::new(MemoryLog::new());
    let mut writer = backstop_event_log::RunWriter::copy(
        Arc::clone(&copy) as Arc<dyn EventLog>,
        run.clone(),
        &events,
        records,
    );
    writer.commit().await.unwrap();
    (copy, events)
}

/// A whole run, with its approval decided in between.
pub(crate) async fn whole() -> (Arc<MemoryLog>, layer0::id::RunId, Vec<u64>) {
    /// Notes where appends end.
    struct Noting(Arc<MemoryLog>, Arc<std::sync::Mutex<Vec<u64>>>);
    impl EventLog for Noting {
        fn ports(&self) -> Ports<'_> {
            self.0.ports().log(self)
        }
    }

    #[async_trait::async_trait]
    impl Log for Noting {
        async fn claim(
            &self,
            run: &layer0::id::RunId,
        ) -> Result<backstop_event_log::Claim, LogError> {
            self.0.claim(run).await
        }
        async fn append(&self, batch: backstop_event_log::Batch) -> Result<(), LogError> {
            self.1.lock().unwrap().push(batch.summary.last_seq);
            self.0.append(batch).await
        }
        async fn summary(
            &self,
            run: &layer0::id::RunId,
        ) -> Result<Option<backstop_event_log::RunSummary>, LogError> {
            self.0.summary(run).await
        }
        async fn records(
            &self,
            run: &layer0::id::RunId,
            from: u64,
        ) -> Result<Vec<backstop_event_log::Record>, LogError> {
            self.0.records(run, from).await
        }
        fn claim_new(&self, run: &layer0::id::RunId) -> backstop_event_log::Claim {
            self.0.claim_new(run)
        }
    }
    let log = Arc::new(MemoryLog::new());
    let appends = Arc::default();
    let noting = Noting(Arc::clone(&log), Arc::clone(&appends));
    let first = agent(&log, 0).shared_log(Arc::new(noting)).build().unwrap();
    let waiting = first.run(RunRequest::new("go").session("s-1")).await.unwrap();
    assert_eq!(waiting.stop, Stop::WaitingApproval);
    let id = &waiting.approvals[0].id;
    assert!(log.decide(id, Decision::approve("ops"), Timestamp::default()).await.unwrap());
    assert!(
        !log.decide(id, Decision::approve("ops"), Timestamp::default()).await.unwrap(),
        "decided once"
    );
    let done = first.resume(waiting.run_id.clone()).await.unwrap();
    assert_eq!((done.stop.clone(), done.text()), (Stop::Completed, "done"));
    let appends = appends.lock().unwrap().clone();
    (log, done.run_id, appends)
}

/// Spec: D5, A1. After every append the process may die; another one goes on.
#[tokio::test]
async fn a_run_goes_on_after_every_append() {
    let (log, run, appends) = whole().await;
    let (_, complete) = read_events(&*log, &run).await.unwrap();
    for at in appends {
        let (copy, before) = cut(&log, &run, at).await;
        let agent = agent(&copy, outcomes(&before)).build().unwrap();
        let mut outcome = match agent.resume(ResumeRequest::new(run.clone()).by("test")).await {
            Ok(outcome) => outcome,
            Err(error) => panic!("{at}: {}", layer0::failure::Chain(&error)),
        };
        while outcome.stop == Stop::WaitingApproval {
            let id = outcome.approvals[0].id.clone();
            assert!(
                copy.decide(&id, Decision::approve("ops"), Timestamp::default()).await.unwrap(),
                "{at}"
            );
            outcome = agent.resume(run.clone()).await.unwrap();
        }
        assert_eq!(outcome.stop, Stop::Completed, "{at}");
        let (_, after) = read_events(&*copy, &run).await.unwrap();
        let kinds = |events: &[Event], kind: &str| {
            events.iter().filter(|event| event.kind.event_type() == kind).count()
        };
        let died = !matches!(
            before.last().unwrap().kind,
            EventKind::RunWaiting(_) | EventKind::RunFinished(_)
        );
        assert_eq!(kinds(&after, "run.recovered"), usize::from(died), "{at}");
        // No step that was complete is done again; one answer per call.
        for id in ["c1", "c2", "c3", "c4", "c5"] {
            let of = |event: &&Event, kind: &str| {
                let event = serde_json::to_value(*event).unwrap();
                event["type"] == kind && event["data"]["call_id"] == id
            };
            let count = |kind: &str| after.iter().filter(|event| of(event, kind)).count();
            assert_eq!((count("tool.requested"), count("tool.responded")), (1, 1), "{at} {id}");
        }
        let open = before.iter().filter_map(|event| match &event.kind {
            EventKind::ToolRequested(requested) => Some(requested.call_id.clone()),
            _ => None,
        });
        let answered = |id: &layer0::id::CallId| {
            before.iter().any(|event| {
                matches!(&event.kind, EventKind::ToolResponded(answer) if answer.call_id == *id)
            })
        };
        let mut effectful_open = false;
        for id in open.filter(|id| !answered(id)) {
            let answer = after.iter().find_map(|event| match &event.kind {
                EventKind::ToolResponded(answer) if answer.call_id == id => Some(answer.clone()),
                _ => None,
            });
            let answer = answer.unwrap();
            let reason = answer.error.map(|error| error.reason.to_string());
            let idempotent = &*answer.tool == "add";
            effectful_open |= !idempotent;
            assert_eq!(reason.as_deref() == Some("tool.interrupted"), !idempotent, "{at} {id}");
        }
        if !effectful_open {
            let texts = |events: &[Event]| -> Vec<String> {
                let answers = events.iter().filter_map(|event| match &event.kind {
                    EventKind::ToolResponded(answer) => Some(answer),
                    _ => None,
                });
                let mut texts: Vec<String> = answers
                    .map(|answer| {
                        let error = answer.error.as_ref().map(|error| error.message.to_string());
                        format!("{} {} {error:?}", answer.call_id, answer.ok)
                    })
                    .collect();
                texts.sort();
                texts
            };
            assert_eq!(texts(&after), texts(&complete), "{at}");
        }
        assert!(
            matches!(replay(&*copy, &run).await.unwrap(), Some(Finish::Stopped { .. })),
            "{at}"
        );
        // Resuming a finished run appends nothing and returns the recorded result.
        let again = agent.resume(run.clone()).await.unwrap();
        assert_eq!((again.text(), again.usage), (outcome.text(), outcome.usage), "{at}");
        assert_eq!(read_events(&*copy, &run).await.unwrap().1.len(), after.len(), "{at}");
    }
}

/// Spec: D5, D6. A failure is the same failure in another process.
#[tokio::test]
async fn a_recorded_failure_is_the_same_failure() {
    let log = Arc::new(MemoryLog::new());
    let build = || {
        Agent::builder(ScriptedProvider::new(vec![fails(ErrorKind::QuotaExhausted)]))
            .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
            .build()
            .unwrap()
    };
    let failure = build().run("go").await.unwrap_err();
    let Err(ResumeError::Run(recorded)) = build().resume(failure.run_id.clone()).await else {
        panic!("it had failed")
    };
    assert_eq!(recorded.code(), failure.code());
    let chain = layer0::failure::chain(recorded.error.as_cause());
    assert_eq!(chain, ["quota exhausted: scripted quota"]);
    let Some(Finish::Failed(cause)) = replay(&*log, &failure.run_id).await.unwrap() else {
        panic!("it had failed")
    };
    assert_eq!(cause.code().as_str(), failure.code());
    assert!(matches!(
        build().resume("run_none").await,
        Err(ResumeError::Log(LogError::NotFound(_)))
    ));
}

/// Spec: D6, D2. Another prompt is another agent.
#[tokio::test]
async fn another_agent_diverges_at_the_start() {
    let (log, run, _) = whole().await;
    let other = agent(&log, 0).instructions("Be rude.").build().unwrap();
    let Err(ResumeError::Diverged(divergence)) = other.replay(&run).await else {
        panic!("diverges")
    };
    assert_eq!((divergence.seq, divergence.kind), (1, "agent"));
    assert_eq!(divergence.code(), "replay.diverged");
    assert!(matches!(other.resume(run.clone()).await, Err(ResumeError::Diverged(_))));
    let allowed = other.resume(ResumeRequest::new(run).allow_other_agent()).await.unwrap();
    assert_eq!(allowed.text(), "done");
}

/// Spec: D8
#[tokio::test]
async fn a_living_writer_is_not_taken_over() {
    let (log, run, _) = whole().await;
    let (copy, before) = cut(&log, &run, 7).await;
    let claim = copy.claim(&run).await.unwrap();
    let agent = agent(&copy, outcomes(&before)).build().unwrap();
    let refused = agent.resume(run.clone()).await.unwrap_err();
    assert!(matches!(refused, ResumeError::Log(LogError::Claimed(_))), "{refused}");
    assert_eq!(copy.records(&run, 1).await.unwrap().len(), 7, "nothing was written");
    drop(claim);
    assert!(agent.resume(run).await.is_ok());
}

/// Spec: D7
#[tokio::test]
async fn fork_goes_on_from_every_event() {
    let (log, run, _) = whole().await;
    let (_, parent) = read_events(&*log, &run).await.unwrap();
    // The last event is its end, from which a fork only continues with an input.
    for at in 1..parent.len() {
        let events = &parent[..at];
        let agent = agent(&log, outcomes(events)).build().unwrap();
        let request = ForkRequest::new(run.clone(), at as u64);
        let child = match agent.fork(request).await {
            Ok(child) => child,
            Err(error) => panic!("{at}: {}", layer0::failure::Chain(&error)),
        };
        assert_ne!(child.run_id, run);
        assert_ne!(child.session.as_str(), "s-1", "{at}");
        let (summary, copied) = read_events(&*log, &child.run_id).await.unwrap();
        assert_eq!(summary.session, child.session, "{at}");
        assert!(copied.iter().zip(events).all(|(a, b)| a.kind == b.kind && a.hash == b.hash));
        assert_eq!(copied[at].kind.event_type(), "run.forked", "{at}");
        assert!(replay(&*log, &child.run_id).await.is_ok(), "{at}");
        let mut child = child;
        while child.stop == Stop::WaitingApproval {
            let id = child.approvals[0].id.clone();
            assert!(parent.iter().all(|event| match &event.kind {
                EventKind::ApprovalRequested(asked) => asked.approval_id != id,
                _ => true,
            }));
            assert!(
                log.decide(&id, Decision::deny("ops", "no"), Timestamp::default()).await.unwrap()
            );
            child = agent.resume(child.run_id.clone()).await.unwrap();
        }
        assert_eq!(child.stop, Stop::Completed, "{at}");
        assert!(replay(&*log, &child.run_id).await.unwrap().is_some(), "{at}");
        assert_eq!(read_events(&*log, &run).await.unwrap().1.len(), parent.len(), "untouched");
    }
    let agent = agent(&log, 0).build().unwrap();
    let beyond = agent.fork(ForkRequest::new(run.clone(), 99)).await.unwrap_err();
    assert!(matches!(beyond, ResumeError::NoSuchEvent { seq: 99, .. }), "{beyond}");
}

/// Spec: A1. Another process decides while the run is in this one, and this one does not.
#[tokio::test]
async fn a_decision_from_elsewhere_reaches_a_living_run() {
    let bench = Bench::new();
    let answers = vec![calls([call("c1", "wipe", json!({}))]), says("done")];
    let desk = backstop_react::ApprovalDesk::default();
    let agent = bench.agent(answers).tool(wipe).approver(desk.clone());
    let elsewhere = async {
        loop {
            if let Some(open) = bench.log.open_approvals().await.unwrap().first() {
                assert!(
                    bench
                        .log
                        .decide(&open.id, Decision::deny("ops", "no"), Timestamp::default())
                        .await
                        .unwrap()
                );
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let (outcome, ()) = tokio::join!(bench.run(agent), elsewhere);
    assert_eq!(tool_texts(&outcome.unwrap())[0].0, "Denied by ops: no");
    assert!(desk.open().is_empty(), "no approval is open here any more");
}

/// Spec: D7
#[tokio::test]
async fn a_copy_can_be_told_something_else() {
    let (log, run, _) = whole().await;
    let other = Arc::new(MemoryLog::new());
    let agent = Agent::builder(ScriptedProvider::saying(["as you wish"]))
        .shared_log(Arc::clone(&other) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    let request = ForkRequest::new(run, 2).input("Stop here.").from(Source::new(log));
    let child = agent.fork(request).await.unwrap();
    assert_eq!(child.text(), "as you wish");
    let said = child.transcript.messages().iter().any(
        |message| matches!(&**message, Message::User { content, .. } if &**content == "Stop here."),
    );
    assert!(said);
    assert!(replay(&*other, &child.run_id).await.unwrap().is_some());
}

/// Spec: D5. What is said in a session is known to its next run, and a run that died keeps no other
/// from going on.
#[tokio::test]
async fn a_session_goes_on_over_runs_that_died() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    /// Never ends.
    #[tool]
    async fn hang() -> Result<(), ToolError> {
        RUNS.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
    let log = Arc::new(MemoryLog::new());
    let build = |answers: Vec<ScriptedAnswer>| {
        Agent::builder(ScriptedProvider::new(answers))
            .tool(hang)
            .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
            .build()
            .unwrap()
    };
    let ask = |text: &str| RunRequest::new(text).session("s-1");
    build(vec![says("Hello Ada.")]).run(ask("I am Ada.")).await.unwrap();
    let dies = build(vec![calls([call("c1", "hang", json!({}))])]);
    let died = tokio::spawn(async move { dies.run(ask("Wait.")).await });
    while RUNS.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let busy = build(vec![]).run(ask("And?")).await.unwrap_err();
    assert_eq!((busy.code(), busy.error.is_retryable()), ("run.open", true));
    assert!(format!("{busy:#}").contains("session `s-1` has another run"), "{busy:#}");
    died.abort();
    let _ = died.await;

    let last = build(vec![says("You are Ada.")]).run(ask("Who am I?")).await.unwrap();
    let said: Vec<String> = last
        .transcript
        .messages()
        .iter()
        .map(|message| match &**message {
            Message::User { content, .. } => format!("user: {content}"),
            Message::Assistant { content, tool_calls, .. } => {
                format!("assistant: {content} {}", tool_calls.len())
            }
            Message::Tool { content, is_error, .. } => format!("tool: {content} {is_error}"),
            _ => String::new(),
        })
        .collect();
    assert_eq!(
        said,
        [
            "user: I am Ada.",
            "assistant: Hello Ada. 0",
            "user: Wait.",
            "assistant:  1",
            "tool: Interrupted: may already have acted true",
            "user: Who am I?",
            "assistant: You are Ada. 0",
        ]
    );
    let filter = RunFilter::new().session("s-1");
    for run in log.runs(filter).await.unwrap() {
        assert!(!run.is_open());
        assert!(replay(&*log, &run.run).await.unwrap().is_some());
    }
}

/// Spec: D7, S7. What a run stored can be read from its copies, and from nowhere else.
#[tokio::test]
async fn a_copy_reads_what_its_parent_stored() {
    let bench = Bench::new();
    let fail = calls([call("c1", "broken", json!({"how": "long"}))]);
    let failed = bench.run(bench.agent(vec![fail, says("it failed")]).tool(broken)).await.unwrap();
    let events = bench.events(&failed.run_id).await;
    let id = events.iter().find_map(|event| match &event.kind {
        EventKind::ErrorStored(stored) => Some(stored.error_id.clone()),
        _ => None,
    });
    let read = calls([call("c2", "get_error_detail", json!({"error_id": id.unwrap()}))]);
    let agent = || bench.agent(vec![read.clone(), says("done")]).tool(broken);
    let at = events.iter().position(|event| event.kind.event_type() == "tool.responded");
    let fork = ForkRequest::new(failed.run_id, at.unwrap() as u64 + 1);
    let child = agent().build().unwrap().fork(fork).await.unwrap();
    let (text, is_error) = tool_texts(&child).pop().unwrap();
    assert!(text.contains("first line") && !is_error, "{text}");
    let stranger = bench.run(agent()).await.unwrap();
    assert!(tool_texts(&stranger)[0].0.contains("Error ID not found"));
}
