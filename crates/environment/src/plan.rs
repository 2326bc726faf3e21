//! What the helper is told, and what it reports: JSON over the control channel.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the outer helper is told first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outer {
    /// To try what this machine can do.
    Probe,
    /// To make what the program lives in.
    Run(Surroundings),
}

/// What a program lives in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Surroundings {
    /// Does it get namespaces of users and processes?
    pub(crate) namespaces: bool,
    /// Does it get a network of its own?
    pub(crate) network: bool,
    /// Is there a way out, through a proxy?
    pub(crate) listens: bool,
    /// What it writes, where all else is mounted read-only.
    pub(crate) written: Option<Vec<PathBuf>>,
    /// The control groups that it is in, which are removed at its end.
    pub(crate) groups: Vec<GroupPlan>,
}

/// A control group that the parent has made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupPlan {
    pub(crate) folder: PathBuf,
    /// The folder that it is removed from.
    pub(crate) home: PathBuf,
}

/// What the inner helper is told: the walls, and what runs within. The program's standard input comes with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inner {
    pub(crate) program: ProgramPlan,
    /// Is it process 1 of a namespace?
    pub(crate) is_init: bool,
    pub(crate) limits: LimitsPlan,
    pub(crate) landlock: Option<LandlockPlan>,
    pub(crate) seccomp: Option<SeccompPlan>,
}

/// What runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgramPlan {
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) folder: PathBuf,
    pub(crate) variables: BTreeMap<String, String>,
}

/// Limits of each process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitsPlan {
    pub(crate) cpu_seconds: Option<u64>,
    pub(crate) address_space_bytes: Option<u64>,
    pub(crate) file_bytes: Option<u64>,
    /// Of the user in its namespace, with the helper.
    pub(crate) processes: Option<u64>,
}

/// What Landlock holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LandlockPlan {
    pub(crate) files: Option<FilesPlan>,
    /// Are signals and abstract sockets held within?
    pub(crate) scopes: bool,
    /// Is this TCP port, of whatever host, the only one to connect to, and none to listen on?
    pub(crate) only_port: Option<u16>,
}

/// Which files there are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FilesPlan {
    /// Does Landlock know of calls to devices (ABI 5)?
    pub(crate) device_calls: bool,
    /// These and the written ones lead through no links.
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    /// Those of the system, which may be missing.
    pub(crate) system: Vec<PathBuf>,
}

/// Which system calls there are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeccompPlan {
    pub(crate) sockets: Sockets,
    /// Are changes of files not told of? They would be of files that are not granted too.
    pub(crate) hides_changes: bool,
    /// Is there no memory but that of an address space?
    pub(crate) one_memory: bool,
}

/// Which sockets can be made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Sockets {
    #[default]
    All,
    /// All but local ones, which lead to what other programs do.
    AllButLocal,
    /// Of the internet's protocols, but raw ones.
    Internet,
    /// TCP alone.
    Tcp,
    None,
}

/// What a helper reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// What this machine can do.
    Probed(Probed),
    /// The inner helper waits for what it is told. The listener of the proxy comes with it, where there is one.
    Ready,
    /// A mechanism does not do what the probe saw it do.
    Failed { mechanism: String, detail: String },
    /// The program runs.
    Started,
    /// The program could not be started.
    NotStarted { detail: String, is_denied: bool },
    /// The program has ended.
    Ended { code: Option<i32>, signal: Option<i32>, cpu_ms: u64 },
    /// Everything has ended; what the control groups held.
    Closed { forks_refused: u64, killed_for_memory: u64 },
}

/// What was tried: what kept it from working, where something did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probed {
    pub(crate) landlock_abi: u32,
    pub(crate) landlock: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) network: Option<String>,
    pub(crate) process: Option<String>,
    pub(crate) seccomp: Option<String>,
    pub(crate) limits: Option<String>,
}
