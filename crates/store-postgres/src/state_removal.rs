//! Taking values away, whatever is expected of them. Each statement takes some: it ends within its limit of time however
//! many there are.

use backstop_error_store::StoreError;
use layer0::Timestamp;
use layer0::state::Scope;

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::text::encode_text;

/// Removes the values of a scope, and counts them in `removed`, also where it fails part of the way.
pub(crate) async fn clear(
    pool: &ConnectionPool,
    scope: &Scope,
    removed: &mut u64,
) -> Result<(), StoreError> {
    let scope = scope.to_string();
    loop {
        let mut lent = pool.lend().await?;
        let gone = sqlx::query(
            "DELETE FROM backstop.state WHERE scope = $1 AND key IN \
             (SELECT key FROM backstop.state WHERE scope = $1 ORDER BY key LIMIT 256)",
        )
        .bind(&*encode_text(&scope))
        .execute(&mut *lent)
        .await
        .map_err(Fault::from)?;
        lent.end().await?;
        if gone.rows_affected() == 0 {
            return Ok(());
        }
        *removed += gone.rows_affected();
    }
}

/// Removes the values that have expired, some at a time.
pub(crate) async fn expire(pool: &ConnectionPool, now: Timestamp) -> Result<(), StoreError> {
    loop {
        let mut lent = pool.lend().await?;
        let gone = sqlx::query(
            "DELETE FROM backstop.state WHERE (scope, key) IN (SELECT scope, key FROM backstop.state \
             WHERE expires_at <= $1 LIMIT 256 FOR UPDATE SKIP LOCKED)",
        )
        .bind(now.as_millis())
        .execute(&mut *lent)
        .await
        .map_err(Fault::from)?;
        lent.end().await?;
        if gone.rows_affected() == 0 {
            return Ok(());
        }
    }
}
