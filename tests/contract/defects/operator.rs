//! Operators that break one promise each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use backstop::{
    Agent, LocalOrchestrator, MemoryLog, Parallel, ScriptedProvider, Sequence, Workflow,
};
use backstop_testkit::contract::{OperatorSample, Suite};
use layer0::code::{self, Code};
use layer0::error::OperatorError;
use layer0::id::RunId;
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;
use layer0::{Operator, Timestamp};
use serde_json::{Value, json};

super::defects! {
    AnswersInAnotherForm => completes_a_task_that_is_dispatched,
    AnswersNothing => completes_its_task,
    ContinuesWithoutARecord => records_each_run_it_can_continue,
    DigestChanges => has_one_digest,
    HangsBeforeADeadline => completes_its_task_before_a_deadline,
    HangsWhenCancelled => ends_when_it_is_cancelled,
    HasNoName => can_be_called_by_its_name,
    IgnoresItsDeadline => ends_at_its_deadline,
    IsParkedWhenDone => completes_its_task,
    IsRenamed => can_be_called_by_its_name,
    JamsWhenDropped => survives_a_dropped_run,
    NeedsToBeRoot => runs_below_another,
    NeverCompletes => completes_its_task,
    OneRunAtATime => runs_at_once,
    RecordsByAnotherName => records_under_the_name_it_is_given,
    RecordsOneRun => names_each_run_it_records,
    RefusesItsTask => completes_a_task_that_is_dispatched,
    RunsOnce => runs_again,
    SchemaIsNone => completes_a_task_that_is_dispatched,
    WaitsWhenCancelled => ends_when_it_is_cancelled,
    WorksOnWhenDropped => leaves_no_work_when_dropped,
}

use Defect as D;

/// Spec: O1
#[test]
fn every_defect_of_an_operator_is_noticed() {
    super::check(DEFECTS, |defect| {
        backstop_testkit::contract::operator(async move || {
            let (runs, is_busy) = (AtomicU32::new(0), AtomicBool::new(false));
            let [input, output] = match defect {
                D::RefusesItsTask => [json!({ "type": "object" }), json!({})],
                D::SchemaIsNone => [json!({ "type": 7 }), json!({})],
                D::AnswersInAnotherForm => [json!({}), json!({ "type": "number" })],
                _ => [json!({ "type": "string" }), json!({ "type": "string" })],
            };
            let operator = Arc::new(Defective { defect, input, output, runs, is_busy });
            OperatorSample::new(operator, Task::text("x"))
        })
    });
}

/// Spec: O1
#[tokio::test]
async fn an_agent_keeps_the_contract_of_an_operator() {
    agent().check().await;
}

fn agent() -> Suite {
    backstop_testkit::contract::operator(async || {
        let model = ScriptedProvider::saying(["done"; 8]);
        let agent = Agent::builder(model).build().unwrap();
        OperatorSample::new(Arc::new(agent), Task::text("x"))
    })
}

/// Spec: O1, O2, D12
#[tokio::test]
async fn an_agent_with_a_log_keeps_the_contract() {
    let suite = backstop_testkit::contract::operator(async || {
        let model = ScriptedProvider::saying(["done"; 8]);
        let agent = Agent::builder(model).log(MemoryLog::new()).build().unwrap();
        OperatorSample::new(Arc::new(agent), Task::text("x"))
    });
    suite.check().await;
}

/// Spec: O1, O4
#[tokio::test]
async fn workflows_keep_the_contract_of_an_operator() {
    for kind in ["sequence", "parallel"] {
        let suite = backstop_testkit::contract::operator(async move || {
            let log: Arc<MemoryLog> = Arc::default();
            let steps = ["one", "two"];
            let workflow = match kind {
                "sequence" => Workflow::new(Sequence::new("all", steps), log.clone()),
                _ => Workflow::new(Parallel::new("all", steps), log.clone()),
            };
            let [one, two] = steps.map(step);
            let builder = LocalOrchestrator::builder().operator(one).operator(two);
            let orchestrator = builder.shared_log(log).build().unwrap();
            let sample = OperatorSample::new(Arc::new(workflow), Task::text("x"));
            sample.dispatching(Arc::new(orchestrator))
        });
        suite.check().await;
    }
}

fn step(name: &str) -> Agent {
    Agent::builder(ScriptedProvider::saying(["done"; 8])).name(name).build().unwrap()
}

struct Defective {
    defect: Defect,
    input: Value,
    output: Value,
    runs: AtomicU32,
    is_busy: AtomicBool,
}

#[async_trait]
impl Operator for Defective {
    fn name(&self) -> &str {
        match self.defect {
            D::HasNoName => "",
            D::IsRenamed if self.runs.load(Ordering::Relaxed) > 0 => "another",
            _ => "defective",
        }
    }

    fn input_schema(&self) -> Option<&Value> {
        Some(&self.input)
    }

    fn output_schema(&self) -> Option<&Value> {
        Some(&self.output)
    }

    fn can_go_on(&self) -> bool {
        true
    }

    fn digest(&self) -> Option<Arc<str>> {
        let changes = self.defect == D::DigestChanges;
        let runs = if changes { self.runs.load(Ordering::Relaxed) } else { 0 };
        Some(runs.to_string().into())
    }

    async fn run(&self, _: Task, context: &Context) -> Result<Answer, OperatorError> {
        let runs = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let was_busy = self.is_busy.swap(true, Ordering::Relaxed);
        let fails = match self.defect {
            D::JamsWhenDropped | D::OneRunAtATime => was_busy,
            D::NeedsToBeRoot => context.depth > 0,
            D::RunsOnce => runs > 1,
            _ => false,
        };
        if fails {
            return Err(OperatorError::NonRetryable("not now".into()));
        }
        let is_cancelled = context.signals.waiting() > 0;
        if is_cancelled && self.defect == D::HangsWhenCancelled {
            return std::future::pending().await;
        }
        if context.deadline.is_some() && self.defect == D::HangsBeforeADeadline {
            return std::future::pending().await;
        }
        if self.defect == D::WorksOnWhenDropped {
            tokio::spawn(std::future::pending::<()>());
        }
        tokio::task::yield_now().await;
        self.is_busy.store(false, Ordering::Relaxed);
        let mut answer = Answer::from_output(json!("done"));
        let run = if self.defect == D::RecordsOneRun { 1 } else { runs };
        answer.run = Some(RunId::from(format!("run_{run}")));
        if let Some(given) = context.run.clone().filter(|_| self.defect != D::RecordsByAnotherName)
        {
            answer.run = Some(given);
        }
        match self.defect {
            D::AnswersNothing => answer.output = Value::Null,
            D::ContinuesWithoutARecord => answer.run = None,
            D::IsParkedWhenDone => answer.parked_until = Some(Timestamp::from_millis(1)),
            D::NeverCompletes => answer.stop = Stop::Cancelled,
            D::WaitsWhenCancelled if is_cancelled => answer.stop = Stop::WaitingApproval,
            _ => {}
        }
        let is_late = context.deadline.is_some_and(|it| it < Timestamp::from_millis(9));
        if is_late && self.defect != D::IgnoresItsDeadline {
            let reason = Code::new(code::BUDGET_WALL_TIME);
            answer.stop = Stop::BudgetExhausted { reason };
        }
        Ok(answer)
    }
}
