//! Work in its own transaction, retried if nothing can have been committed.

use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_error_store::StoreError;
use backstop_event_log::LogError;
use sqlx::PgConnection;

use crate::fault::Fault;
use crate::pool::ConnectionPool;

/// Delay before the same work is retried.
const WAIT: Duration = Duration::from_millis(50);
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Work in a transaction. It may be repeated if the transaction failed.
#[async_trait]
pub(crate) trait TransactionWork: Sync {
    /// The result of the work.
    type Done;
    /// The error of the work.
    type Error: From<Fault> + Transient;

    /// Does the work.
    async fn perform(&self, connection: &mut PgConnection) -> Result<Self::Done, Self::Error>;
}

/// Does work in a transaction. After a conflict with another transaction or an error of the server, if nothing can have
/// been committed, the work is retried until `patience` has passed; a lost answer to the commit is an error.
///
/// # Cancel safety
///
/// If the future is dropped, the work is done completely or not at all.
pub(crate) async fn transact<W: TransactionWork>(
    pool: &ConnectionPool,
    patience: Duration,
    work: &W,
) -> Result<W::Done, W::Error> {
    let until = SystemClock.monotonic() + patience;
    let mut wait = WAIT;
    loop {
        let failed = match pool.begin().await {
            Err(fault) => fault.into(),
            Ok(mut transaction) => match work.perform(&mut transaction).await {
                Ok(done) => {
                    transaction.commit().await.map_err(Fault::at_commit)?;
                    return Ok(done);
                }
                Err(error) => error,
            },
        };
        if !failed.is_transient() || SystemClock.monotonic() + wait > until {
            return Err(failed);
        }
        SystemClock.sleep(wait).await;
        wait = MAX_WAIT.min(wait * 2);
    }
}

/// Errors that may allow a retry of the same work.
pub(crate) trait Transient {
    fn is_transient(&self) -> bool;
}

impl Transient for LogError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Locked(_) | Self::Unreachable(_))
    }
}

impl Transient for StoreError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Locked(_) | Self::Unreachable(_))
    }
}
