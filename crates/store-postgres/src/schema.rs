//! Migration of a database to the schema of this version.

use sqlx::{Connection, PgConnection};

use crate::open_error::{DatabaseTarget, OpenError};

/// The migrations, oldest first; the table `migrations` counts those applied.
const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/1_store.sql"),
    include_str!("../migrations/2_queue.sql"),
    include_str!("../migrations/3_due_runs.sql"),
    include_str!("../migrations/4_removed_runs.sql"),
    include_str!("../migrations/5_lease_lengths.sql"),
    include_str!("../migrations/6_forgetting.sql"),
    include_str!("../migrations/7_due_approvals.sql"),
    include_str!("../migrations/8_lost_tails.sql"),
    include_str!("../migrations/9_erased_texts.sql"),
    include_str!("../migrations/10_store_mark.sql"),
    include_str!("../migrations/11_incarnations.sql"),
    include_str!("../migrations/12_store_retention.sql"),
    include_str!("../migrations/13_transcripts.sql"),
];

/// Removes the time limits of a connection, for one transaction.
const UNLIMITED: &str = "SET LOCAL idle_in_transaction_session_timeout = 0; \
    SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0";

/// Lock of the process that migrates: "BSTP".
const LOCK: i64 = 0x4253_5450;

fn latest_version() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Applies the missing migrations. A user without the right to do so can open a database of this version.
pub(crate) async fn migrate(
    connection: &mut PgConnection,
    place: &DatabaseTarget,
) -> Result<(), OpenError> {
    let refused = |error: sqlx::Error| place.open_error(error);
    // A database of this version needs neither the lock nor the right.
    let found = check(connection, place).await?;
    if found == latest_version() {
        check_rights(connection, place).await?;
        return count_on(connection).await.map_err(refused);
    }
    let mut transaction = connection.begin().await.map_err(refused)?;
    // Migrations of large tables take long, and other processes wait for them.
    sqlx::raw_sql(UNLIMITED).execute(&mut *transaction).await.map_err(refused)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(LOCK)
        .execute(&mut *transaction)
        .await
        .map_err(refused)?;
    // Checked again, because another process may have migrated meanwhile.
    let found = check(&mut transaction, place).await?;
    let run = async {
        if found == 0 {
            sqlx::raw_sql(
                "CREATE SCHEMA IF NOT EXISTS backstop; CREATE TABLE backstop.migrations \
                 (version bigint PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())",
            )
            .execute(&mut *transaction)
            .await?;
        }
        for version in found..latest_version() {
            let text = MIGRATIONS.get(usize::try_from(version).unwrap_or(0)).unwrap_or(&"");
            sqlx::raw_sql(*text).execute(&mut *transaction).await?;
            sqlx::query("INSERT INTO backstop.migrations (version) VALUES ($1)")
                .bind(version + 1)
                .execute(&mut *transaction)
                .await?;
        }
        count_on(&mut transaction).await?;
        transaction.commit().await
    };
    run.await.map_err(|error| match (place.open_error(error), found) {
        (OpenError::NotAllowed { database, .. }, 1..) => {
            OpenError::SchemaOlder { database, found, needed: latest_version() }
        }
        (refused, _) => refused,
    })
}

/// Checks that a database opened for reading has the schema of this version.
pub(crate) async fn of_this_version(
    connection: &mut PgConnection,
    place: &DatabaseTarget,
) -> Result<(), OpenError> {
    let database = || place.database.clone();
    match check(connection, place).await? {
        0 => Err(OpenError::Missing(database())),
        found if found < latest_version() => {
            Err(OpenError::SchemaOlder { database: database(), found, needed: latest_version() })
        }
        _ => Ok(()),
    }
}

/// Checks that the schema belongs to Backstop and is not from a newer version; returns its version, 0 if there is none.
pub(crate) async fn check(
    connection: &mut PgConnection,
    place: &DatabaseTarget,
) -> Result<i64, OpenError> {
    let refused = |error: sqlx::Error| place.open_error(error);
    let encoding: String = sqlx::query_scalar("SELECT current_setting('server_encoding')")
        .fetch_one(&mut *connection)
        .await
        .map_err(refused)?;
    if encoding != "UTF8" {
        let why = format!("its encoding is {encoding}, and has to be UTF8");
        return Err(OpenError::unusable(place.database.clone(), why));
    }
    let (is_ours, tables): (bool, i64) = sqlx::query_as(
        "SELECT coalesce(bool_or(relname = 'migrations'), false), count(*) FROM pg_class \
         WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'backstop')",
    )
    .fetch_one(&mut *connection)
    .await
    .map_err(refused)?;
    if !is_ours {
        return match tables {
            0 => Ok(0),
            _ => Err(OpenError::Foreign(place.database.clone())),
        };
    }
    let found: i64 =
        sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM backstop.migrations")
            .fetch_one(connection)
            .await
            .map_err(|error| match crate::fault::sqlstate(&error).as_deref() {
                // Another program's table with this name.
                Some("42703") => OpenError::Foreign(place.database.clone()),
                _ => place.open_error(error),
            })?;
    if found > latest_version() {
        let database = place.database.clone();
        return Err(OpenError::SchemaNewer { database, found, known: latest_version() });
    }
    Ok(found)
}

/// Checks that this user may write to each table: tables of a newer version need new grants, and a run would otherwise
/// fail at the first of them.
async fn check_rights(
    connection: &mut PgConnection,
    place: &DatabaseTarget,
) -> Result<(), OpenError> {
    let lacking: Option<String> = sqlx::query_scalar(
        "SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class \
         WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'backstop') \
         AND CASE relkind WHEN 'r' THEN relname <> 'migrations' AND NOT (has_table_privilege(oid, 'SELECT') \
         AND has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE') \
         AND has_table_privilege(oid, 'DELETE')) \
         WHEN 'S' THEN relname = 'state_versions' AND NOT has_sequence_privilege(oid, 'USAGE') \
         ELSE false END",
    )
    .fetch_one(connection)
    .await
    .map_err(|error| place.open_error(error))?;
    match lacking {
        None => Ok(()),
        Some(names) => {
            let (user, database) = (place.user.clone(), place.database.clone());
            let source = format!("it may not read and write all of: {names}").into();
            Err(OpenError::NotAllowed { user, database, source })
        }
    }
}

/// Continues the places of events: in a database that was restored on another server, the ids of transactions start
/// again. The place of a removed event counts too, because a cursor may be after it.
async fn count_on(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    // The row is locked before it is read, so that two concurrent openings do this only once.
    sqlx::query(
        "WITH known AS MATERIALIZED (SELECT tx_offset, removed_until FROM backstop.meta \
         WHERE (greatest((SELECT max(place) FROM backstop.events), removed_until) >> 20) + 1 \
         > pg_snapshot_xmax(pg_current_snapshot())::text::bigint + tx_offset FOR UPDATE), \
         behind AS (SELECT (greatest((SELECT max(place) FROM backstop.events), removed_until) >> 20) + 1 \
         - (pg_snapshot_xmax(pg_current_snapshot())::text::bigint + tx_offset) AS by FROM known) \
         UPDATE backstop.meta SET tx_offset = tx_offset + behind.by FROM behind WHERE behind.by > 0",
    )
    .execute(connection)
    .await?;
    Ok(())
}
