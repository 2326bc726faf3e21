//! Background work of a database, apart from its writer.

use backstop_clock::{Clock, SystemClock};
use backstop_error_store::StoreError;
use backstop_retention::StoreRetention;
use layer0::Timestamp;
use sqlx::{Connection, PgConnection};

use crate::database::Database;
use crate::fault::Fault;
use crate::prune::{self, PruneStatements};
use crate::server_time;
use crate::store_row::agree_retention;
use crate::{expired, start_keys, state_removal};

/// Lock of the process that prunes in the background: "BSTU".
const LOCK: i64 = 0x4253_5455;

/// Prunes after an append, if it is time and runs are pruned.
pub(crate) fn after_append(database: &Database, at: Timestamp) {
    if database.upkeep().ends_runs() {
        after(database, at);
    }
}

/// Prunes after a write, if it is time. The server's clock decides what is old, whatever time was written.
pub(crate) fn after(database: &Database, at: Timestamp) {
    // time of day: it only decides when the next pruning is due; the server's clock decides what is old.
    let at = at.min(SystemClock.now());
    let Some(retention) = database.upkeep().due(at) else { return };
    let pruning = database.clone();
    database.upkeep().watch(|earlier| {
        tokio::spawn(async move {
            earlier.wait_for_end().await;
            if let Err(error) = work(&pruning, retention, at).await {
                tracing::warn!(%error, "pruning failed; it is tried again later");
            }
        })
    });
}

/// Prunes, unless another process is pruning. Removals are committed on other connections, so that the lock's
/// transaction changes nothing; it has its own connection, because a pool may have only one.
async fn work(
    database: &Database,
    retention: StoreRetention,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut connection = database.options().connect.connect().await.map_err(Fault::from)?;
    let connect = &database.options().connect;
    let mut transaction = connect.begin(&mut connection, "BEGIN").await.map_err(Fault::from)?;
    if lock(&mut transaction).await.map_err(Fault::from)? {
        let now =
            server_time::cap_at_server_time(&mut transaction, now).await.map_err(Fault::from)?;
        let retention = agree_retention(database.for_writing()?, retention).await?;
        prune_all(database, retention, now).await?;
    }
    // The lock is free before the next pruning asks for it. If the connection is dropped, the server releases it later.
    transaction.rollback().await.map_err(Fault::from)?;
    connection.close().await.map_err(Fault::from)?;
    Ok(())
}

/// Takes the lock if it is free, until the end of the transaction.
async fn lock(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let lock = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)").bind(LOCK);
    lock.fetch_one(connection).await
}

async fn prune_all(
    database: &Database,
    retention: StoreRetention,
    now: Timestamp,
) -> Result<(), StoreError> {
    if let Some(age) = retention.runs {
        let removed = backstop_retention::prune_runs(database, age, &[], now).await?;
        if !removed.runs.is_empty() {
            tracing::info!(runs = removed.runs.len(), "runs pruned");
        }
        let removed = backstop_retention::prune_segments(database, age, now).await?;
        if !removed.runs.is_empty() {
            tracing::info!(segments = removed.runs.len(), "segments of subscriptions pruned");
        }
    }
    state_removal::expire(database.for_writing()?, now).await?;
    start_keys::expire(database.for_writing()?, now).await?;
    expired::forget(database.for_writing()?, now).await?;
    for kind in PruneStatements::ALL {
        let pruned = prune::prune(database, kind, retention.texts, now).await?;
        if pruned.rows > 0 {
            tracing::info!(rows = pruned.rows, bytes = pruned.bytes, "errors or results pruned");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use backstop_error_store::{ErrorFilter, ErrorStore, NewError, Origin, Retention};
    use backstop_redact::Redactor;
    use backstop_testkit::PostgresServer;
    use layer0::{Code, code};

    use super::*;

    /// Spec: S10
    #[tokio::test(flavor = "multi_thread")]
    async fn one_process_prunes_at_a_time() {
        let Some(server) = PostgresServer::shared() else { return };
        let database = Database::connect(&server.database().await).await.unwrap();
        let now = Timestamp::from_millis(1_767_225_600_000);
        let origin = Origin::new(now, "s", "run_1", "c", "sql");
        let reason = Code::new(code::TOOL_EXECUTION_FAILED);
        let error = NewError::new(origin, reason, None, "boom", &Redactor::new());
        database.errors().store(error).await.unwrap();
        // The store's own pruning may still hold the lock.
        database.upkeep().stop().await;
        let nothing = StoreRetention::from(Retention::NONE.max_rows(0));
        let left = async || database.errors().list(ErrorFilter::new()).await.unwrap().len();

        let mut other = database.options().connect.connect().await.unwrap();
        let mut transaction = other.begin().await.unwrap();
        while !lock(&mut transaction).await.unwrap() {
            tokio::task::yield_now().await;
        }
        work(&database, nothing, now).await.unwrap();
        assert_eq!(left().await, 1, "another process prunes");
        drop(transaction);
        other.close().await.unwrap();
        // The server releases the lock a moment after the connection is closed.
        for _ in 0..1_000 {
            if left().await == 0 {
                return;
            }
            work(&database, nothing, now).await.unwrap();
        }
        panic!("nothing is pruned");
    }

    /// Spec: S10
    #[tokio::test(flavor = "multi_thread")]
    async fn lock_is_free_after_each_pruning() {
        let Some(server) = PostgresServer::shared() else { return };
        let database = Database::connect(&server.database().await).await.unwrap();
        let now = Timestamp::from_millis(1_767_225_600_000);
        let mut other = database.options().connect.connect().await.unwrap();
        for round in 0..100 {
            work(&database, StoreRetention::default(), now).await.unwrap();
            let mut transaction = other.begin().await.unwrap();
            assert!(lock(&mut transaction).await.unwrap(), "round {round}");
            transaction.rollback().await.unwrap();
        }
    }
}
