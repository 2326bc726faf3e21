//! Each part of a tool's step, stopped in each way, on the log in memory and on SQLite: a result that is there is
//! recorded.

mod stopper;
mod stores;

use std::sync::Arc;
use std::time::Duration;

use backstop::clock::{Clock, VirtualClock};
use backstop::event_log::verify_run;
use backstop::layer0::Timestamp;
use backstop::layer0::event::{Event, EventKind, ToolResponded};
use backstop::layer0::id::RunId;
use backstop::layer0::stop::Outcome;
use backstop::provider::ScriptedToolCall;
use backstop::react::{Budget, Limits};
use backstop::{
    Agent, AgentBuilder, EventLog, LocalOrchestrator, ResumeRequest, RunFilter, RunRequest,
    RunSummary, ScriptedAnswer, ScriptedProvider, read_events, replay,
};
use backstop_testkit::SteadyLog;
use serde_json::json;

use self::stopper::{Aborts, Clerk, Hangs, Stopper, add, pay};
use self::stores::{BusyState, BusyTexts, Stores};

const RUN: &str = "run_stopped";
const RECEIPT: &str = "receipt 4711";
const WALL: Duration = Duration::from_secs(3);

/// The way of stopping a run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// Its token is cancelled.
    Cancel,
    /// The run that called it is cancelled.
    CallerCancels,
    /// The time of the run that called it is up.
    CallerDeadline,
    /// A person cancels it (`backstop cancel`).
    Inbox,
    /// Its process may no longer act for it.
    Lost,
    /// A person says that the call happened.
    Settled,
    /// A gate ends it at another call.
    Sibling,
    /// A signal named `cancel`.
    Signal,
    /// Its time is up.
    Time,
}

impl Way {
    const ALL: [Self; 9] = [
        Self::Cancel,
        Self::CallerCancels,
        Self::CallerDeadline,
        Self::Inbox,
        Self::Lost,
        Self::Settled,
        Self::Sibling,
        Self::Signal,
        Self::Time,
    ];

    const fn is_late(self) -> bool {
        matches!(self, Self::CallerDeadline | Self::Time)
    }

    const fn has_caller(self) -> bool {
        matches!(self, Self::CallerCancels | Self::CallerDeadline)
    }

    /// Returns the time for which a part that may end is running. With a time limit, it is still running when the time
    /// is up.
    const fn storing(self) -> Duration {
        Duration::from_secs(if self.is_late() { 4 } else { 1 })
    }

    /// Returns the end of the run.
    fn outcome(self, part: Part) -> Outcome {
        match self {
            Self::Cancel | Self::CallerCancels | Self::Inbox | Self::Signal => Outcome::Cancelled,
            // A tool that returns at once is not stopped by a time limit.
            Self::CallerDeadline | Self::Time if part == Part::Call => Outcome::Completed,
            Self::CallerDeadline | Self::Time => Outcome::BudgetExhausted,
            // Another process resumes the run. A settled call ends, and nothing else.
            Self::Lost | Self::Settled => Outcome::Completed,
            Self::Sibling => Outcome::Failed,
        }
    }
}

/// The part of a tool's step that is running when the run is stopped.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    /// The tool has just returned.
    Call,
    /// A child run has returned, and an observer is called.
    Child,
    /// A child run that the tool did not wait for is closed.
    Close,
    /// A long error is stored.
    Error,
    /// A gate is called behind the tool.
    Gate,
    /// An observer is called.
    Hook,
    /// The end of a call that is made once is written.
    Once,
    /// The tool is probed about a failed call.
    Probe,
    /// A large result is stored.
    Store,
}

impl Part {
    const ALL: [Self; 9] = [
        Self::Call,
        Self::Child,
        Self::Close,
        Self::Error,
        Self::Gate,
        Self::Hook,
        Self::Once,
        Self::Probe,
        Self::Store,
    ];

    const fn is_failure(self) -> bool {
        matches!(self, Self::Error | Self::Probe)
    }

    /// Returns whether the part ends although the run is stopped.
    const fn ends(self) -> bool {
        matches!(self, Self::Close | Self::Error | Self::Once | Self::Store)
    }
}

/// A case, with its clock and its stores.
struct Case {
    part: Part,
    way: Way,
    clock: VirtualClock,
    stores: Stores,
}

impl Case {
    fn new(part: Part, way: Way, stores: Stores) -> Self {
        Self { part, way, clock: VirtualClock::starting_at(Timestamp::default()), stores }
    }

