//! The row of a run: it says in every store what the run comes to by its record, and what its process answered.

use backstop_event_log::{Log, Ports};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop::clock::{Clock, VirtualClock};
use backstop::event_log::{
    Batch, Claim, Decision, InboxRequest, LogError, Record, RunState, RunSummary,
};
use backstop::layer0::JsonText;
use backstop::layer0::Timestamp;
use backstop::layer0::error::{OperatorError, OrchError};
use backstop::layer0::id::RunId;
use backstop::layer0::operator::{Answer, Context, Task};
use backstop::layer0::stop::Stop;
use backstop::provider::{ModelRequest, ScriptedToolCall};
use backstop::{
    Agent, Database, EventLog, LocalOrchestrator, MemoryLog, Operator, Orchestrator, RunFilter,
    ScriptedAnswer, ScriptedProvider, ToolError, Workflow, tool,
};
use backstop_testkit::{PostgresServer, Tape, append_all};
use futures_util::future::try_join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(3_600);
const STATES: [RunState; 5] = [
    RunState::Running,
    RunState::WaitingApproval,
    RunState::Parked,
    RunState::Finished,
    RunState::Failed,
];

/// The agent of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Waits for a person.
    Asks,
    /// Its endpoint turns it away for an hour.
    Parks,
    /// Answers at once.
    Talks,
    /// Its endpoint refuses it.
    Fails,
}

impl Step {
    const fn name(self) -> &'static str {
        match self {
            Self::Asks => "asks",
            Self::Parks => "parks",
            Self::Talks => "talks",
            Self::Fails => "fails",
        }
    }
}

/// Something that happens to a run that is open, before it is resumed.
#[derive(Debug, Clone, Copy)]
enum Happening {
    Approved,
    Denied,
    Told,
    Signalled,
    Cancelled,
    AnHourPasses,
    /// It is resumed for nothing.
    Nothing,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    use Happening::*;
    let happening = prop::sample::select(vec![
        Approved,
        Approved,
        Denied,
        Told,
        Signalled,
        Cancelled,
        AnHourPasses,
        AnHourPasses,
        Nothing,
    ]);
    prop::collection::vec(happening, 1..8)
}

/// The steps of a workflow, in groups that run together; an agent alone where there is one step.
fn plans() -> impl Strategy<Value = Vec<Vec<Step>>> {
    use Step::*;
    let step = prop::sample::select(vec![Asks, Asks, Parks, Parks, Talks, Fails]);
    prop::collection::vec(prop::collection::vec(step, 1..4), 1..3)
}

/// Pays.
#[tool(name = "pay", approval)]
async fn pay() -> Result<String, ToolError> {
    Ok("paid".into())
}

/// Performs the groups of a plan one after the other.
struct Plan(Vec<Vec<Step>>);

#[async_trait]
impl Operator for Plan {
    fn name(&self) -> &str {
        "root"
    }
    async fn run(&self, _: Task, context: &Context) -> Result<Answer, OperatorError> {
        for (place, group) in self.0.iter().enumerate() {
            let steps = group.iter().enumerate().map(|(index, step)| async move {
                let path = format!("{place}-{index}");
                context.step(path).dispatch(step.name(), Task::text("go")).await
            });
            try_join_all(steps).await?;
        }
        Ok(Answer::from_output("done".into()))
    }
}

/// A world that outlives its processes.
struct World {
    clock: VirtualClock,
    log: Arc<dyn EventLog>,
    plan: Vec<Vec<Step>>,
    turned_away: Arc<AtomicU32>,
}

impl World {
    fn new(plan: Vec<Vec<Step>>, log: Arc<dyn EventLog>) -> Self {
        let clock = VirtualClock::starting_at(Timestamp::default());
        Self { clock, log, plan, turned_away: Arc::default() }
    }

    /// Returns the only step of a plan.
    fn alone(&self) -> Option<Step> {
        match &*self.plan {
            [group] => match **group {
                [step] => Some(step),
                _ => None,
            },
            _ => None,
        }
    }

