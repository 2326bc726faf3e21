//! Workflows: operators made of operators, with a record of their steps.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{
    Decision, EventLog, Inbox, Log, MemoryLog, RunFilter, RunState, Runs, read_events,
};
use backstop_orchestrator::{
    LocalOrchestrator, Map, OnFailure, Parallel, Restart, Route, Sequence, Supervise, Workflow,
    replay_workflow,
};
use backstop_provider::{ErrorKind, ModelRequest, ScriptedAnswer};
use backstop_react::Agent;
use layer0::error::{OperatorError, OrchError};
use layer0::event::{Event, EventKind};
use layer0::failure::Failure;
use layer0::id::{RunId, WorkflowId};
use layer0::message::Message;
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::stop::{Outcome, Stop};
use layer0::{Operator, Orchestrator};
use serde_json::{Value, json};

use crate::agents::{agent, calling, has_answers, pay};
use crate::{builder, on, start};

/// Puts its name behind its input, and counts its runs.
pub(crate) struct Named {
    name: &'static str,
    runs: Arc<AtomicU32>,
}

pub(crate) fn named(name: &'static str) -> (Named, Arc<AtomicU32>) {
    let runs = Arc::<AtomicU32>::default();
    (Named { name, runs: Arc::clone(&runs) }, runs)
}

#[async_trait]
impl Operator for Named {
    fn name(&self) -> &str {
        self.name
    }
    async fn run(&self, task: Task, _: &Context) -> Result<Answer, OperatorError> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let text = task.input.as_str().map_or_else(|| task.input.to_string(), ToOwned::to_owned);
        Ok(Answer::from_output(format!("{text} {}", self.name).into()))
    }
}

/// Fails so many times, then answers `up`.
pub(crate) struct Failing(pub(crate) &'static str, pub(crate) Mutex<u32>);

#[async_trait]
impl Operator for Failing {
    fn name(&self) -> &str {
        self.0
    }
    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        let mut left = self.1.lock().unwrap();
        match *left {
            0 => Ok(Answer::from_output("up".into())),
            _ => {
                *left -= 1;
                Err(OperatorError::NonRetryable("the tank is empty".to_owned()))
            }
        }
    }
}

/// Never answers.
pub(crate) struct Hanging;

#[async_trait]
impl Operator for Hanging {
    fn name(&self) -> &str {
        "hanging"
    }
    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        std::future::pending().await
    }
}

pub(crate) fn workflow(
    operator: impl Operator + 'static,
    clock: &VirtualClock,
    log: &Arc<MemoryLog>,
) -> Workflow {
    Workflow::new(operator, Arc::clone(log) as Arc<dyn EventLog>).clock(Arc::new(clock.clone()))
}

/// Returns an agent that answers with its input and its name.
pub(crate) fn echo(name: &'static str, clock: &VirtualClock, log: &Arc<MemoryLog>) -> Agent {
    let answer = move |request: &ModelRequest| {
        let asked = request.messages.messages().iter().rev().find_map(|message| match &**message {
            Message::User { content, .. } => Some(content.to_string()),
            _ => None,
        });
        ScriptedAnswer::saying(format!("{} {name}", asked.unwrap_or_default()))
    };
    agent(clock, log, answer).name(name).build().unwrap()
}

pub(crate) async fn dispatch(
    clock: &VirtualClock,
    orchestrator: &LocalOrchestrator,
    operator: &'static str,
    input: impl Into<Value>,
) -> Result<Answer, OrchError> {
    let (orchestrator, task) = (orchestrator.clone(), Task::json(input.into()));
    on(clock, async move { orchestrator.dispatch(operator, task, Context::root()).await }).await
}

pub(crate) async fn events_of(log: &MemoryLog, operator: &str) -> Vec<Event> {
    let runs = log.runs(RunFilter::new().agent(operator)).await.unwrap();
    assert_eq!(runs.len(), 1, "{operator} has one run");
    replay_workflow(log, &runs[0].run).await.unwrap();
    read_events(log, &runs[0].run).await.unwrap().1
}

pub(crate) fn types(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(|event| event.kind.event_type()).collect()
}

pub(crate) fn steps(events: &[Event]) -> Vec<(&str, &str)> {
    let dispatched = events.iter().filter_map(|event| match &event.kind {
        EventKind::OperatorDispatched(it) => Some((it.step.as_deref()?, &*it.operator)),
        _ => None,
    });
    dispatched.collect()
}

