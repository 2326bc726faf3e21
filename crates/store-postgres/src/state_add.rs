//! Additions to whole numbers, each in one statement on its row.

use async_trait::async_trait;
use backstop_error_store::StoreError;
use layer0::Timestamp;
use layer0::state::{Added, StateAdd};
use sqlx::PgConnection;

use crate::fault::Fault;
use crate::rows::to_i64;
use crate::server_time::given_ms;
use crate::state_words::index_words;
use crate::text::encode_text;
use crate::transact::TransactionWork;

/// An amount to add.
pub(crate) struct StateAddition<'a> {
    pub(crate) add: &'a StateAdd,
    /// The time in milliseconds; `None` is the server's time.
    pub(crate) now: Option<i64>,
}

#[async_trait]
impl TransactionWork for StateAddition<'_> {
    /// `None` if the stored value is not a whole number.
    type Done = Option<Added>;
    type Error = StoreError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<Option<Added>, StoreError> {
        let StateAdd { scope, key, amount, unless_above, expires_after, .. } = self.add;
        let scope = scope.to_string();
        let lasts = expires_after.map(|time| Timestamp::default().after(time).as_millis());
        // The row is locked before its value is read, so that concurrent additions count.
        let sum: Option<String> = sqlx::query_scalar(concat!(
            "INSERT INTO backstop.state AS known (scope, key, version, at, expires_at, value, words) \
             SELECT $1, $2, nextval('backstop.state_versions'), now.ms, now.ms + $4, \
             greatest(0, $5::bigint)::text, $6 FROM (SELECT ",
            given_ms!("$3"),
            " AS ms) AS now \
             ON CONFLICT (scope, key) DO UPDATE SET version = nextval('backstop.state_versions'), \
             at = excluded.at, expires_at = excluded.expires_at, words = $6, \
             value = least(9223372036854775807, greatest(0, \
             CASE WHEN known.expires_at <= excluded.at THEN 0 ELSE known.value::numeric END + $5))::text \
             WHERE known.expires_at <= excluded.at OR CASE WHEN known.value ~ '^[0-9]{1,19}$' \
             THEN known.value::numeric <= coalesce($7::numeric, known.value::numeric) END \
             RETURNING value",
        ))
        .bind(&*encode_text(&scope))
        .bind(&*encode_text(key))
        .bind(self.now)
        .bind(lasts)
        .bind(*amount)
        .bind(index_words(key))
        .bind(unless_above.map(to_i64))
        .fetch_optional(&mut *connection)
        .await
        .map_err(Fault::from)?;
        if let Some(sum) = sum {
            return Ok(sum.parse().ok().map(Added::Done));
        }
        let found: Option<String> =
            sqlx::query_scalar("SELECT value FROM backstop.state WHERE scope = $1 AND key = $2")
                .bind(&*encode_text(&scope))
                .bind(&*encode_text(key))
                .fetch_optional(connection)
                .await
                .map_err(Fault::from)?;
        // The conflicting row may be gone by now.
        let found = found.map_or(Ok(0), |found| found.parse());
        Ok(found.ok().map(Added::Refused))
    }
}