    fn root(&self) -> &'static str {
        self.alone().map_or("root", Step::name)
    }

    fn process(&self) -> LocalOrchestrator {
        let shared: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let agent = |step: Step, model: ScriptedProvider| {
            let model = model.with_clock(Arc::clone(&shared));
            let agent = Agent::builder(model).name(step.name()).clock(Arc::clone(&shared));
            agent.shared_log(Arc::clone(&self.log))
        };
        let asks = ScriptedProvider::from_fn(|request: &ModelRequest| {
            let has_answer = request.messages.messages().len() > 1
                && format!("{:?}", request.messages.messages().last()).contains("Tool");
            match has_answer {
                true => ScriptedAnswer::saying("paid"),
                false => ScriptedAnswer::default().tool_calls([ScriptedToolCall::new(
                    "c1",
                    "pay",
                    json!({}),
                )]),
            }
        });
        let turned_away = Arc::clone(&self.turned_away);
        let parks = ScriptedProvider::from_fn(move |_| {
            // Every second time.
            match turned_away.fetch_add(1, Ordering::SeqCst) % 2 {
                0 => from_error(json!({
                    "kind": "transient", "status": 503, "retry_after_ms": 3_600_000,
                })),
                _ => ScriptedAnswer::saying("back"),
            }
        });
        let fails = ScriptedProvider::from_fn(|_| from_error(json!({ "kind": "auth_failed" })));
        let talks = ScriptedProvider::from_fn(|_| ScriptedAnswer::saying("hello"));
        let root = Workflow::new(Plan(self.plan.clone()), Arc::clone(&self.log));
        LocalOrchestrator::builder()
            .clock(Arc::clone(&shared))
            .jitter(backstop::retry::Jitter::from_seed(1))
            .max_park(2 * HOUR)
            .leaves_parked()
            .shared_log(Arc::clone(&self.log))
            .operator(agent(Step::Asks, asks).tool(pay).build().unwrap())
            .operator(agent(Step::Parks, parks).build().unwrap())
            .operator(agent(Step::Fails, fails).build().unwrap())
            .operator(agent(Step::Talks, talks).build().unwrap())
            .operator(root.clock(shared))
            .build()
            .unwrap()
    }

    async fn on<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let (done, result) = tokio::sync::oneshot::channel();
        tokio::spawn(self.clock.track(Box::pin(async move {
            let _ = done.send(work.await);
        })));
        result.await.unwrap()
    }

    /// Begins the run, or resumes it.
    async fn perform(&self, run: Option<RunId>) -> Result<Answer, OrchError> {
        let (process, root) = (self.process(), self.root());
        self.on(async move {
            match run {
                Some(run) => process.resume(root, run).await,
                None => process.dispatch(root, Task::text("go"), Context::root()).await,
            }
        })
        .await
    }

    async fn happens(&self, run: &RunId, happening: Happening) {
        let at = self.clock.now();
        match happening {
            Happening::Approved | Happening::Denied => {
                let Some(open) = self.log.open_approvals().await.unwrap().into_iter().next() else {
                    return;
                };
                let decision = match happening {
                    Happening::Approved => Decision::approve("ops"),
                    _ => Decision::deny("ops", "no"),
                };
                self.log.decide(&open.id, decision, at).await.unwrap();
            }
            Happening::Told => {
                let request = InboxRequest::Input { run: run.clone(), text: "hurry".into() };
                self.log.send(request, "ops", at).await.unwrap();
            }
            Happening::Signalled => {
                let (name, data) = ("note".into(), JsonText::from(&json!({})));
                let request = InboxRequest::Signal { run: run.clone(), name, data, cause: None };
                self.log.send(request, "ops", at).await.unwrap();
            }
            Happening::Cancelled => {
                let request = InboxRequest::Cancel { run: run.clone() };
                self.log.send(request, "ops", at).await.unwrap();
            }
            Happening::AnHourPasses => {
                let clock = self.clock.clone();
                self.on(async move { clock.sleep(HOUR).await }).await;
            }
            Happening::Nothing => {}
        }
    }

    /// Holds the row of the root against what its process answered.
    async fn check(&self, run: &RunId, answer: &Result<Answer, OrchError>, place: &str) {
        let row = self.log.summary(run).await.unwrap().unwrap();
        let expected = match answer {
            Err(_) => RunState::Failed,
            Ok(answer) if answer.stop != Stop::WaitingApproval => RunState::Finished,
            Ok(answer) if answer.parked_until.is_some() => RunState::Parked,
            Ok(_) => RunState::WaitingApproval,
        };
        assert_eq!(row.state, expected, "{place}: {answer:?}");
        assert_eq!(
            row.parked.map(|(_, until)| until),
            answer.as_ref().ok().and_then(|it| it.parked_until)
        );
        for below in self.log.runs(RunFilter::new()).await.unwrap() {
            let asks = self.log.open_approvals().await.unwrap();
            let asks = asks.iter().any(|open| open.run == below.run);
            match below.state {
                RunState::WaitingApproval if below.run != *run => assert!(asks, "{place}"),
                RunState::Finished | RunState::Failed => assert!(!asks, "{place}"),
                RunState::Running => panic!("{place}: {} runs in no process", below.agent),
                _ => {}
            }
        }
    }
}

