//! Places that break one promise each when the log in them is opened again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop::MemoryLog;
use backstop_event_log::{
    Batch, Claim, Cursor, EventFeed, EventFilter, EventLog, EventWatch, FeedPage, Inbox,
    InboxMessage, InboxRequest, InboxWatch, Log, LogError, OpenApproval, Ports, Record, RunFilter,
    RunSummary, Runs, Subscription, Subscriptions, read_events,
};
use backstop_testkit::contract::{Open, Suite};
use layer0::Timestamp;
use layer0::event::EventKind;
use layer0::id::{RunId, SessionId};

super::defects! {
    ClaimsAreOfTheHandle => a_run_has_one_writer_by_whatever_handle,
    DrawsAnotherMark => keeps_cursors,
    EpochsBeginAnew => keeps_epochs,
    EpochsBelowStay => a_tree_has_one_owner_by_whatever_handle,
    ForgetsAll => keeps_runs,
    ForgetsApprovals => keeps_requests,
    ForgetsExpiries => keeps_expired_approvals,
    ForgetsPositions => keeps_subscriptions,
    ForgetsRequests => keeps_requests,
    ForgetsSettlements => keeps_settlements,
    ForgetsSubscriptions => keeps_subscriptions,
    ForgetsSummaries => keeps_runs,
    ForgetsTheLastRoot => keeps_the_last_root,
    LosesTheLastEvent => keeps_runs,
    LosesTheSender => keeps_requests,
    ReusesIds => gives_new_requests_ids_of_their_own,
    RingsOnce => wakes_again_while_a_request_waits,
    SessionsAreOfTheHandle => a_session_has_one_open_run_by_whatever_handle,
    TreesAreOfNoOne => a_tree_has_one_owner_by_whatever_handle,
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
    let trees = Arc::new(Trees::default());
    let opened = std::cell::Cell::new(0);
    Box::new(move || {
        let kept = if defect == D::ForgetsAll { Arc::default() } else { Arc::clone(&kept) };
        let number = opened.replace(opened.get() + 1);
        let handle = Handle { defect, kept, trees: Arc::clone(&trees), number };
        Box::pin(std::future::ready(Arc::new(handle) as _))
    })
}

/// Which handle has which runs of a tree.
type Trees = Mutex<BTreeMap<RunId, Vec<(RunId, u32)>>>;

struct Handle {
    defect: Defect,
    kept: Arc<MemoryLog>,
    trees: Arc<Trees>,
    number: u32,
}

/// Gives a run of a tree back when it is dropped.
struct InTree(Arc<Trees>, RunId, RunId, #[expect(dead_code, reason = "held until then")] Claim);

impl Drop for InTree {
    fn drop(&mut self) {
        let Self(trees, root, run, _) = self;
        trees.lock().unwrap().entry(root.clone()).or_default().retain(|(held, _)| held != run);
    }
}

impl Handle {
    fn forgets(&self, defect: Defect) -> bool {
        self.defect == defect && self.number > 0
    }

    async fn root(&self, run: &RunId) -> RunId {
        let events = read_events(&*self.kept, run).await;
        let started = events.ok().and_then(|(_, events)| match &events.first()?.kind {
            EventKind::RunStarted(started) => started.root.clone(),
            _ => None,
        });
        started.unwrap_or_else(|| run.clone())
    }

    fn take(&self, root: RunId, run: &RunId, claim: Claim) -> Result<Claim, LogError> {
        let mut trees = self.trees.lock().unwrap();
        let held = trees.entry(root.clone()).or_default();
        let is_taken = held.iter().any(|(_, by)| *by != self.number);
        if is_taken && !matches!(self.defect, D::TreesAreOfNoOne | D::ClaimsAreOfTheHandle) {
            return Err(LogError::Claimed(run.clone()));
        }
        held.push((run.clone(), self.number));
        let epoch = claim.epoch();
        Ok(Claim::new(epoch, InTree(Arc::clone(&self.trees), root, run.clone(), claim)))
    }

    /// Outdates the writers of the runs below a root.
    async fn outdate(&self, root: &RunId) -> Result<(), LogError> {
        for run in self.kept.runs(RunFilter::new()).await? {
            if run.run != *root && self.root(&run.run).await == *root {
                drop(self.kept.claim(&run.run).await?);
            }
        }
        Ok(())
    }
}

impl EventLog for Handle {
    fn ports(&self) -> Ports<'_> {
        self.kept.ports().log(self).feed(self).subscriptions(self).runs(self).inbox(self)
    }
}

#[async_trait]
impl Log for Handle {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        let claim = match self.kept.claim(run).await {
            Err(LogError::Claimed(_)) if self.defect == D::ClaimsAreOfTheHandle => {
                Claim::new(9, ())
            }
            claim => claim?,
        };
        let epoch = if self.defect == D::EpochsBeginAnew { 2 } else { claim.epoch() };
        let claim = self.take(self.root(run).await, run, Claim::new(epoch, claim))?;
        if self.defect != D::EpochsBelowStay {
            self.outdate(run).await?;
        }
        Ok(claim)
    }

    fn claim_new(&self, run: &RunId) -> Claim {
        let claim = self.kept.claim_new(run);
        let epoch = claim.epoch();
        // Of a run that begins, no other handle has the tree.
        self.take(run.clone(), run, claim).unwrap_or_else(|_| Claim::new(epoch, ()))
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
}

#[async_trait]
impl EventFeed for Handle {
    async fn read_feed(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError> {
        if self.forgets(D::DrawsAnotherMark) && cursor.number().is_some_and(|it| it > 0) {
            return Err(LogError::ForeignCursor(*cursor));
        }
        self.kept.read_feed(filter, cursor).await
    }

    fn watch_events(&self) -> EventWatch {
        self.kept.watch_events()
    }
}

#[async_trait]
impl Subscriptions for Handle {
    async fn subscription(&self, name: &str) -> Result<Option<Subscription>, LogError> {
        if self.forgets(D::ForgetsSubscriptions) {
            return Ok(None);
        }
        let mut known = self.kept.subscription(name).await?;
        if self.forgets(D::ForgetsPositions) {
            known.iter_mut().for_each(|it| it.positions.clear());
        }
        Ok(known)
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, LogError> {
        self.kept.subscriptions().await
    }
}

#[async_trait]
impl Runs for Handle {
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
}

#[async_trait]
impl Inbox for Handle {
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        if self.forgets(D::ForgetsApprovals) {
            return Ok(Vec::new());
        }
        self.kept.open_approvals().await
    }

    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError> {
        let is_settlement = matches!(request, InboxRequest::Settle { .. });
        match self.kept.send(request, by, at).await {
            Err(LogError::ApprovalExpired(_)) if self.forgets(D::ForgetsExpiries) => Ok(false),
            Ok(false) if is_settlement && self.forgets(D::ForgetsSettlements) => Ok(true),
            sent => sent,
        }
    }

    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
        let mut inbox = self.kept.inbox(run).await?;
        if self.forgets(D::ForgetsRequests) {
            inbox.clear();
        }
        if self.forgets(D::LosesTheSender) {
            inbox.iter_mut().for_each(|message| message.by = "".into());
        }
        if self.forgets(D::ReusesIds) && inbox.len() > 1 {
            let first = inbox.remove(0);
            inbox.iter_mut().for_each(|message| message.id = first.id);
        }
        Ok(inbox)
    }

    fn watch_inbox(&self, run: &RunId) -> InboxWatch {
        // That of a log in memory, which cannot fail to be read, has the defect `RingsOnce`.
        self.kept.watch_inbox(run)
    }
}
