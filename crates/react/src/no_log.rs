use async_trait::async_trait;
use event_log::{
    Batch, Claim, Decision, EventLog, LogError, OpenApproval, Record, RunFilter, RunSummary,
};
use layer0::id::{ApprovalId, RunId};

/// What stands in for a log when none was asked for.
pub(crate) struct NoLog;

#[async_trait]
impl EventLog for NoLog {
    async fn claim(&self, _: &RunId) -> Result<Claim, LogError> {
        Ok(Claim::alone())
    }

    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        Ok(Vec::new())
    }

    async fn decide(&self, _: &ApprovalId, _: Decision) -> Result<bool, LogError> {
        Ok(false)
    }

    async fn decision(&self, _: &ApprovalId) -> Result<Option<Decision>, LogError> {
        Ok(None)
    }

    async fn append(&self, _: Batch) -> Result<(), LogError> {
        Ok(())
    }

    async fn summary(&self, _: &RunId) -> Result<Option<RunSummary>, LogError> {
        Ok(None)
    }

    async fn records(&self, _: &RunId, _: u64) -> Result<Vec<Record>, LogError> {
        Ok(Vec::new())
    }

    async fn runs(&self, _: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        Ok(Vec::new())
    }
}
