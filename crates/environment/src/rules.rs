//! What a walled program may do.

mod check;
mod host;
mod listed;
mod system;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use check::check;
pub(crate) use host::HostRule;
pub(crate) use listed::Listed;
pub(crate) use system::DEVICES;

/// Which hosts a program reaches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Network {
    /// All that this machine reaches, by any protocol.
    #[default]
    All,
    /// These, by HTTP and by `CONNECT`: a name (`api.example.com`), all names below one (`*.example.com`), or an
    /// address (`192.0.2.7`, `2001:db8::7`).
    Hosts(Vec<String>),
    /// This machine's own loopback, by HTTP and by `CONNECT`.
    Loopback,
    /// None.
    None,
}

/// What a program may do, where something is stated: what is not, is left as it is without walls.
///
/// Reading includes executing, writing includes reading. `/dev/null`, `/dev/zero`, `/dev/full`, `/dev/random` and
/// `/dev/urandom` are always there, and beside stated files those of [`Rules::system_folders`].
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
    /// Which hosts it reaches; all where nothing is stated.
    pub network: Network,
    /// Which files and folders it reads and executes, with all below them. Links are followed when walls are made of
    /// the rules, and not again.
    pub read: Vec<PathBuf>,
    /// Which files and folders it writes, with all below them.
    pub write: Vec<PathBuf>,
    /// Which files and folders other programs write, which may have put links there. A listed path that leads through
    /// one of them is granted as long as it leads to what is below it.
    pub written_by_others: Vec<PathBuf>,
    /// Are files walled even where none are listed?
    pub files: bool,
    /// What relative paths are below; the folder of this process where it is `None`.
    pub folder: Option<PathBuf>,
    /// The most time of a processor that each process may use; counted in whole seconds, rounded up.
    pub cpu: Option<Duration>,
    /// The most memory, in MiB: of all processes together where there is a memory control group, otherwise the
    /// address space of each.
    pub memory_mib: Option<u64>,
    /// The most processes at a time, threads included.
    pub processes: Option<u64>,
    /// The largest file it may write, in MiB.
    pub file_mib: Option<u64>,
    /// The most that is kept of what it prints, in KiB. What reads the pipes of a [`Walled`](crate::Walled) holds it.
    pub output_kib: Option<u64>,
    /// The longest it may run.
    pub wall: Option<Duration>,
    /// Does it run where something cannot be enforced? [`Walls::not_enforced`](crate::Walls::not_enforced) tells what.
    pub best_effort: bool,
    /// May allowed names lead to addresses that are not public ([`is_private`](backstop_process::is_private))?
    pub private: bool,
}

impl Rules {
    /// States nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// States which hosts the program reaches.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Adds files and folders that it reads.
    #[must_use]
    pub fn read<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.read.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Adds files and folders that it writes.
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

    /// Walls files even where none are listed.
    #[must_use]
    pub const fn files(mut self) -> Self {
        self.files = true;
        self
    }

    /// States what relative paths are below.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Limits the time of a processor that each process may use.
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

    /// Limits how many processes and threads there are at a time.
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

    /// Limits what is kept of its output, in KiB.
    #[must_use]
    pub const fn output_kib(mut self, most: u64) -> Self {
        self.output_kib = Some(most);
        self
    }

    /// Limits how long it may run.
    #[must_use]
    pub const fn wall(mut self, most: Duration) -> Self {
        self.wall = Some(most);
        self
    }

    /// Lets it run where something cannot be enforced.
    #[must_use]
    pub const fn best_effort(mut self) -> Self {
        self.best_effort = true;
        self
    }

    /// Lets allowed names lead to addresses that are not public.
    #[must_use]
    pub const fn private(mut self) -> Self {
        self.private = true;
        self
    }

    /// Are files walled: is anything of `read`, `write` and `files` stated?
    #[must_use]
    pub fn is_file_walled(&self) -> bool {
        self.files || !self.read.is_empty() || !self.write.is_empty()
    }

    /// Returns what every program with walls around its files reads: what it takes to start `sh`, `python3` or
    /// `node`, and to check certificates. `/proc`, `/home`, `/root`, `/tmp`, `/run`, `/var` and the rest of `/etc` are
    /// not among it. Those that a machine has not are left out there.
    #[must_use]
    pub const fn system_folders() -> &'static [&'static str] {
        system::FOLDERS
    }

    /// Returns a path of the rules as it is from anywhere.
    pub(crate) fn absolute(&self, path: &Path) -> PathBuf {
        let path = match &self.folder {
            Some(folder) => folder.join(path),
            None => path.to_owned(),
        };
        std::path::absolute(&path).unwrap_or(path)
    }
}
