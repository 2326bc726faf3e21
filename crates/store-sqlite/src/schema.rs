//! Migration of a database to the schema of this version.

use std::path::Path;

use sqlx::{Connection, SqliteConnection};

use crate::fault::{OpenError, opening};

/// The migrations, oldest first; `PRAGMA user_version` is the number of those applied.
const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/1_log_and_errors.sql"),
    include_str!("../migrations/2_results.sql"),
    include_str!("../migrations/3_durable_runs.sql"),
    include_str!("../migrations/4_append_only.sql"),
    include_str!("../migrations/5_claims_and_inbox.sql"),
    include_str!("../migrations/6_retention.sql"),
    include_str!("../migrations/7_lists.sql"),
    include_str!("../migrations/8_salts.sql"),
    include_str!("../migrations/9_one_statement.sql"),
    include_str!("../migrations/10_labels_and_expiry.sql"),
    include_str!("../migrations/11_run_lists.sql"),
    include_str!("../migrations/12_settlements.sql"),
    include_str!("../migrations/13_trees.sql"),
    include_str!("../migrations/14_state.sql"),
    include_str!("../migrations/15_subscriptions.sql"),
    include_str!("../migrations/16_start_keys.sql"),
    include_str!("../migrations/17_removed_runs.sql"),
    include_str!("../migrations/18_forgetting.sql"),
    include_str!("../migrations/19_told_too_late.sql"),
    include_str!("../migrations/20_lost_tails.sql"),
    include_str!("../migrations/21_erased_texts.sql"),
    include_str!("../migrations/22_store_mark.sql"),
    include_str!("../migrations/23_incarnations.sql"),
    include_str!("../migrations/24_store_retention.sql"),
    include_str!("../migrations/25_transcripts.sql"),
];

/// Application id of Backstop's files: "BSTP".
const APPLICATION_ID: i64 = 0x4253_5450;

fn latest_version() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Applies the missing migrations.
pub(crate) async fn migrate(
    connection: &mut SqliteConnection,
    path: &Path,
) -> Result<(), OpenError> {
    let unreadable = |source: sqlx::Error| opening(path, source);
    // A database of this version needs no lock.
    if check(connection, path).await? == latest_version() {
        return Ok(());
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(unreadable)?;
    // Read in the transaction, because another process may be migrating the same new file.
    let version = read_version(&mut transaction, path).await?;
    if version < latest_version() {
        for migration in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
            sqlx::raw_sql(*migration).execute(&mut *transaction).await.map_err(unreadable)?;
        }
        // PRAGMA takes no parameters; the numbers are constants.
        let mark = format!(
            "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {}",
            latest_version()
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(mark))
            .execute(&mut *transaction)
            .await
            .map_err(unreadable)?;
    }
    transaction.commit().await.map_err(unreadable)
}

/// Checks that the database belongs to Backstop and is not from a newer version; returns its version, 0 for an empty
/// file.
pub(crate) async fn check(
    connection: &mut SqliteConnection,
    path: &Path,
) -> Result<i64, OpenError> {
    let mut transaction = connection.begin().await.map_err(|error| opening(path, error))?;
    read_version(&mut transaction, path).await
}

async fn read_version(connection: &mut SqliteConnection, path: &Path) -> Result<i64, OpenError> {
    let unreadable = |source: sqlx::Error| opening(path, source);
    let mut number = async |pragma: &'static str| {
        sqlx::query_scalar::<_, i64>(pragma).fetch_one(&mut *connection).await.map_err(unreadable)
    };
    let version = number("PRAGMA user_version").await?;
    let application = number("PRAGMA application_id").await?;
    let tables = number("SELECT count(*) FROM sqlite_master").await?;
    if application != APPLICATION_ID && (tables > 0 || version > 0) {
        return Err(OpenError::Foreign(path.to_owned()));
    }
    if version > latest_version() {
        return Err(OpenError::SchemaNewer {
            path: path.to_owned(),
            found: version,
            known: latest_version(),
        });
    }
    Ok(version)
}