    /// Returns an agent of a process with this log.
    fn agent(
        &self,
        name: &str,
        log: &Arc<SteadyLog>,
        answers: Vec<ScriptedAnswer>,
    ) -> AgentBuilder {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        Agent::builder(ScriptedProvider::new(answers).with_clock(Arc::clone(&clock)))
            .name(name)
            .clock(clock)
            .shared_log(Arc::clone(log) as Arc<dyn EventLog>)
    }

    /// Returns the agent whose run is stopped.
    fn payer(
        &self,
        log: &Arc<SteadyLog>,
        stopper: &Stopper,
        answers: Vec<ScriptedAnswer>,
    ) -> Agent {
        let Stores { errors, results, state, .. } = &self.stores;
        let (errors, results) = (Arc::clone(errors), Arc::clone(results));
        let wall = if self.way.has_caller() { 10 * WALL } else { WALL };
        let agent = self
            .agent("payer", log, answers)
            .tool(add)
            .state(stopper.clone())
            .budget(Budget::new().wall(wall))
            .limits(Limits::new().hook_timeout(3 * WALL))
            .gate(Aborts(stopper.clone()));
        let busy = |part| (self.part == part).then(|| stopper.clone());
        let was_stopped = (self.part != Part::Once).into();
        let (state, clock, stopper) = (Arc::clone(state), self.clock.clone(), stopper.clone());
        let agent = agent
            .error_store(BusyTexts {
                store: errors,
                clock: clock.clone(),
                stopper: busy(Part::Error),
            })
            .result_store(BusyTexts { store: results, clock, stopper: busy(Part::Store) })
            .state_store(BusyState { state, stopper: stopper.clone(), was_stopped });
        let agent = match self.part {
            Part::Child => {
                let below = self.agent("pay", log, vec![ScriptedAnswer::saying(RECEIPT)]);
                agent.tool(below.build().unwrap().as_tool("Pays."))
            }
            _ => agent.tool(pay),
        };
        let agent = match self.part {
            Part::Child | Part::Hook => agent.observer(Hangs(stopper)),
            Part::Gate => agent.gate(Hangs(stopper)),
            _ => agent,
        };
        agent.build().unwrap()
    }

    /// Returns the model's answers: a payment next to an addition.
    fn answers(&self) -> Vec<ScriptedAnswer> {
        let arguments = match self.part {
            Part::Child => json!({ "input": "pay ada" }),
            part => json!({ "part": format!("{part:?}") }),
        };
        let calls = [
            ScriptedToolCall::new("c1", "pay", arguments),
            ScriptedToolCall::new("c2", "add", json!({ "x": 1, "y": 2 })),
        ];
        let calls = ScriptedAnswer::default().tool_calls(calls);
        vec![calls, ScriptedAnswer::saying("done")]
    }

    fn orchestrator(&self, stopper: &Stopper) -> Arc<LocalOrchestrator> {
        let orchestrator = LocalOrchestrator::builder()
            .clock(Arc::new(self.clock.clone()))
            .operator(Clerk(stopper.clone()));
        Arc::new(orchestrator.build().unwrap())
    }

    /// Awaits work while the clock runs.
    async fn track<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let (done, result) = tokio::sync::oneshot::channel();
        tokio::spawn(self.clock.track(Box::pin(async move {
            let _ = done.send(work.await);
        })));
        result.await.unwrap()
    }

    /// Runs the agent, and stops it while the part is running. Returns the time that it took, too.
    async fn stop(&self) -> (Stopper, Duration) {
        let log = Arc::new(SteadyLog::new(Arc::clone(&self.stores.log), &self.clock));
        let stopper = Stopper::new(self.way, Arc::clone(&log), self.clock.clone());
        let payer = self.payer(&log, &stopper, self.answers());
        let orchestrator = self.orchestrator(&stopper);
        let (token, has_caller) = (stopper.token.clone(), self.way.has_caller());
        let (agent, run) = match has_caller {
            false => (payer, RUN),
            true => {
                let call = ScriptedToolCall::new("k1", "payer", json!({ "input": "pay" }));
                let answers = vec![
                    ScriptedAnswer::default().tool_calls([call]),
                    ScriptedAnswer::saying("done"),
                ];
                let root = self.agent("root", &log, answers).tool(payer.as_tool("Pays."));
                (root.budget(Budget::new().wall(WALL)).build().unwrap(), "run_root")
            }
        };
        let request = RunRequest::new("pay")
            .run(RunId::from(run))
            .cancelled_by(token)
            .orchestrator(orchestrator);
        let clock = self.clock.clone();
        let ended = self.track(async move {
            let _end = agent.run(request).await;
            clock.now()
        });
        let took = ended.await.since(Timestamp::default());
        (stopper, took)
    }

    /// Resumes the run in another process.
    async fn resume(&self, stopper: &Stopper) {
        let log = Arc::new(SteadyLog::new(Arc::clone(&self.stores.log), &self.clock));
        let agent = self.payer(&log, &stopper.spent(), self.answers().split_off(1));
        let request = ResumeRequest::new(RUN).orchestrator(self.orchestrator(&stopper.spent()));
        self.track(async move { agent.resume(request).await }).await.unwrap();
    }

    /// Pays once more in another run, and returns the answer.
    async fn pay_again(&self, stopper: &Stopper) -> ToolResponded {
        let log = Arc::new(SteadyLog::new(Arc::clone(&self.stores.log), &self.clock));
        let agent = self.payer(&log, &stopper.spent(), self.answers());
        let request = RunRequest::new("pay").run(RunId::from("run_again"));
        self.track(async move { agent.run(request).await }).await.unwrap();
        let (_, events) = read_events(&*self.stores.log, &"run_again".into()).await.unwrap();
        answer(&events).clone()
    }

    /// Returns the row of the stopped run.
    async fn summary(&self) -> RunSummary {
        let runs = self.stores.log.runs(RunFilter::new()).await.unwrap();
        runs.into_iter().find(|run| &*run.agent == "payer").unwrap()
    }
}

