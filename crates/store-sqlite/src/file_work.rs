//! Operations on the whole file: backup and vacuum.

use std::io;
use std::path::{Path, PathBuf};

use backstop_error_store::StoreError;
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use thiserror::Error;

use crate::database::Database;
use crate::fault::Fault;
use crate::forget::MarkClean;
use crate::own_files::parent_folder;

/// Error of a backup.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackupError {
    /// There is a file of this name; it was left alone.
    ///
    /// Retry: never. Effect: none.
    #[error("`{}` is there already", .0.display())]
    Exists(PathBuf),
    /// The file cannot be written.
    ///
    /// Retry: never. Effect: none.
    #[error("`{}` cannot be written", path.display())]
    #[non_exhaustive]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is the name of one of the database's own files, such as its write-ahead log.
    ///
    /// Retry: never. Effect: none.
    #[error("`{}` belongs to the store itself", .0.display())]
    OwnFile(PathBuf),
    /// The database cannot be read.
    ///
    /// Retry: as the store's error says. Effect: none.
    #[error("the store failed")]
    Store(#[from] StoreError),
}

impl Failure for BackupError {
    fn facts(&self) -> Facts {
        match self {
            Self::Exists(_) | Self::OwnFile(_) => Facts::never(code::INPUT_INVALID, Effect::None),
            Self::File { .. } => Facts::never(code::STORE_FAILED, Effect::None),
            Self::Store(error) => error.facts().with_effect(Effect::None),
        }
    }
}

/// Size of the database in bytes before and after a vacuum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vacuumed {
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

impl Database {
    /// Copies a consistent snapshot of the database to a new file, which only its owner may read; returns its size in
    /// bytes. Writers may continue meanwhile.
    ///
    /// # Errors
    ///
    /// Any variant of [`BackupError`]. The file is complete or absent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no file behind.
    pub async fn backup(&self, file: impl AsRef<Path>) -> Result<u64, BackupError> {
        let path = file.as_ref();
        let failed = |source| BackupError::File { path: path.to_owned(), source };
        if path.symlink_metadata().is_ok() {
            return Err(BackupError::Exists(path.to_owned()));
        }
        if self.owns(path) {
            return Err(BackupError::OwnFile(path.to_owned()));
        }
        let folder = parent_folder(path);
        std::fs::metadata(folder.join(".")).map_err(failed)?;
        // The original message has the name of the temporary file, which the user does not know.
        let unnamed = |error: io::Error| failed(error.kind().into());
        // Readable only by its owner from the first byte on, under a random name.
        let copy = tempfile::NamedTempFile::new_in(folder).map_err(unnamed)?;
        let Some(name) = copy.path().to_str() else {
            return Err(failed(io::Error::other("its path is no UTF-8")));
        };
        let mut connection = self.connect_to_write().await?;
        let written = sqlx::query("VACUUM INTO $1").bind(name).execute(&mut connection).await;
        let _ = connection.close().await;
        written.map_err(|error| StoreError::from(Fault::from(error)))?;
        copy.as_file().sync_all().map_err(failed)?;
        let size = copy.path().metadata().map_err(failed)?.len();
        copy.persist_noclobber(path).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => BackupError::Exists(path.to_owned()),
            _ => failed(error.error),
        })?;
        std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        Ok(size)
    }

    /// Returns the space of deleted rows to the file system, and leaves no copies of the rows in the file. Writers wait
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the database is either unchanged or smaller.
    pub async fn vacuum(&self) -> Result<Vacuumed, StoreError> {
        let before = self.size();
        let mut connection = self.connect_to_write().await?;
        let done = sqlx::query("VACUUM").execute(&mut connection).await;
        let _ = connection.close().await;
        done.map_err(Fault::from)?;
        if let Some(writer) = self.writer() {
            writer.perform(MarkClean).await?;
        }
        self.checkpoint().await?;
        Ok(Vacuumed { before, after: self.size() })
    }

    /// Moves the write-ahead log into the file, except parts that readers still need.
    pub(crate) async fn checkpoint(&self) -> Result<(), StoreError> {
        let mut connection = self.connect_to_write().await?;
        let done = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await;
        let _ = connection.close().await;
        done.map_err(Fault::from)?;
        Ok(())
    }

    async fn connect_to_write(&self) -> Result<SqliteConnection, StoreError> {
        let options = self.readers().connect_options().as_ref().clone();
        let connection = options.pragma("query_only", "off").connect().await;
        Ok(connection.map_err(Fault::from)?)
    }

    fn size(&self) -> u64 {
        let mut wal = self.path().as_os_str().to_owned();
        wal.push("-wal");
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        size(self.path()) + size(Path::new(&wal))
    }
}
