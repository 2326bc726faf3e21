//! The row about the database as a whole.

use backstop_error_store::StoreError;
use backstop_retention::StoreRetention;

use crate::fault::Fault;
use crate::pool::ConnectionPool;

/// Stores the retention that this process has set, or returns the stored one.
pub(crate) async fn agree_retention(
    pool: &ConnectionPool,
    own: StoreRetention,
) -> Result<StoreRetention, StoreError> {
    let mut lent = pool.lend().await?;
    let known: Option<String> = sqlx::query_scalar("SELECT retention FROM backstop.meta")
        .fetch_one(&mut *lent)
        .await
        .map_err(Fault::from)?;
    if let Some(setting) = own.setting().filter(|setting| known.as_ref() != Some(setting)) {
        sqlx::query("UPDATE backstop.meta SET retention = $1")
            .bind(setting)
            .execute(&mut *lent)
            .await
            .map_err(Fault::from)?;
    }
    lent.end().await?;
    Ok(own.or_setting(known.as_deref()))
}
