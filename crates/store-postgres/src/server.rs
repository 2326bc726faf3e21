use backstop_error_store::StoreError;

use crate::database::Database;
use crate::fault::Fault;
use crate::open_error::OpenError;
use crate::options::Options;

/// Properties of a database's server: the durability of commits, and the kind of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// Version, such as `15.18`.
    pub version: String,
    /// Its setting `synchronous_commit`: with `off`, a crash loses the last acknowledged commits.
    pub synchronous_commit: String,
    /// Number of its standby servers, as far as this user may see them.
    pub standbys: u64,
    /// Whether each connection has its own process of the server. Behind a proxy that shares connections, the death of
    /// a process is detected only by its lease.
    pub is_direct: bool,
}

impl Database {
    /// Returns whether each connection has its own process of the server, as [`ServerInfo::is_direct`]. A schema is neither
    /// needed nor created.
    ///
    /// # Errors
    ///
    /// Any variant of [`OpenError`] that is an error of the connection.
    pub async fn is_direct(mut options: Options) -> Result<bool, OpenError> {
        let place = options.place();
        options.connect.look().await.map_err(|error| place.open_error(error))?;
        Ok(!options.connect.is_shared())
    }

    /// Reads the properties of the server.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    pub async fn server(&self) -> Result<ServerInfo, StoreError> {
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
        Ok(ServerInfo { version, synchronous_commit, standbys, is_direct })
    }
}
