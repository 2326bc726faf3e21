//! Event logs that break one promise about approvals each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop::MemoryLog;
use backstop_event_log::{
    ApprovalChange, Batch, Claim, EventLog, Inbox, InboxMessage, InboxRequest, InboxWatch, Log,
    LogError, OpenApproval, Ports, Record, RunSummary,
};
use backstop_testkit::contract::Suite;
use layer0::Timestamp;
use layer0::id::{ApprovalId, RunId};

super::defects! {
    AcceptsAnyId => refuses_an_unknown_approval,
    AnyoneDecides => refuses_one_who_may_not_decide,
    AgreedStaysOpen => an_agreed_call_is_open_no_more,
    AsksInAnyOrder => asks_the_oldest_first,
    CopyAsksAgain => a_copied_run_asks_anew,
    CopyTakesOver => a_copied_run_asks_anew,
    DecidesAfterTheEnd => refuses_a_decision_after_the_end,
    DecidesTooLate => refuses_a_decision_too_late,
    DecidesTwice => counts_the_first_decision,
    DecisionStays => drops_a_decision_nothing_waits_for,
    DecisionsRace => counts_one_of_many_decisions,
    DenialIsAnExpiry => remembers_what_has_expired,
    DeniedStaysOpen => a_denied_call_is_open_no_more,
    EndedStaysOpen => has_no_approval_of_a_run_that_is_over,
    EndsAllRuns => has_no_approval_of_a_run_that_is_over,
    ExpiresTooEarly => expires_what_is_not_decided,
    ExpiryOverrules => expires_what_is_not_decided,
    FailedStaysOpen => has_no_approval_of_a_run_that_is_over,
    ForgetsWhatExpired => remembers_what_has_expired,
    LosesChangedArguments => keeps_changed_arguments,
    LosesTheApprovers => an_open_approval_says_its_limits,
    LosesTheExpiry => an_open_approval_says_its_limits,
    LosesTheArguments => an_open_approval_says_what_was_asked,
    LosesTheCall => an_open_approval_says_what_was_asked,
    LosesTheReason => a_decision_waits_in_the_inbox_of_its_run,
    WhenItWasRead => an_open_approval_says_what_was_asked,
}

use Defect as D;

/// Spec: A1
#[test]
fn every_defect_of_approvals_is_noticed() {
    super::check(DEFECTS, suite);
}

fn suite(defect: Defect) -> Suite {
    backstop_testkit::contract::approvals(async move || {
        let (sound, noted) = (MemoryLog::new(), Mutex::default());
        Arc::new(Defective { defect, sound, noted }) as _
    })
}

/// Does one thing wrong, and leaves the rest to a sound log.
struct Defective {
    defect: Defect,
    sound: MemoryLog,
    noted: Mutex<Noted>,
}

/// What a defect needs to know.
#[derive(Default)]
struct Noted {
    /// All that was ever asked.
    asked: Vec<OpenApproval>,
    /// What was copied to another run.
    copied: Vec<OpenApproval>,
    over: bool,
    ended: Vec<RunId>,
    /// Decisions that were accepted.
    decided: BTreeMap<ApprovalId, InboxMessage>,
}

impl Defective {
    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn note(&self, batch: &Batch) {
        let mut noted = self.noted.lock().unwrap();
        let types: Vec<&str> = batch.records.iter().map(|it| &*it.event_type).collect();
        if types.contains(&"run.forked") {
            let of_parent = noted.asked.clone();
            noted.copied = of_parent
                .into_iter()
                .map(|mut open| {
                    open.run = batch.run.clone();
                    open
                })
                .collect();
        }
        noted.asked.extend(batch.approval_changes().filter_map(|change| match change {
            Ok(ApprovalChange::Asked(open)) => Some(open),
            _ => None,
        }));
        if !batch.summary.is_open() {
            noted.over = true;
            noted.ended.push(batch.run.clone());
        }
    }
}

impl EventLog for Defective {
    fn ports(&self) -> Ports<'_> {
        self.sound.ports().log(self).inbox(self)
    }
}

