//! Connections to the server.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Postgres, Row, Transaction};

/// Application name of connections in `pg_stat_activity`.
const APPLICATION: &str = "backstop";

/// The way to connect to the server. It contains the password, and never shows it.
#[derive(Clone)]
pub(crate) struct Connect {
    options: PgConnectOptions,
    files: Vec<KeyFile>,
    /// Whether a proxy shares the server's connections between its clients, one transaction at a time.
    is_shared: bool,
    limits: TimeLimits,
}

/// The default lease of a process.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// Time limits of statements, locks and idle transactions, in milliseconds. A process that was stopped in a transaction
/// does not hold its locks for longer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimits {
    waiting: u128,
    statement: u128,
}

impl TimeLimits {
    /// Returns limits that are shorter than a lease.
    fn below(lease: Duration) -> Self {
        let at_most = |share: Duration, most: Duration| share.clamp(LEAST, most).as_millis();
        Self {
            waiting: at_most(lease / 3, MOST_WAITING),
            statement: at_most(lease * 2 / 3, MOST_STATEMENT),
        }
    }

    /// Returns the statements that set up a connection or one transaction. Just-in-time compilation is off: it would
    /// take longer than the store's short statements.
    fn statements(self, set: &str) -> String {
        let Self { waiting, statement } = self;
        format!(
            "{set} jit = off; {set} idle_in_transaction_session_timeout = {waiting}; \
             {set} lock_timeout = {waiting}; {set} statement_timeout = {statement}"
        )
    }
}

/// Bounds of the limits that are derived from a lease.
const LEAST: Duration = Duration::from_secs(1);
const MOST_WAITING: Duration = Duration::from_secs(5);
const MOST_STATEMENT: Duration = Duration::from_secs(10);

/// A file with certificates or a key.
#[derive(Debug, Clone)]
pub(crate) struct KeyFile {
    /// The parameter with its path.
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
}

impl Connect {
    pub(crate) fn new(options: PgConnectOptions, files: Vec<KeyFile>) -> Self {
        // Proxies refuse unknown settings; the precision of floats is not set, because none is read.
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

    /// Returns the files that a TLS connection reads.
    pub(crate) fn files(&self) -> &[KeyFile] {
        &self.files
    }

    pub(crate) const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Sets the time limits of statements and idle transactions for a lease.
    pub(crate) fn limit_by(&mut self, lease: Duration) {
        self.limits = TimeLimits::below(lease);
    }

    pub(crate) const fn limits(&self) -> TimeLimits {
        self.limits
    }

    /// Detects whether a proxy shares connections, and adapts later connections.
    ///
    /// # Errors
    ///
    /// The error of the connection.
    pub(crate) async fn look(&mut self) -> Result<(), sqlx::Error> {
        self.is_shared = !is_direct(self).await?;
        if self.is_shared {
            // A prepared statement is available only in the same transaction.
            self.options = self.options.clone().statement_cache_capacity(0);
        }
        Ok(())
    }

    /// Begins a transaction with this statement on a connection from [`Connect::connect`].
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

/// Removes the statements that other clients of the proxy prepared on this transaction's server connection, because
/// they have the same names. Settings apply only to the transaction.
pub(crate) async fn forget_statements(
    connection: &mut PgConnection,
    limits: TimeLimits,
) -> Result<(), sqlx::Error> {
    let statements = format!("DEALLOCATE ALL; {}", limits.statements("SET LOCAL"));
    sqlx::raw_sql(AssertSqlSafe(statements)).execute(connection).await?;
    Ok(())
}

/// Number of checks whether a proxy shares connections: between two checks, other clients may use its connections.
const LOOKS: usize = 4;

/// Returns whether each connection has its own process of the server.
///
/// A proxy that shares connections assigns the next client the connection that was used last, or the one that was idle
/// for longest.
///
/// The checks hold no transaction: if as many processes check at once as the proxy has connections, each would wait for
/// another's connection.
async fn is_direct(connect: &Connect) -> Result<bool, sqlx::Error> {
    let mut connection = connect.options.connect().await?;
    let mut other = connect.options.connect().await?;
    let first = process(&mut connection).await?;
    let others = process(&mut other).await?;
    let mut is_direct = first != others;
    for _ in 0..LOOKS {
        // Asked twice in a row, because a proxy that rotates its connections does not return the same process again.
        is_direct = is_direct
            && first == process(&mut connection).await?
            && first == process(&mut connection).await?
            && others == process(&mut other).await?;
    }
    other.close().await?;
    connection.close().await?;
    Ok(is_direct)
}

/// Returns the process id of the server, without a prepared statement.
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
            // The wait lasts as long as the other transaction may be idle; at the second try it is gone.
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