/// Spec: O6
#[tokio::test]
async fn sequence_hands_each_answer_on() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let (check, _) = named("check");
    let orchestrator = builder(&clock)
        .operator(echo("draft", &clock, &log))
        .operator(check)
        .operator(workflow(Sequence::new("review", ["draft", "check"]), &clock, &log))
        .build()
        .unwrap();
    let answer = dispatch(&clock, &orchestrator, "review", "a topic").await.unwrap();
    assert_eq!(answer.output, "a topic draft check");
    let events = events_of(&log, "review").await;
    assert_eq!(steps(&events), [("review/1", "draft"), ("review/2", "check")]);
    assert_eq!(
        types(&events),
        [
            "run.started",
            "operator.dispatched",
            "operator.returned",
            "operator.dispatched",
            "operator.returned",
            "run.finished"
        ]
    );
    assert_eq!(answer.run.as_ref(), Some(&events[0].run));
    assert_eq!(answer.usage.model_calls, 1, "what its steps used is its own");
    // The agent's record hangs below the workflow's.
    let draft = &log.runs(RunFilter::new().agent("draft")).await.unwrap()[0];
    assert_eq!(draft.parent.as_ref(), Some(&events[0].run));
}

/// Spec: O6. What was done before a failure is in the error.
#[tokio::test]
async fn failure_keeps_what_was_done() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let (first, _) = named("first");
    let orchestrator = builder(&clock)
        .operator(first)
        .operator(Failing("second", Mutex::new(9)))
        .operator(workflow(Sequence::new("line", ["first", "second"]), &clock, &log))
        .build()
        .unwrap();
    let error = dispatch(&clock, &orchestrator, "line", "x").await.unwrap_err();
    assert_eq!(error.code(), "operator.non_retryable");
    let OrchError::OperatorError(OperatorError::SubDispatch { operator, done, .. }) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(&**operator, "second");
    let done: Vec<_> = done.iter().map(|it| (&*it.step, &*it.operator, &it.output)).collect();
    assert_eq!(done, [("1", "first", &json!("x first"))]);
    let events = events_of(&log, "line").await;
    let Some(EventKind::RunFailed(failed)) = events.last().map(|event| &event.kind) else {
        panic!("{events:?}")
    };
    assert_eq!(failed.reason, *"operator.non_retryable");
    assert!(failed.chain.concat().contains("the tank is empty"), "{:?}", failed.chain);
}

/// Spec: O6
#[tokio::test]
async fn parallel_stops_the_others_or_collects() {
    for (on_failure, expected) in [
        (OnFailure::FailFast, None),
        (
            OnFailure::Collect,
            Some(json!([
                {"operator": "good", "output": "x good"},
                {"operator": "bad", "error": {
                    "reason": "operator.non_retryable", "message": "the tank is empty",
                }},
            ])),
        ),
    ] {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let both = Parallel::new("both", ["good", "bad"]).on_failure(on_failure);
        let orchestrator = builder(&clock)
            .operator(echo("good", &clock, &log))
            .operator(Failing("bad", Mutex::new(9)))
            .operator(workflow(both, &clock, &log))
            .build()
            .unwrap();
        let answer = dispatch(&clock, &orchestrator, "both", "x").await;
        assert_eq!(answer.ok().map(|answer| answer.output), expected);
        let events = events_of(&log, "both").await;
        let returned = |outcome: Outcome| {
            let is_it = |event: &&Event| match &event.kind {
                EventKind::OperatorReturned(it) => it.outcome == outcome,
                _ => false,
            };
            events.iter().filter(is_it).count()
        };
        assert_eq!(returned(Outcome::Failed), 1);
        // A step that nothing waits for any more has closed its record, and the workflow records that.
        let other = returned(Outcome::Completed) + returned(Outcome::Cancelled);
        assert_eq!(other, 1, "{:?}", types(&events));
        assert!(!log.runs(RunFilter::new().agent("good")).await.unwrap()[0].is_open());
    }
}