#[async_trait]
impl Log for Defective {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.sound.claim(run).await
    }

    fn claim_new(&self, run: &RunId) -> Claim {
        self.sound.claim_new(run)
    }

    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        let mut hidden = batch.clone();
        let kept_open = match self.defect {
            D::AgreedStaysOpen => "approval.granted",
            D::DeniedStaysOpen => "tool.responded",
            D::EndedStaysOpen => "run.finished",
            D::FailedStaysOpen => "run.failed",
            _ => "",
        };
        // The sound log looks at the type alone.
        for record in &mut hidden.records {
            if record.event_type == kept_open {
                record.event_type = "warning".into();
            }
        }
        self.sound.append(hidden).await?;
        self.note(&batch);
        Ok(())
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.sound.summary(run).await
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        self.sound.records(run, from_seq).await
    }
}

#[async_trait]
impl Inbox for Defective {
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        let mut open = self.sound.open_approvals().await?;
        let noted = self.noted.lock().unwrap();
        match self.defect {
            D::AsksInAnyOrder => open.sort_by_key(|open| open.id.clone()),
            D::CopyAsksAgain => open.extend(noted.copied.iter().cloned()),
            D::EndsAllRuns if noted.over => open.clear(),
            _ => {}
        }
        for open in &mut open {
            match self.defect {
                D::LosesTheApprovers => open.approvers = Default::default(),
                D::LosesTheExpiry => open.expires_at = None,
                D::LosesTheArguments => open.arguments = Default::default(),
                D::LosesTheCall => open.call_id = "".into(),
                D::WhenItWasRead => open.requested_at = Timestamp::from_millis(1_000_000),
                _ => {}
            }
        }
        Ok(open)
    }

    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError> {
        let (approval, decision) = match request {
            InboxRequest::Decide { approval, decision } => (approval, decision),
            InboxRequest::Expire { .. } if self.is(D::ExpiresTooEarly) => {
                return self.sound.send(request, by, Timestamp::from_millis(i64::MAX)).await;
            }
            InboxRequest::Expire { ref approval } if self.is(D::ExpiryOverrules) => {
                let is_decided = self.noted.lock().unwrap().decided.contains_key(approval);
                return Ok(self.sound.send(request, by, at).await? || is_decided);
            }
            request => return self.sound.send(request, by, at).await,
        };
        let mut decision = decision;
        if self.is(D::LosesChangedArguments) {
            decision.arguments = None;
        }
        if self.is(D::LosesTheReason) {
            decision.reason = None;
        }
        let request = InboxRequest::Decide { approval: approval.clone(), decision };
        if self.is(D::DecisionsRace) {
            let open = self.sound.open_approvals().await?;
            tokio::task::yield_now().await;
            self.sound.send(request, by, at).await?;
            return Ok(open.iter().any(|open| open.id == approval));
        }
        let accepted = match (self.sound.send(request.clone(), by, at).await, self.defect) {
            (Err(LogError::NotApprover { .. }), D::AnyoneDecides)
            | (Err(LogError::ApprovalExpired(_)), D::DecidesTooLate) => true,
            (Err(LogError::ApprovalExpired(_)), D::ForgetsWhatExpired) => false,
            (Ok(false), D::DenialIsAnExpiry) => return Err(LogError::ApprovalExpired(approval)),
            (accepted, _) => accepted?,
        };
        let mut noted = self.noted.lock().unwrap();
        if accepted {
            let message = InboxMessage::new(1_000, request, by, at);
            noted.decided.insert(approval, message);
            return Ok(true);
        }
        let known = noted.asked.iter().find(|open| open.id == approval);
        let is_over = known.is_some_and(|open| noted.ended.contains(&open.run));
        Ok(match self.defect {
            D::AcceptsAnyId => known.is_none(),
            D::DecidesAfterTheEnd => is_over,
            D::DecidesTwice => known.is_some() && !is_over,
            _ => false,
        })
    }

    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
        let noted = |of: fn(&Noted) -> Vec<InboxMessage>| of(&self.noted.lock().unwrap());
        let has_copy = !self.noted.lock().unwrap().copied.is_empty();
        match self.defect {
            D::CopyTakesOver if has_copy => {
                let other = if run.as_str() == "run_1" { "run_2" } else { "run_1" };
                self.sound.inbox(&other.into()).await
            }
            D::DecisionStays => Ok(noted(|noted| noted.decided.values().cloned().collect())),
            _ => self.sound.inbox(run).await,
        }
    }

    fn watch_inbox(&self, run: &RunId) -> InboxWatch {
        self.sound.watch_inbox(run)
    }
}
