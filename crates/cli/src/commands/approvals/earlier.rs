//! Earlier decisions about approvals that are not open any more.

use backstop_event_log::{
    Cursor, EventFilter, EventLog, InboxRequest, LogError, RunFilter, RunState, one_line,
};
use layer0::Timestamp;
use layer0::code::APPROVAL_EXPIRED;
use layer0::event::EventKind;
use layer0::id::{ApprovalId, RunId};

use crate::exit::CliError;
use crate::output;

/// A decision that was accepted before.
pub(super) struct EarlierDecision {
    /// The run of the approval.
    pub(super) run: RunId,
    /// Whether the approval expired without a decision.
    pub(super) is_expiry: bool,
    approved: bool,
    by: String,
    why: Option<String>,
    at: Timestamp,
}

impl EarlierDecision {
    /// Finds the decision in the inbox of its run, or in the record of the run.
    ///
    /// # Errors
    ///
    /// [`LogError`] if the log cannot be read.
    pub(super) async fn find(
        log: &dyn EventLog,
        id: &ApprovalId,
    ) -> Result<Option<Self>, LogError> {
        match waiting(log, id).await? {
            Some(found) => Ok(Some(found)),
            None => search_records(log, id).await,
        }
    }

    /// Returns the error with the earlier decision. `open` is the run to resume, if there is one.
    pub(super) fn refuse(&self, id: &ApprovalId, open: Option<&RunId>, store: &str) -> CliError {
        let what = if self.approved { "approved" } else { "denied" };
        let why = self.why.as_deref().filter(|why| !why.is_empty());
        let why = why.map(|why| format!(" ({})", one_line(why))).unwrap_or_default();
        let by = one_line(&self.by);
        let said = format!("no open approval `{id}`: {by} {what} it at {}{why}", self.at);
        CliError::usage(said).with_hint(match open {
            Some(run) => format!(
                "an approval is decided once; the run goes on with `{}`",
                output::command(&format!("resume {run}{store}"))
            ),
            None => "an approval is decided once; the run is over".to_owned(),
        })
    }
}

/// Searches the inboxes of the open runs.
async fn waiting(log: &dyn EventLog, id: &ApprovalId) -> Result<Option<EarlierDecision>, LogError> {
    let open = RunFilter::new().state(RunState::Running).state(RunState::WaitingApproval);
    for run in log.runs(open).await? {
        for sent in log.inbox(&run.run).await? {
            let (run, by, at) = (&run.run, sent.by, sent.at);
            let found = match sent.request {
                InboxRequest::Decide { approval, decision } if approval == *id => {
                    let (approved, by, why) = (decision.approved, decision.by, decision.reason);
                    EarlierDecision { run: run.clone(), is_expiry: false, approved, by, why, at }
                }
                InboxRequest::Expire { approval } if approval == *id => {
                    let (run, by) = (run.clone(), by.to_string());
                    EarlierDecision { run, is_expiry: true, approved: false, by, why: None, at }
                }
                _ => continue,
            };
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Searches the decisions in the records of all runs.
async fn search_records(
    log: &dyn EventLog,
    id: &ApprovalId,
) -> Result<Option<EarlierDecision>, LogError> {
    let decisions = EventFilter::new().event_type("approval.granted").event_type("approval.denied");
    let mut cursor = Cursor::start();
    loop {
        let page = log.read_feed(&decisions, &cursor).await?;
        for found in page.records {
            let Ok(event) = found.record.decode(&found.run) else { continue };
            let (is_expiry, approved, by, why) = match event.kind {
                EventKind::ApprovalGranted(it) if it.approval_id == *id => {
                    (false, true, it.by, it.message)
                }
                EventKind::ApprovalDenied(it) if it.approval_id == *id => {
                    (it.reason == APPROVAL_EXPIRED, false, it.by, it.message)
                }
                _ => continue,
            };
            let (by, why) = (by.to_string(), why.map(|why| why.to_string()));
            let (run, at) = (found.run, event.at);
            return Ok(Some(EarlierDecision { run, is_expiry, approved, by, why, at }));
        }
        if page.is_end {
            return Ok(None);
        }
        cursor = page.cursor;
    }
}
