//! Places for checks of workers: a server, and a proxy before it.

use std::sync::OnceLock;

use backstop_store_postgres::Database;
use backstop_testkit::{Pooler, PostgresServer};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection, Postgres, Transaction};

use crate::support::open;

/// Declares checks, functions that take a [`Place`], as two tests each: `direct`, at the server, and `pooled`, at a
/// proxy that shares its connections, one transaction at a time.
macro_rules! direct_and_pooled_checks {
    [$($check:ident),* $(,)?] => {
        mod direct {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $check() {
                let Some(place) = $crate::place::Place::direct() else { return };
                super::$check(place).await;
            })*
        }

        mod pooled {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $check() {
                let Some(place) = $crate::place::Place::pooled() else { return };
                super::$check(place).await;
            })*
        }
    };
}
pub(crate) use direct_and_pooled_checks;

/// A server, and how it is reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    server: &'static PostgresServer,
    pooler: Option<&'static Pooler>,
}

impl Place {
    /// Returns the server itself. `None`, with a notice, if there is none.
    pub(crate) fn direct() -> Option<Self> {
        Some(Self { server: PostgresServer::shared()?, pooler: None })
    }

    /// Returns the proxy before it. `None`, with a notice, if there is none.
    pub(crate) fn pooled() -> Option<Self> {
        static POOLER: OnceLock<Option<Pooler>> = OnceLock::new();
        let server = PostgresServer::shared()?;
        let pooler = POOLER.get_or_init(|| server.pooler()).as_ref()?;
        Some(Self { server, pooler: Some(pooler) })
    }

    /// Opens a new database; returns its URL at this place too.
    pub(crate) async fn fresh(self) -> (Database, String) {
        let url = self.server.database().await;
        let url = self.pooler.map_or_else(|| url.clone(), |pooler| pooler.through(&url));
        let database = open(&url).await;
        let is_direct = database.server().await.unwrap().is_direct;
        assert_eq!(is_direct, self.pooler.is_none(), "{self:?}");
        (database, url)
    }
}

/// Connects as an application does that may be behind a proxy.
pub(crate) async fn connect(url: &str) -> PgConnection {
    let options: PgConnectOptions = url.parse().unwrap();
    options.extra_float_digits(None).statement_cache_capacity(0).connect().await.unwrap()
}

/// Begins a transaction as such an application does: statements of others go by the names of its own.
pub(crate) async fn begin(connection: &mut PgConnection) -> Transaction<'_, Postgres> {
    let mut transaction = connection.begin().await.unwrap();
    sqlx::raw_sql("DEALLOCATE ALL").execute(&mut *transaction).await.unwrap();
    transaction
}
