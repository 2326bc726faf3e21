//! An agent whose approval expires undecided.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop::clock::{Clock, SystemClock};
use backstop::error_store::Store;
use backstop::layer0::stop::Stop;
use backstop::{Agent, ResumeRequest, RunOutcome, RunRequest};
use backstop_testkit::contract::{ActingRun, Ledger};

use super::RUN;
use super::agents::{agent, pay, sign};

/// The run of the agent.
pub(super) struct Expiring;

impl Expiring {
    fn agent(stores: &Arc<dyn Store>, ledger: &Ledger) -> Agent {
        agent("expiring", &[&["sign"], &["pay"]], stores, ledger)
            .tool(sign)
            .tool(pay)
            .approval_expires_after("sign", Duration::from_millis(100))
            .build()
            .unwrap()
    }

    /// Resumes the run until its approval has expired and it has ended.
    async fn wait(agent: Agent, mut outcome: RunOutcome) -> Result<String, String> {
        while outcome.stop == Stop::WaitingApproval {
            SystemClock.sleep(Duration::from_millis(40)).await;
            outcome = resume(&agent).await?;
        }
        Ok(outcome.text().to_owned())
    }
}

async fn resume(agent: &Agent) -> Result<RunOutcome, String> {
    agent.resume(ResumeRequest::new(RUN)).await.map_err(|error| error.to_string())
}

#[async_trait]
impl ActingRun for Expiring {
    async fn begin(&self, stores: Arc<dyn Store>, ledger: Ledger) -> Result<String, String> {
        let agent = Self::agent(&stores, &ledger);
        let request = RunRequest::new("go").run(RUN.into());
        let outcome = agent.run(request).await.map_err(|error| error.to_string())?;
        Self::wait(agent, outcome).await
    }
    async fn resume(&self, stores: Arc<dyn Store>, ledger: Ledger) -> Result<String, String> {
        let agent = Self::agent(&stores, &ledger);
        let outcome = resume(&agent).await?;
        Self::wait(agent, outcome).await
    }
}