/// Spec: O6
#[tokio::test]
async fn no_more_steps_run_at_once_than_allowed() {
    struct Counting(Arc<VirtualClock>, Arc<(AtomicU32, AtomicU32)>);
    #[async_trait]
    impl Operator for Counting {
        fn name(&self) -> &str {
            "counting"
        }
        async fn run(&self, task: Task, _: &Context) -> Result<Answer, OperatorError> {
            let now = self.1.0.fetch_add(1, Ordering::SeqCst) + 1;
            self.1.1.fetch_max(now, Ordering::SeqCst);
            self.0.sleep(Duration::from_secs(1)).await;
            self.1.0.fetch_sub(1, Ordering::SeqCst);
            Ok(Answer::from_output(task.input))
        }
    }
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let counts = Arc::<(AtomicU32, AtomicU32)>::default();
    let orchestrator = builder(&clock)
        .operator(Counting(Arc::new(clock.clone()), Arc::clone(&counts)))
        .operator(workflow(Map::new("each", "counting").limit(3), &clock, &log))
        .build()
        .unwrap();
    let numbers: Vec<u32> = (0..10).collect();
    let answer = dispatch(&clock, &orchestrator, "each", json!(numbers)).await.unwrap();
    assert_eq!(answer.output, json!(numbers));
    assert_eq!(counts.1.load(Ordering::SeqCst), 3);
    assert_eq!(steps(&events_of(&log, "each").await).len(), 10);
    let error = dispatch(&clock, &orchestrator, "each", "no list").await.unwrap_err();
    assert_eq!(error.code(), "input.invalid");
}

/// Spec: O6. A function or an operator chooses, and what was chosen is recorded.
#[tokio::test]
async fn route_goes_where_it_was_sent() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let by = Route::by("by", ["left", "right"], |input| {
        if input == "l" { "left".into() } else { "nowhere".into() }
    });
    let chooser = agent(&clock, &log, |_| ScriptedAnswer::saying("right\n"));
    let (left, _) = named("left");
    let (right, _) = named("right");
    let with = Route::with("with", "chooser", ["left", "right"]);
    let orchestrator = builder(&clock)
        .operator(left)
        .operator(right)
        .operator(chooser.name("chooser").build().unwrap())
        .operator(workflow(by, &clock, &log))
        .operator(workflow(with, &clock, &log))
        .build()
        .unwrap();
    let answer = dispatch(&clock, &orchestrator, "by", "l").await.unwrap();
    assert_eq!(answer.output, "l left");
    let answer = dispatch(&clock, &orchestrator, "with", "x").await.unwrap();
    assert_eq!(answer.output, "x right");
    let events = events_of(&log, "with").await;
    let routed = events.iter().find_map(|event| match &event.kind {
        EventKind::WorkflowRouted(routed) => Some((&*routed.step, &*routed.to)),
        _ => None,
    });
    assert_eq!(routed, Some(("with/1", "right")));
    assert_eq!(steps(&events), [("with/choose", "chooser"), ("with/1", "right")]);
    let error = dispatch(&clock, &orchestrator, "by", "r").await.unwrap_err();
    assert_eq!(error.code(), "orch.operator_not_found");
}

/// Spec: O6
#[tokio::test]
async fn supervised_operator_begins_anew() {
    let cases = [
        (Restart::Never, 1, 3, None, 1),
        (Restart::Transient, 2, 3, Some("up"), 3),
        (Restart::Transient, 9, 2, None, 3),
        (Restart::Always, 0, 2, Some("up"), 3),
    ];
    for (restart, failures, limit, expected, runs) in cases {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let watched = Supervise::new("watched", "shaky", restart).limit(limit);
        let orchestrator = builder(&clock)
            .operator(Failing("shaky", Mutex::new(failures)))
            .operator(workflow(watched.clock(Arc::new(clock.clone())), &clock, &log))
            .build()
            .unwrap();
        let answer = dispatch(&clock, &orchestrator, "watched", "x").await;
        assert_eq!(answer.ok().map(|it| it.output), expected.map(Value::from), "{restart:?}");
        assert_eq!(steps(&events_of(&log, "watched").await).len(), runs, "{restart:?}");
    }
}

/// Waits for a person, and pays.
pub(crate) fn payer(clock: &VirtualClock, log: &Arc<MemoryLog>, paid: &Arc<AtomicU32>) -> Agent {
    let answer = |request: &ModelRequest| match has_answers(request) {
        true => ScriptedAnswer::saying("it is paid"),
        false => calling("pay"),
    };
    let agent = agent(clock, log, answer).name("payer").tool(pay).require_approval("pay");
    agent.state(Arc::clone(paid)).build().unwrap()
}

