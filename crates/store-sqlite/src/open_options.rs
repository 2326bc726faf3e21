use std::path::Path;

use backstop_clock::{Clock, SystemClock};
use backstop_retention::StoreRetention;
use layer0::Timestamp;

use crate::fault::OpenError;
use crate::network_fs::{Probe, file_system_type, network_type};

/// Durability of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// Commits survive the death of the process (WAL, `synchronous = NORMAL`).
    #[default]
    Normal,
    /// Commits survive a power loss: every commit is synced (`synchronous = FULL`).
    Full,
}

/// Options for opening a file.
///
/// ```
/// use backstop_store_sqlite::{Database, Durability, OpenOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("backstop.db");
/// let options = OpenOptions::new().durability(Durability::Full);
/// let database = Database::open_with(&path, options).await?;
/// # database.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct OpenOptions {
    pub(crate) durability: Durability,
    pub(crate) retention: StoreRetention,
    /// Clock of this process, which decides what is old.
    pub(crate) time: fn() -> Timestamp,
    network_fs: bool,
    probe: Probe,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Returns the defaults: [`Durability::Normal`], the retention of [`StoreRetention`], no network file system.
    #[must_use]
    pub fn new() -> Self {
        Self {
            durability: Durability::default(),
            retention: StoreRetention::default(),
            // time of day: what is old is old by it.
            time: || SystemClock.now(),
            network_fs: false,
            probe: file_system_type,
        }
    }

    /// Sets the durability.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the retention of stored data.
    #[must_use]
    pub fn retention(mut self, retention: impl Into<StoreRetention>) -> Self {
        self.retention = retention.into();
        self
    }

    /// Sets whether the file may be on a network file system. SQLite keeps it consistent there only if all its
    /// processes are on one machine and the file system has working locks and shared memory.
    #[must_use]
    pub const fn network_fs(mut self, network_fs: bool) -> Self {
        self.network_fs = network_fs;
        self
    }

    /// Sets the clock, for tests.
    #[doc(hidden)]
    #[must_use]
    pub const fn time(mut self, time: fn() -> Timestamp) -> Self {
        self.time = time;
        self
    }

    /// Sets the detection of file systems, for tests.
    #[doc(hidden)]
    #[must_use]
    pub const fn probe(mut self, probe: fn(&Path) -> Option<String>) -> Self {
        self.probe = probe;
        self
    }

    /// Refuses a path on a network file system, unless the options allow it. The file need not exist.
    ///
    /// # Errors
    ///
    /// [`OpenError::NetworkFileSystem`].
    pub fn check_place(self, path: &Path) -> Result<(), OpenError> {
        if self.network_fs {
            return Ok(());
        }
        match network_type(path, self.probe) {
            Some(file_system) => Err(OpenError::network(path, file_system)),
            None => Ok(()),
        }
    }
}
