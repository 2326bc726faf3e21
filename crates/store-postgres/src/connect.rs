//! How connections are made.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Postgres, Row, Transaction};

/// What connections say of themselves in `pg_stat_activity`.
const APPLICATION: &str = "backstop";

/// How the server is reached. It holds the password, and never shows it.
#[derive(Clone)]
pub(crate) struct Connect {
    options: PgConnectOptions,
    files: Vec<KeyFile>,
    /// Whether a proxy shares connections of the server between its clients, one transaction at a time.
    is_shared: bool,
    limits: TimeLimits,
}

/// The default lease of a process.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// How long a statement, a lock and a silent client may keep others waiting, in milliseconds. A process that was stopped
/// inside a transaction holds its locks for no longer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimits {
    waiting: u128,
    statement: u128,
}

impl TimeLimits {
    /// Returns limits that are below a lease.
    fn below(lease: Duration) -> Self {
        let at_most = |share: Duration, most: Duration| share.clamp(LEAST, most).as_millis();
        Self {
            waiting: at_most(lease / 3, MOST_WAITING),
            statement: at_most(lease * 2 / 3, MOST_STATEMENT),
        }
    }

    /// Returns the statements that set up a connection, or one transaction. Statements of the store are short: the
    /// server would compile one for longer than it runs.
    fn statements(self, set: &str) -> String {
        let Self { waiting, statement } = self;
        format!(
            "{set} jit = off; {set} idle_in_transaction_session_timeout = {waiting}; \
             {set} lock_timeout = {waiting}; {set} statement_timeout = {statement}"
        )
    }
}

/// The bounds of what follows from a lease.
const LEAST: Duration = Duration::from_secs(1);
const MOST_WAITING: Duration = Duration::from_secs(5);
const MOST_STATEMENT: Duration = Duration::from_secs(10);

/// A file with certificates or a key.
#[derive(Debug, Clone)]
pub(crate) struct KeyFile {
    /// The parameter that names it.
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
}

impl Connect {
    pub(crate) fn new(options: PgConnectOptions, files: Vec<KeyFile>) -> Self {
        // Proxies refuse settings that they do not know; no number with a fraction is read.
        let options = options.application_name(APPLICATION).extra_float_digits(None);
        Self {
            options: options.disable_statement_logging(),
            files,
            is_shared: false,
            limits: TimeLimits::below(LEASE),
        }
    }

    pub(crate) const fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// Returns the files that a connection with TLS reads.
    pub(crate) fn files(&self) -> &[KeyFile] {
        &self.files
    }

    pub(crate) const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Limits what statements and silent clients hold up, by how long a lease lasts.
    pub(crate) fn limit_by(&mut self, lease: Duration) {
        self.limits = TimeLimits::below(lease);
    }

    pub(crate) const fn limits(&self) -> TimeLimits {
        self.limits
    }

    /// Looks whether a proxy shares connections, and sees to it that those that are made then fit.
    ///
    /// # Errors
    ///
    /// Why there is no connection.
    pub(crate) async fn look(&mut self) -> Result<(), sqlx::Error> {
        self.is_shared = !is_direct(self).await?;
        if self.is_shared {
            // Statements that are prepared are found again in the same transaction alone.
            self.options = self.options.clone().statement_cache_capacity(0);
        }
        Ok(())
    }

    /// Begins a transaction with this statement on a connection that was made here.
    pub(crate) async fn begin<'a>(
        &self,
        connection: &'a mut PgConnection,
        statement: &'static str,
    ) -> Result<Transaction<'a, Postgres>, sqlx::Error> {
        let mut transaction = connection.begin_with(statement).await?;
        if self.is_shared {
            forget_statements(&mut transaction, self.limits).await?;
        }
        Ok(transaction)
    }

    pub(crate) async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        if !self.is_shared {
            set_up(&mut connection, self.limits).await?;
        }
        Ok(connection)
    }
}

/// Sets up a connection that no other client uses.
pub(crate) async fn set_up(
    connection: &mut PgConnection,
    limits: TimeLimits,
) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(limits.statements("SET"))).execute(connection).await?;
    Ok(())
}

/// Takes away the statements that other clients of the proxy prepared on the connection of the server that this
/// transaction has: they go by the same names. What is set is set for the transaction.
pub(crate) async fn forget_statements(
    connection: &mut PgConnection,
    limits: TimeLimits,
) -> Result<(), sqlx::Error> {
    let statements = format!("DEALLOCATE ALL; {}", limits.statements("SET LOCAL"));
    sqlx::raw_sql(AssertSqlSafe(statements)).execute(connection).await?;
    Ok(())
}

/// How often it is looked whether a proxy shares connections: between two looks, others may use those that it has.
const LOOKS: usize = 4;

/// Does each connection lead to one process of the server? A proxy that shares connections gives the next that asks
/// the one that was just used, or the one that was not for the longest time.
///
/// No transaction is held meanwhile: where as many processes look at once as the proxy has connections, each would
/// wait for another one of them.
async fn is_direct(connect: &Connect) -> Result<bool, sqlx::Error> {
    let mut connection = connect.options.connect().await?;
    let mut other = connect.options.connect().await?;
    let first = process(&mut connection).await?;
    let others = process(&mut other).await?;
    let mut is_direct = first != others;
    for _ in 0..LOOKS {
        // Asked twice in a row, one is not shown the same process again by a proxy that goes through those that it has.
        is_direct = is_direct
            && first == process(&mut connection).await?
            && first == process(&mut connection).await?
            && others == process(&mut other).await?;
    }
    other.close().await?;
    connection.close().await?;
    Ok(is_direct)
}

/// Asks for the process of the server. It is asked without a statement that is prepared.
async fn process(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(connection).await?.try_get(0)
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").field("host", &self.options.get_host()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_testkit::PostgresServer;

    /// Spec: J2. A process that was stopped inside a transaction, on its own connection or on one of a proxy.
    #[tokio::test]
    async fn silent_transactions_end() {
        let Some(server) = PostgresServer::shared() else { return };
        let options: PgConnectOptions = server.database().await.parse().unwrap();
        for is_shared in [false, true] {
            let mut connect = Connect::new(options.clone(), Vec::new());
            connect.limit_by(Duration::from_secs(3));
            connect.is_shared = is_shared;
            let (mut silent, mut other) =
                (connect.connect().await.unwrap(), connect.connect().await.unwrap());
            let mut transaction = connect.begin(&mut silent, "BEGIN").await.unwrap();
            let lock = "SELECT pg_advisory_xact_lock(7)";
            sqlx::raw_sql(lock).execute(&mut *transaction).await.unwrap();
            // It is waited for as long as the other one may be silent; at the second try it is gone.
            let mut is_held = true;
            for _ in 0..2 {
                let mut waiting = connect.begin(&mut other, "BEGIN").await.unwrap();
                is_held = sqlx::raw_sql(lock).execute(&mut *waiting).await.is_err();
                waiting.rollback().await.unwrap();
            }
            assert!(!is_held, "shared: {is_shared}");
        }
    }

    #[test]
    fn limits_are_below_the_lease() {
        for seconds in [3, 15, 60, 3_600] {
            let limits = TimeLimits::below(Duration::from_secs(seconds));
            assert!(limits.waiting < limits.statement);
            assert!(limits.statement < u128::from(seconds) * 1_000);
        }
    }
}