/// Spec: O6, O2. A workflow that waits for a person is left, and taken up by another process: what was done is
/// not done again.
#[tokio::test]
async fn waiting_workflow_is_taken_up_elsewhere() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let asked = Arc::<AtomicU32>::default();
    let process = || {
        let asked = Arc::clone(&asked);
        let draft = agent(&clock, &log, move |_| {
            asked.fetch_add(1, Ordering::SeqCst);
            ScriptedAnswer::saying("42 is due")
        });
        let inner = Sequence::new("inner", ["payer"]);
        builder(&clock)
            .operator(draft.name("draft").build().unwrap())
            .operator(payer(&clock, &log, &paid))
            .operator(workflow(inner, &clock, &log))
            .operator(workflow(Sequence::new("outer", ["draft", "inner"]), &clock, &log))
            .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
            .build()
            .unwrap()
    };
    let answer = dispatch(&clock, &process(), "outer", "go").await.unwrap();
    assert_eq!(answer.stop, Stop::WaitingApproval);
    let run = answer.run.unwrap();
    let open = log.open_approvals().await.unwrap();
    for operator in ["outer", "inner"] {
        let events = events_of(&log, operator).await;
        let waiting = events.iter().find_map(|event| match &event.kind {
            EventKind::RunWaiting(waiting) => Some(waiting.approvals.clone()),
            _ => None,
        });
        assert_eq!(waiting, Some(vec![open[0].id.clone()]), "{operator}");
        let summary = log.summary(&events[0].run).await.unwrap().unwrap();
        assert_eq!(summary.state, RunState::WaitingApproval, "{operator}");
    }
    let decision = Decision::approve("ops");
    assert!(log.decide(&open[0].id, decision, clock.now()).await.unwrap());
    let (other, resumed) = (process(), run.clone());
    let answer = on(&clock, async move { other.resume("outer", resumed).await }).await.unwrap();
    assert_eq!((answer.output, answer.run), (json!("it is paid"), Some(run)));
    assert_eq!((asked.load(Ordering::SeqCst), paid.load(Ordering::SeqCst)), (1, 1));
    let events = events_of(&log, "outer").await;
    assert!(types(&events).contains(&"run.resumed"), "{:?}", types(&events));
    assert_eq!(steps(&events), [("outer/1", "draft"), ("outer/2", "inner")]);
}

/// An operator that requests exactly these steps.
struct Own(Vec<(&'static str, &'static str)>);

#[async_trait]
impl Operator for Own {
    fn name(&self) -> &str {
        "own"
    }
    fn calls(&self) -> Vec<&str> {
        vec!["echo", "payer"]
    }
    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        let mut input = task.input;
        for (step, operator) in &self.0 {
            let context = if step.is_empty() { context.clone() } else { context.step(*step) };
            input = context.dispatch(operator, Task::json(input)).await?.output;
        }
        Ok(Answer::from_output(input))
    }
}

/// Spec: O6. Code that asks for something else than it did is told so, and the record stays open for the code
/// that began it.
#[tokio::test]
async fn changed_code_diverges_and_changes_nothing() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let process = |steps: &[(&'static str, &'static str)]| {
        builder(&clock)
            .operator(echo("echo", &clock, &log))
            .operator(payer(&clock, &log, &paid))
            .operator(workflow(Own(steps.to_vec()), &clock, &log))
            .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
            .build()
            .unwrap()
    };
    let begun = [("", "echo"), ("a", "echo"), ("a", "echo"), ("pay", "payer")];
    let answer = dispatch(&clock, &process(&begun), "own", "go").await.unwrap();
    let run = answer.run.unwrap();
    let events = events_of(&log, "own").await;
    let paths: Vec<_> = steps(&events).into_iter().map(|(step, _)| step).collect();
    assert_eq!(paths, ["own/1", "own/a", "own/a~2", "own/pay"]);
    let open = log.open_approvals().await.unwrap();
    log.decide(&open[0].id, Decision::approve("ops"), clock.now()).await.unwrap();
    let resume = async |process: LocalOrchestrator| {
        let run = run.clone();
        on(&clock, async move { process.resume("own", run).await }).await
    };
    let error = resume(process(&[("", "payer")])).await.unwrap_err();
    assert_eq!(error.code(), "replay.diverged");
    assert!(layer0::failure::chain(&error).concat().contains("own/1"), "{error:?}");
    assert!(error.hint().is_some());
    assert!(log.summary(&run).await.unwrap().unwrap().is_open());
    let answer = resume(process(&begun)).await.unwrap();
    assert_eq!(answer.output, "it is paid");
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

