//! Rights of a walled program.

mod check;
mod enforcement;
mod grants;
mod host;
mod listed;
mod system;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use check::check;
pub(crate) use enforcement::{Enforcement, RuleKind};
pub(crate) use host::HostRule;
pub(crate) use listed::ListedPaths;
pub(crate) use system::DEVICES;

/// The hosts that a program may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Network {
    /// All hosts that this machine reaches, by any protocol.
    #[default]
    All,
    /// These hosts, by HTTP and by `CONNECT`: a name (`api.example.com`), all names below one (`*.example.com`), or an
    /// address (`192.0.2.7`, `2001:db8::7`).
    Hosts(Vec<String>),
    /// This machine's own loopback, by HTTP and by `CONNECT`.
    Loopback,
    /// No host.
    None,
}

/// The rights of a program. Anything without a rule is as it is without walls.
///
/// Reading includes executing, writing includes reading. `/dev/null`, `/dev/zero`, `/dev/full`, `/dev/random` and
/// `/dev/urandom` are always granted, and with a rule for files also [`Rules::system_folders`].
///
/// ```
/// use std::time::Duration;
///
/// use backstop_environment::{Network, Rules};
///
/// let rules = Rules::new()
///     .network(Network::Hosts(vec!["api.example.com".into(), "*.example.org".into()]))
///     .read(["./data"])
///     .cpu(Duration::from_secs(10))
///     .processes(32);
/// assert!(rules.is_file_walled());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rules {
    /// The hosts that it may reach; all by default.
    pub network: Network,
    /// The files and folders that it may read and execute, including their contents. Links are resolved once, when
    /// walls are built from the rules.
    pub read: Vec<PathBuf>,
    /// The files and folders that it may write, including their contents.
    pub write: Vec<PathBuf>,
    /// The files and folders that other programs write, and may put links into. A listed path that leads through one of
    /// them is granted only if its target is below it.
    pub written_by_others: Vec<PathBuf>,
    /// Whether files are walled even if none are listed.
    pub files: bool,
    /// The base of relative paths; the folder of this process if `None`.
    pub folder: Option<PathBuf>,
    /// Limit for the processor time of each process; counted in whole seconds, rounded up.
    pub cpu: Option<Duration>,
    /// Limit for memory, in MiB: of all processes together with a memory control group, otherwise for the address space
    /// of each.
    pub memory_mib: Option<u64>,
    /// Limit for the number of concurrent processes, including threads.
    pub processes: Option<u64>,
    /// Limit for the size of a file that it writes, in MiB.
    pub file_mib: Option<u64>,
    /// Limit for the kept output, in KiB. The reader of a [`Walled`](crate::Walled)'s pipes enforces it.
    pub output_kib: Option<u64>,
    /// Limit for its run time.
    pub wall: Option<Duration>,
    /// Whether it runs although something cannot be enforced; [`Walls::not_enforced`](crate::Walls::not_enforced) lists
    /// that.
    pub best_effort: bool,
    /// Whether allowed names may resolve to addresses that are not public
    /// ([`is_private`](backstop_process::is_private)).
    pub private: bool,
}

impl Rules {
    /// Creates rules that restrict nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the hosts that the program may reach.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Adds files and folders that it may read.
    #[must_use]
    pub fn read<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.read.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Adds files and folders that it may write.
    #[must_use]
    pub fn write<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.write.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Adds files and folders that other programs write, such as those of other tools of the same agent.
    #[must_use]
    pub fn written_by_others<P: Into<PathBuf>>(
        mut self,
        paths: impl IntoIterator<Item = P>,
    ) -> Self {
        self.written_by_others.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Walls files even if none are listed.
    #[must_use]
    pub const fn files(mut self) -> Self {
        self.files = true;
        self
    }

    /// Sets the base of relative paths.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Limits the processor time of each process.
    #[must_use]
    pub const fn cpu(mut self, most: Duration) -> Self {
        self.cpu = Some(most);
        self
    }

    /// Limits memory, in MiB.
    #[must_use]
    pub const fn memory_mib(mut self, most: u64) -> Self {
        self.memory_mib = Some(most);
        self
    }

    /// Limits the number of concurrent processes and threads.
    #[must_use]
    pub const fn processes(mut self, most: u64) -> Self {
        self.processes = Some(most);
        self
    }

    /// Limits the size of a file that it writes, in MiB.
    #[must_use]
    pub const fn file_mib(mut self, most: u64) -> Self {
        self.file_mib = Some(most);
        self
    }

    /// Limits its kept output, in KiB.
    #[must_use]
    pub const fn output_kib(mut self, most: u64) -> Self {
        self.output_kib = Some(most);
        self
    }

    /// Limits its run time.
    #[must_use]
    pub const fn wall(mut self, most: Duration) -> Self {
        self.wall = Some(most);
        self
    }

    /// Lets it run although something cannot be enforced.
    #[must_use]
    pub const fn best_effort(mut self) -> Self {
        self.best_effort = true;
        self
    }

    /// Lets allowed names resolve to addresses that are not public.
    #[must_use]
    pub const fn private(mut self) -> Self {
        self.private = true;
        self
    }

    /// Returns whether files are walled: whether any of `read`, `write` and `files` is set.
    #[must_use]
    pub fn is_file_walled(&self) -> bool {
        self.files || !self.read.is_empty() || !self.write.is_empty()
    }

    /// Returns the paths that every program with walls around its files may read: enough to start `sh`, `python3` or
    /// `node`, and to verify certificates. `/proc`, `/home`, `/root`, `/tmp`, `/run`, `/var` and the rest of `/etc` are
    /// not included. Paths that do not exist on a machine are omitted there.
    #[must_use]
    pub const fn system_folders() -> &'static [&'static str] {
        system::FOLDERS
    }

    /// Returns a path of the rules as an absolute path.
    pub(crate) fn absolute(&self, path: &Path) -> PathBuf {
        let path = match &self.folder {
            Some(folder) => folder.join(path),
            None => path.to_owned(),
        };
        std::path::absolute(&path).unwrap_or(path)
    }
}