/// Returns the only answer of the payment.
fn answer(events: &[Event]) -> &ToolResponded {
    let answers = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResponded(answer) if answer.call_id.as_str() == "c1" => Some(answer),
        _ => None,
    });
    let [answer] = answers.collect::<Vec<_>>()[..] else { panic!("answered once: {events:?}") };
    answer
}

/// Stops a run in one way while one part of it is running. Returns what is wrong with its end.
async fn check(part: Part, way: Way, stores: Stores) -> Result<(), String> {
    let case = Case::new(part, way, stores);
    let log = Arc::clone(&case.stores.log);
    let (stopper, took) = case.stop().await;
    if way == Way::Lost {
        let left = case.summary().await;
        assert!(left.is_open(), "{part:?}: a run that was lost is {:?}", left.state);
        case.resume(&stopper).await;
    }
    let summary = case.summary().await;
    let (_, events) = read_events(&*log, &summary.run).await.unwrap();
    verify_run(&*log, &summary.run).await.unwrap();
    replay(&*log, &summary.run).await.unwrap();
    let ensure = |is_so: bool, what: String| is_so.then_some(()).ok_or(what);
    let expected = Some(way.outcome(part));
    ensure(summary.outcome == expected, format!("ended {:?}", summary.outcome))?;
    ensure(part == Part::Child || stopper.paid() == 1, format!("paid {} times", stopper.paid()))?;
    // What could not be recorded is not known to the next process, unless a child run's record has it.
    let is_gone = way == Way::Lost && part != Part::Child;
    let answer = answer(&events);
    let text = answer.output.display_text();
    let kept = if is_gone { "may already have acted" } else { RECEIPT };
    ensure(text.contains(kept), format!("answered {text:?}"))?;
    ensure(answer.ok != (is_gone || part.is_failure()), format!("answered {answer:?}"))?;
    let stored = match part {
        Part::Error => "error.stored",
        Part::Store => "result.stored",
        _ => "tool.responded",
    };
    let is_stored = events.iter().any(|event| event.kind.event_type() == stored);
    ensure(is_stored || is_gone, format!("no {stored}"))?;
    if part == Part::Once {
        let again = case.pay_again(&stopper).await;
        let reason = again.error.as_ref().map(|error| error.reason.as_str());
        let expected = is_gone.then_some("tool.done_elsewhere");
        ensure(reason == expected, format!("the next call is answered {again:?}"))?;
        ensure(stopper.paid() == 1, "paid again".to_owned())?;
    }
    // Storing and closing end, and nothing else holds a stop up.
    let longest = match way.is_late() {
        true if part.ends() => way.storing(),
        true => WALL,
        false => Duration::from_secs(1),
    };
    ensure(took <= longest, format!("took {took:?}"))
}

async fn check_all(stores: impl AsyncFn() -> Stores) {
    let mut wrong = Vec::new();
    for part in Part::ALL {
        for way in Way::ALL {
            if let Err(what) = check(part, way, stores().await).await {
                wrong.push(format!("{part:?} stopped by {way:?}: {what}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Spec: D5, D12, B3, O2, T14, T16. A call whose tool returned before the stop is answered with what it returned; hooks
/// behind it are dropped, and storing ends.
#[tokio::test]
async fn stopped_call_keeps_its_result() {
    check_all(async || Stores::in_memory()).await;
}

/// Spec: D5, D12, B3, O2, T14, T16, S11
#[tokio::test]
async fn stopped_call_keeps_its_result_sqlite() {
    check_all(async || Stores::in_a_file().await).await;
}