/// Spec: O6, B3. Its children are cancelled with it, and every record is closed.
#[tokio::test]
async fn cancelled_workflow_cancels_its_steps() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let orchestrator = builder(&clock)
        .operator(payer(&clock, &log, &paid))
        .operator(Hanging)
        .operator(workflow(Parallel::new("both", ["payer", "hanging"]), &clock, &log))
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    let mut context = Context::root();
    context.run = Some(RunId::from("run_both"));
    let (running, signalled) = (orchestrator.clone(), orchestrator.clone());
    let ended = on(&clock, async move {
        let work = running.dispatch("both", Task::text("x"), context);
        let cancel = async {
            let workflow = WorkflowId::from("run_both");
            while log.open_approvals().await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            signalled.signal(&workflow, Signal::cancel()).await.unwrap();
            log
        };
        tokio::join!(work, cancel)
    });
    let (answer, log) = ended.await;
    assert_eq!(answer.unwrap().stop, Stop::Cancelled);
    let events = events_of(&log, "both").await;
    assert!(types(&events).contains(&"signal.received"));
    let returned = types(&events).iter().filter(|it| **it == "operator.returned").count();
    assert_eq!(returned, 2, "{:?}", types(&events));
    assert!(!log.runs(RunFilter::new().agent("payer")).await.unwrap()[0].is_open());
    assert!(log.open_approvals().await.unwrap().is_empty());
}

/// Spec: O6, O2
#[tokio::test]
async fn late_workflow_ends_on_its_budget() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let orchestrator = builder(&clock)
        .operator(Hanging)
        .operator(workflow(Sequence::new("slow", ["hanging"]), &clock, &log))
        .build()
        .unwrap();
    let mut context = Context::root();
    context.deadline = Some(clock.now().after(Duration::from_secs(3)));
    let answer =
        on(&clock, async move { orchestrator.dispatch("slow", Task::text("x"), context).await });
    let stop = answer.await.unwrap().stop;
    assert_eq!(stop.reason().unwrap(), *"budget.wall_time");
    let events = events_of(&log, "slow").await;
    let exhausted = types(&events).iter().filter(|it| **it == "budget.exhausted").count();
    assert_eq!(exhausted, 1);
}

/// Spec: O5, O6, D12. A workflow whose step can be helped goes on in its own record.
#[tokio::test]
async fn failed_workflow_goes_on_where_it_failed() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let away = Arc::new(AtomicU32::new(4));
    let left = Arc::clone(&away);
    let shaky = agent(&clock, &log, move |_| {
        let is_away = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1));
        match is_away {
            Ok(_) => ScriptedAnswer::failing(ErrorKind::Transient),
            Err(_) => ScriptedAnswer::saying("at last"),
        }
    });
    let retry = backstop_retry::RetryConfig::new().attempts(2);
    let (first, runs) = named("first");
    let orchestrator = builder(&clock)
        .operator(first)
        .operator(shaky.name("shaky").retry(retry).build().unwrap())
        .operator(workflow(Sequence::new("line", ["first", "shaky"]), &clock, &log))
        .reopen(backstop_retry::RetryConfig::new().attempts(2).deadline(Duration::MAX))
        .build()
        .unwrap();
    let answer = dispatch(&clock, &orchestrator, "line", "x").await.unwrap();
    assert_eq!(answer.output, "at last");
    assert_eq!(runs.load(Ordering::SeqCst), 1, "what was done is not done again");
    assert_eq!(away.load(Ordering::SeqCst), 0);
    assert_eq!(
        answer.usage.model_attempts, 5,
        "what it used before it was opened again counts once"
    );
}

/// Spec: O4
#[tokio::test]
async fn panicking_workflow_closes_its_record() {
    struct Wild;
    #[async_trait]
    impl Operator for Wild {
        fn name(&self) -> &str {
            "wild"
        }
        async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
            panic!("wild thing")
        }
    }
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let orchestrator = builder(&clock).operator(workflow(Wild, &clock, &log)).build().unwrap();
    let error = dispatch(&clock, &orchestrator, "wild", "x").await.unwrap_err();
    assert_eq!(error.code(), "orch.panicked");
    assert_eq!(types(&events_of(&log, "wild").await).last(), Some(&"run.failed"));
}
