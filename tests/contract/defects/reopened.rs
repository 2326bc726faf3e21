//! Places that break one promise each when the log in them is opened again.

use std::sync::Arc;

use async_trait::async_trait;
use backstop::MemoryLog;
use backstop_event_log::{
    Batch, Claim, EventLog, InboxMessage, InboxRequest, InboxWatch, LogError, OpenApproval, Record,
    RunFilter, RunSummary,
};
use backstop_testkit::contract::{Open, Suite};
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};

super::defects! {
    ClaimsAreOfTheHandle => a_run_has_one_writer_by_whatever_handle,
    EpochsBeginAnew => keeps_epochs,
    ForgetsAll => keeps_runs,
    ForgetsApprovals => keeps_requests,
    ForgetsRequests => keeps_requests,
    ForgetsSummaries => keeps_runs,
    ForgetsTheLastRoot => keeps_the_last_root,
    LosesTheLastEvent => keeps_runs,
    LosesTheSender => keeps_requests,
    SessionsAreOfTheHandle => a_session_has_one_open_run_by_whatever_handle,
}

use Defect as D;

/// Spec: D3, D8
#[test]
fn every_defect_of_a_reopened_log_is_noticed() {
    super::check(DEFECTS, suite);
}

fn suite(defect: Defect) -> Suite {
    backstop_testkit::contract::reopened_event_log(async move || place(defect))
}

/// A place that outlives what is opened, as a file does.
fn place(defect: Defect) -> Open<dyn EventLog> {
    let kept = Arc::new(MemoryLog::new());
    let first = std::cell::Cell::new(true);
    Box::new(move || {
        let kept = if defect == D::ForgetsAll { Arc::default() } else { Arc::clone(&kept) };
        let handle = Handle { defect, kept, is_first: first.replace(false) };
        Box::pin(std::future::ready(Arc::new(handle) as _))
    })
}

struct Handle {
    defect: Defect,
    kept: Arc<MemoryLog>,
    is_first: bool,
}

impl Handle {
    fn forgets(&self, defect: Defect) -> bool {
        self.defect == defect && !self.is_first
    }
}

#[async_trait]
impl EventLog for Handle {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        let claim = match self.kept.claim(run).await {
            Err(LogError::Claimed(_)) if self.defect == D::ClaimsAreOfTheHandle => {
                Claim::new(9, ())
            }
            claim => claim?,
        };
        let epoch = if self.defect == D::EpochsBeginAnew { 2 } else { claim.epoch() };
        Ok(Claim::new(epoch, claim))
    }

    fn claim_new(&self, run: &RunId) -> Claim {
        self.kept.claim_new(run)
    }

    async fn append(&self, mut batch: Batch) -> Result<(), LogError> {
        if self.forgets(D::SessionsAreOfTheHandle) {
            batch.summary.parent = Some("any".into());
        }
        self.kept.append(batch).await
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        if self.forgets(D::ForgetsSummaries) {
            return Ok(None);
        }
        self.kept.summary(run).await
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        let mut records = self.kept.records(run, from_seq).await?;
        if self.forgets(D::LosesTheLastEvent) {
            records.pop();
        }
        Ok(records)
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        self.kept.runs(filter).await
    }

    async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError> {
        if self.forgets(D::ForgetsTheLastRoot) {
            let filter = RunFilter::new().session(session.clone()).limit(1);
            return Ok(self.kept.runs(filter).await?.pop());
        }
        self.kept.last_root(session).await
    }

    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        if self.forgets(D::ForgetsApprovals) {
            return Ok(Vec::new());
        }
        self.kept.open_approvals().await
    }

    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError> {
        self.kept.send(request, by, at).await
    }

    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
        let mut inbox = self.kept.inbox(run).await?;
        if self.forgets(D::ForgetsRequests) {
            inbox.clear();
        }
        if self.forgets(D::LosesTheSender) {
            inbox.iter_mut().for_each(|message| message.by = "".into());
        }
        Ok(inbox)
    }

    fn watch_inbox(&self, run: &RunId) -> InboxWatch {
        self.kept.watch_inbox(run)
    }
}