fn from_error(error: Value) -> ScriptedAnswer {
    serde_json::from_value(json!({ "error": error })).unwrap()
}

/// Plays a history. Returns what was appended.
fn play(plan: &[Vec<Step>], happenings: &[Happening]) -> Vec<Batch> {
    let tape = Arc::new(Tape::new(Arc::new(MemoryLog::new())));
    let log = Arc::clone(&tape) as Arc<dyn EventLog>;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let world = World::new(plan.to_vec(), log);
        let mut answer = world.perform(None).await;
        let roots = RunFilter::new().agent(world.root()).limit(1);
        let run = world.log.runs(roots).await.unwrap().remove(0).run;
        world.check(&run, &answer, "it begins").await;
        for (count, happening) in happenings.iter().enumerate() {
            let place = format!("{plan:?} after {:?}", &happenings[..=count]);
            if !world.log.summary(&run).await.unwrap().unwrap().is_open() {
                break;
            }
            world.happens(&run, *happening).await;
            answer = world.perform(Some(run.clone())).await;
            world.check(&run, &answer, &place).await;
        }
    });
    tape.batches()
}

/// A log that holds each row against the record behind every append.
struct Checked(Arc<dyn EventLog>);

impl Checked {
    async fn check(&self, run: &RunId) {
        let row = self.0.summary(run).await.unwrap().unwrap();
        let mut folded = RunSummary::new(run.clone());
        for record in self.0.records(run, 1).await.unwrap() {
            folded.apply(&record.decode(run).unwrap());
        }
        let seen = |row: &RunSummary| (row.state, row.outcome, row.reason.clone(), row.last_seq);
        assert_eq!(seen(&row), seen(&folded));
        assert_eq!(row.parked, folded.parked);
        for state in STATES {
            let listed = self.0.runs(RunFilter::new().state(state)).await.unwrap();
            let is_listed = listed.iter().any(|it| it.run == *run);
            assert_eq!(is_listed, state == folded.state, "{state:?} at event {}", row.last_seq);
        }
    }
}

impl EventLog for Checked {
    fn ports(&self) -> Ports<'_> {
        self.0.ports().log(self)
    }
}

#[async_trait]
impl Log for Checked {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.0.claim(run).await
    }
    fn claim_new(&self, run: &RunId) -> Claim {
        self.0.claim_new(run)
    }
    async fn append(&self, mut batch: Batch) -> Result<(), LogError> {
        let run = batch.run.clone();
        // The inbox is that of another log.
        batch.taken.clear();
        self.0.append(batch).await?;
        self.check(&run).await;
        Ok(())
    }
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.0.summary(run).await
    }
    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        self.0.records(run, from_seq).await
    }
}

/// Spec: D4, J2w, O5
#[test]
fn rows_say_what_processes_answered() {
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(60) });
    let played = runner.run(&(plans(), happenings()), |(plan, happenings)| {
        play(&plan, &happenings);
        Ok(())
    });
    played.unwrap_or_else(|error| panic!("{error}"));
}

/// Appends to a store what drawn histories appended.
fn append_drawn(cases: u32, store: impl Fn(Vec<Batch>)) {
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(cases) });
    let played = runner.run(&(plans(), happenings()), |(plan, happenings)| {
        store(play(&plan, &happenings));
        Ok(())
    });
    played.unwrap_or_else(|error| panic!("{error}"));
}

/// Spec: D4, S11
#[test]
fn rows_of_sqlite_follow_their_records() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    append_drawn(10, |batches| {
        runtime.block_on(async {
            let database = Database::in_memory().await.unwrap();
            append_all(&batches, &Checked(Arc::new(database.log()))).await;
            database.close().await;
        });
    });
}

/// Spec: D4, J2
#[test]
fn rows_of_postgres_follow_their_records() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let Some(server) = PostgresServer::shared() else { return };
    append_drawn(4, |batches| {
        runtime.block_on(async {
            let url = server.database().await;
            let database = backstop::store_postgres::Database::connect(&url).await.unwrap();
            append_all(&batches, &Checked(Arc::new(database.log()))).await;
            database.close().await;
        });
    });
}
