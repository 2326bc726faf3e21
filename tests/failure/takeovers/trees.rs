//! An agent with a child, and a workflow.

use std::sync::Arc;

use async_trait::async_trait;
use backstop::error_store::Store;
use backstop::layer0::error::OperatorError;
use backstop::layer0::operator::{Answer, Context, Task};
use backstop::{
    Agent, LocalOrchestrator, Operator, Orchestrator, Parallel, ResumeRequest, RunRequest,
    Sequence, Workflow,
};
use backstop_testkit::contract::{ActingRun, Ledger};

use super::RUN;
use super::agents::{Agrees, agent, look, pay, sign, wipe};

/// An agent with tools, an approval, hooks, and an agent as a tool.
pub(super) struct Tree;

impl Tree {
    fn agent(stores: &Arc<dyn Store>, ledger: &Ledger) -> Agent {
        let clerk = agent("clerk", &[&["wipe"]], stores, ledger).tool(wipe).build().unwrap();
        agent("root", &[&["pay", "look"], &["sign"], &["clerk"]], stores, ledger)
            .approver(Agrees(ledger.clone()))
            .tool(pay)
            .tool(look)
            .tool(sign)
            .tool(clerk.as_tool("Cleans up."))
            .build()
            .unwrap()
    }
}

#[async_trait]
impl ActingRun for Tree {
    async fn begin(&self, stores: Arc<dyn Store>, ledger: Ledger) -> Result<String, String> {
        let request = RunRequest::new("go").run(RUN.into());
        let outcome = Self::agent(&stores, &ledger).run(request).await;
        outcome.map(|it| it.text().to_owned()).map_err(|error| error.to_string())
    }
    async fn resume(&self, stores: Arc<dyn Store>, ledger: Ledger) -> Result<String, String> {
        let outcome = Self::agent(&stores, &ledger).resume(ResumeRequest::new(RUN)).await;
        outcome.map(|it| it.text().to_owned()).map_err(|error| error.to_string())
    }
}

/// An operator without a record, whose runs count as acts.
struct Plain(&'static str, Ledger);

#[async_trait]
impl Operator for Plain {
    fn name(&self) -> &str {
        self.0
    }
    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        self.1.act(self.0);
        Ok(Answer::from_output("done".into()))
    }
}

/// A workflow with steps side by side, of which two keep records.
pub(super) struct Flow;

impl Flow {
    fn orchestrator(stores: &Arc<dyn Store>, ledger: &Ledger) -> LocalOrchestrator {
        let payer = agent("payer", &[&["pay"]], stores, ledger).tool(pay).build().unwrap();
        let cleaner = agent("cleaner", &[&["wipe"]], stores, ledger).tool(wipe).build().unwrap();
        let both = Parallel::new("both", ["payer", "sign"]);
        let all = Sequence::new("all", ["both", "cleaner"]);
        LocalOrchestrator::builder()
            .operator(payer)
            .operator(cleaner)
            .operator(Plain("sign", ledger.clone()))
            .operator(Workflow::new(both, stores.log()))
            .operator(Workflow::new(all, stores.log()))
            .build()
            .unwrap()
    }
}

#[async_trait]
impl ActingRun for Flow {
    async fn begin(&self, stores: Arc<dyn Store>, ledger: Ledger) -> Result<String, String> {
        let mut context = Context::root();
        context.run = Some(RUN.into());
        let flow = Self::orchestrator(&stores, &ledger);
        let answer = flow.dispatch("all", Task::text("go"), context).await;
        answer.map(|it| it.output.to_string()).map_err(|error| error.to_string())
    }
    async fn resume(&self, stores: Arc<dyn Store>, ledger: Ledger) -> Result<String, String> {
        let answer = Self::orchestrator(&stores, &ledger).resume("all", RUN.into()).await;
        // A step that may have acted ends the workflow; its record is closed.
        Ok(answer.map_or_else(|error| error.to_string(), |it| it.output.to_string()))
    }
}
