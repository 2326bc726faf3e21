//! How connections are made.

use std::fmt;
use std::path::PathBuf;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection, Postgres, Row, Transaction};

/// What connections say of themselves in `pg_stat_activity`.
const APPLICATION: &str = "backstop";

/// How the server is reached. It holds the password, and never shows it.
#[derive(Clone)]
pub(crate) struct Connect {
    options: PgConnectOptions,
    files: Vec<KeyFile>,
    /// Does a proxy share connections of the server between its clients, one transaction at a time?
    is_shared: bool,
}

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
        Self { options: options.disable_statement_logging(), files, is_shared: false }
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
            forget_statements(&mut transaction).await?;
        }
        Ok(transaction)
    }

    pub(crate) async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        if !self.is_shared {
            set_up(&mut connection).await?;
        }
        Ok(connection)
    }
}

/// Sets up a connection that no other client uses. Statements of the store are short: the server would compile one
/// for longer than it runs.
pub(crate) async fn set_up(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql("SET jit = off").execute(connection).await?;
    Ok(())
}

/// Takes away the statements that other clients of the proxy prepared on the connection of the server that this
/// transaction has: they go by the same names. What is set is set for the transaction.
pub(crate) async fn forget_statements(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql("DEALLOCATE ALL; SET LOCAL jit = off").execute(connection).await?;
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
