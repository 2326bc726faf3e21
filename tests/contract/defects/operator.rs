//! Operators that break one promise each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use backstop::{Agent, ScriptedProvider};
use backstop_testkit::contract::{OperatorSample, Suite};
use layer0::Operator;
use layer0::error::OperatorError;
use layer0::id::RunId;
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;
use serde_json::{Value, json};

super::defects! {
    AnswersNothing => completes_its_task,
    HangsWhenCancelled => ends_when_it_is_cancelled,
    HasNoName => can_be_called_by_its_name,
    IsRenamed => can_be_called_by_its_name,
    JamsWhenDropped => survives_a_dropped_run,
    NeedsToBeRoot => runs_below_another,
    NeverCompletes => completes_its_task,
    OneRunAtATime => runs_at_once,
    RecordsByAnotherName => records_under_the_name_it_is_given,
    RecordsOneRun => names_each_run_it_records,
    RunsOnce => runs_again,
    WaitsWhenCancelled => ends_when_it_is_cancelled,
}

use Defect as D;

/// Spec: O1
#[test]
fn every_defect_of_an_operator_is_noticed() {
    super::check(DEFECTS, |defect| {
        backstop_testkit::contract::operator(async move || {
            let (runs, is_busy) = (AtomicU32::new(0), AtomicBool::new(false));
            let operator = Arc::new(Defective { defect, runs, is_busy });
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

struct Defective {
    defect: Defect,
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
            D::NeverCompletes => answer.stop = Stop::Cancelled,
            D::WaitsWhenCancelled if is_cancelled => answer.stop = Stop::WaitingApproval,
            _ => {}
        }
        Ok(answer)
    }
}
