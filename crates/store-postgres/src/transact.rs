//! Work in a transaction of its own, done again where nothing was acknowledged.

use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_error_store::StoreError;
use backstop_event_log::LogError;
use sqlx::PgConnection;

use crate::fault::Fault;
use crate::pool::Pool;

/// How long is waited before the same work is done again.
const WAIT: Duration = Duration::from_millis(50);
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Work in a transaction. It may be done again when the transaction failed.
#[async_trait]
pub(crate) trait Work: Sync {
    /// What it makes.
    type Done;
    /// Why it fails.
    type Error: From<Fault> + Transient;

    /// Does the work.
    async fn perform(&self, connection: &mut PgConnection) -> Result<Self::Done, Self::Error>;
}

/// Does work in a transaction. When another transaction or the server was in the way, and nothing can have been
/// committed, it is done again until `patience` has passed; an answer to the commit that was lost is an error.
///
/// # Cancel safety
///
/// If the future is dropped, the work is done whole or not at all.
pub(crate) async fn transact<W: Work>(
    pool: &Pool,
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

/// Says whether the same work can be done again.
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
