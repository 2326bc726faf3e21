//! Additions to whole numbers, each in one step of the writer.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use backstop_redact::Redactor;
use backstop_state::PreparedWrite;
use layer0::Timestamp;
use layer0::error::StateError;
use layer0::state::{Added, StateAdd, StateWrite};
use sqlx::SqliteConnection;

use super::change::{Change, Changed, write};
use super::row::decode_versioned;
use crate::chore::Chore;
use crate::job_error::JobError;

/// The result of an addition, once it was performed.
#[derive(Clone, Default)]
pub(super) struct AdditionResult(Arc<Mutex<Option<Result<Added, StateError>>>>);

impl AdditionResult {
    fn set(&self, outcome: Result<Added, StateError>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }

    pub(super) fn take(&self) -> Result<Added, StateError> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.unwrap_or_else(|| Err(StateError::WriteFailed("it was not performed".to_owned())))
    }
}

/// An amount to add.
pub(super) struct Addition {
    add: StateAdd,
    redactor: Redactor,
    now: Timestamp,
    outcome: AdditionResult,
}

impl Addition {
    pub(super) fn new(
        add: StateAdd,
        redactor: &Redactor,
        now: Timestamp,
    ) -> (Self, AdditionResult) {
        let outcome = AdditionResult::default();
        (Self { add, redactor: redactor.clone(), now, outcome: outcome.clone() }, outcome)
    }

    /// Writes the sum; returns whether it was written.
    async fn write(
        &self,
        connection: &mut SqliteConnection,
        sum: StateWrite,
    ) -> Result<Result<bool, StateError>, JobError> {
        let prepared = match PreparedWrite::new(sum, &self.redactor, self.now) {
            Ok(prepared) => prepared,
            Err(error) => return Ok(Err(error)),
        };
        let changed = write(connection, &[&Change::new(prepared)]).await?;
        Ok(Ok(matches!(changed[..], [Changed::Written(_)])))
    }
}

#[async_trait]
impl Chore for Addition {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let row = sqlx::query(
            "SELECT number, at, expires_at, value FROM state \
             WHERE scope = $1 AND key = $2 AND (expires_at IS NULL OR expires_at > $3)",
        )
        .bind(self.add.scope.to_string())
        .bind(&self.add.key)
        .bind(self.now.as_millis())
        .fetch_optional(&mut *connection)
        .await?;
        let stored = row.as_ref().map(decode_versioned).transpose();
        let outcome = match stored.and_then(|stored| self.add.over(stored.as_ref())) {
            Err(error) => Err(error),
            Ok(Err(found)) => Ok(Added::Refused(found)),
            Ok(Ok(sum)) => {
                let text = sum.value.text().ok();
                let stored = text.and_then(|text| text.read().ok()).unwrap_or_default();
                match self.write(connection, sum).await? {
                    Ok(true) => Ok(Added::Done(stored)),
                    Ok(false) => {
                        Err(StateError::conflict(&self.add.scope, self.add.key.clone(), None))
                    }
                    Err(error) => Err(error),
                }
            }
        };
        let written = u64::from(matches!(outcome, Ok(Added::Done(_))));
        self.outcome.set(outcome);
        Ok(written)
    }
}
