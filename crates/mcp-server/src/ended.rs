//! End of a run's work in this process.

use backstop_orchestrator::LocalOrchestrator;
use layer0::error::OrchError;
use layer0::failure::Failure;
use layer0::id::{RunId, WorkflowId};
use layer0::operator::Answer;
use layer0::stop::{Outcome, Stop};
use layer0::{Orchestrator, code};
use serde_json::Value;

/// The end of a run's work in this process.
pub(crate) struct WorkEnd {
    result: Result<Answer, OrchError>,
    standing: RecordState,
    /// State of the record at that moment; `None` if no record is kept, or it could not be read.
    record: Option<Value>,
}

/// State of a run after its work in this process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordState {
    /// The result is that of the run: its record ends with it, or no record is kept.
    Final,
    /// The record is still open: the run waits for a person, another process has it, or the record could not be
    /// written.
    Open,
    /// There is no record of the run.
    Unrecorded,
}

impl WorkEnd {
    /// Returns the end of a run without a record.
    pub(crate) const fn without_record(
        result: Result<Answer, OrchError>,
        standing: RecordState,
    ) -> Self {
        Self { result, standing, record: None }
    }

    /// Compares the result with the record of the run.
    pub(crate) async fn read(
        orchestrator: &LocalOrchestrator,
        operator: &str,
        run: &RunId,
        result: Result<Answer, OrchError>,
    ) -> Self {
        if !orchestrator.can_go_on(operator) {
            return Self::without_record(result, RecordState::Final);
        }
        match orchestrator.query(&WorkflowId::new(run.as_str())).await {
            Ok(record) => {
                let standing = RecordState::from_record(&record, &result);
                Self { result, standing, record: Some(record) }
            }
            Err(OrchError::WorkflowNotFound(_)) => {
                Self::without_record(result, RecordState::Unrecorded)
            }
            // A record that cannot be read now may be read later.
            Err(_) => Self::without_record(result, RecordState::Open),
        }
    }

    /// Returns whether the result is still the end of the run, with no events appended to its record since.
    pub(crate) async fn is_current(&self, orchestrator: &LocalOrchestrator, run: &RunId) -> bool {
        match (self.standing, &self.record) {
            (RecordState::Final, None) => true,
            (RecordState::Final, Some(record)) => {
                let now = orchestrator.query(&WorkflowId::new(run.as_str())).await;
                now.is_ok_and(|now| now == *record)
            }
            (RecordState::Open | RecordState::Unrecorded, _) => false,
        }
    }

    pub(crate) const fn result(&self) -> Result<&Answer, &OrchError> {
        self.result.as_ref()
    }

    pub(crate) const fn standing(&self) -> RecordState {
        self.standing
    }

    /// Returns whether there is no such run, as far as the operator knows.
    pub(crate) fn is_unknown(&self) -> bool {
        let is_refused = self
            .result
            .as_ref()
            .is_err_and(|error| matches!(error.code(), code::INPUT_INVALID | code::RUN_NOT_FOUND));
        is_refused && self.standing == RecordState::Unrecorded
    }

    /// Returns whether another process has resumed the run.
    pub(crate) fn is_elsewhere(&self) -> bool {
        let is_claimed = self.result.as_ref().is_err_and(|error| error.code() == code::RUN_OPEN);
        is_claimed && self.standing != RecordState::Final
    }
}

impl RecordState {
    /// Returns whether a result is the end of its record.
    fn from_record(record: &Value, result: &Result<Answer, OrchError>) -> Self {
        let is_final = match result {
            Ok(answer) => answer.stop != Stop::WaitingApproval && !record["outcome"].is_null(),
            Err(error) => {
                record["outcome"] == Outcome::Failed.as_str() && record["reason"] == error.code()
            }
        };
        if is_final { Self::Final } else { Self::Open }
    }
}
