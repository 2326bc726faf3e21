use backstop_error_store::StoreError;

use crate::database::Database;
use crate::fault::Fault;
use crate::open_error::OpenError;
use crate::options::Options;

/// What is known of the server of a database: how it keeps what is acknowledged, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Server {
    /// Its version, such as `15.18`.
    pub version: String,
    /// Its setting `synchronous_commit`: `off` loses what was acknowledged last when it crashes.
    pub synchronous_commit: String,
    /// How many standby servers it sends to, as far as this user may see them.
    pub standbys: u64,
    /// Does each connection have a process of the server to itself? Behind a proxy that shares connections, a
    /// process that died is known by its lease alone.
    pub is_direct: bool,
}

impl Database {
    /// Looks whether each connection has a process of the server to itself, as [`Server::is_direct`] says it. There
    /// need be no schema, and none is made.
    ///
    /// # Errors
    ///
    /// Any variant of [`OpenError`] that says why there is no connection.
    pub async fn is_direct(mut options: Options) -> Result<bool, OpenError> {
        let place = options.place();
        options.connect.look().await.map_err(|error| place.refused(error))?;
        Ok(!options.connect.is_shared())
    }

    /// Asks the server how it keeps what is acknowledged, and looks how it is reached.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    pub async fn server(&self) -> Result<Server, StoreError> {
        let connect = &self.options().connect;
        let mut connection = connect.connect().await.map_err(Fault::from)?;
        let mut transaction = connect.begin(&mut connection, "BEGIN").await.map_err(Fault::from)?;
        let (version, synchronous_commit, standbys): (String, String, i64) = sqlx::query_as(
            "SELECT split_part(current_setting('server_version'), ' ', 1), \
             current_setting('synchronous_commit'), (SELECT count(*) FROM pg_stat_replication)",
        )
        .fetch_one(&mut *transaction)
        .await
        .map_err(Fault::from)?;
        transaction.commit().await.map_err(Fault::from)?;
        let is_direct = !connect.is_shared();
        let standbys = u64::try_from(standbys).unwrap_or(0);
        Ok(Server { version, synchronous_commit, standbys, is_direct })
    }
}
