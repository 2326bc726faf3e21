//! Messages to and from the helper: JSON over the control channel.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The first message to the outer helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outer {
    /// Probe the mechanisms of this machine.
    Probe,
    /// Set up the surroundings of a program.
    Run(IsolationPlan),
}

/// The surroundings of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IsolationPlan {
    /// Whether it gets user and process namespaces.
    pub(crate) namespaces: bool,
    /// Whether it gets a separate network.
    pub(crate) network: bool,
    /// Whether it has a way out, through a proxy.
    pub(crate) listens: bool,
    /// The paths that it writes, if everything else is mounted read-only.
    pub(crate) written: Option<Vec<PathBuf>>,
    /// Its control groups, which are removed at its end.
    pub(crate) groups: Vec<GroupPlan>,
}

/// A control group that the parent has created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupPlan {
    pub(crate) folder: PathBuf,
    /// The parent folder, from which the group is removed.
    pub(crate) home: PathBuf,
}

/// The message to the inner helper: the walls, and the program. The program's standard input is sent with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InnerPlan {
    pub(crate) program: ProgramPlan,
    /// Whether it is process 1 of a namespace.
    pub(crate) is_init: bool,
    pub(crate) limits: LimitsPlan,
    pub(crate) landlock: Option<LandlockPlan>,
    pub(crate) seccomp: Option<SeccompPlan>,
}

/// The program to run.
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
    /// Limit for the user in its namespace, including the helper.
    pub(crate) processes: Option<u64>,
}

/// Restrictions by Landlock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LandlockPlan {
    pub(crate) files: Option<FilesPlan>,
    /// Whether the reach of signals and abstract sockets is restricted.
    pub(crate) scopes: bool,
    /// The TCP port that is the only one to connect to, on any host; listening is then forbidden.
    pub(crate) only_port: Option<u16>,
}

/// The accessible files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FilesPlan {
    /// Whether Landlock restricts ioctl calls to devices (ABI 5).
    pub(crate) device_calls: bool,
    /// The paths to read. These and the written ones contain no links.
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    /// The system's paths, which may be missing.
    pub(crate) system: Vec<PathBuf>,
}

/// Restrictions of system calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeccompPlan {
    pub(crate) sockets: Sockets,
    /// Whether notifications about changes of files are refused. They would also report files that are not granted.
    pub(crate) hides_changes: bool,
    /// Whether memory outside an address space is refused.
    pub(crate) one_memory: bool,
}

/// The sockets that can be created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Sockets {
    #[default]
    All,
    /// All but local ones, which reach other programs.
    AllButLocal,
    /// Those of internet protocols, except raw ones.
    Internet,
    /// TCP alone.
    Tcp,
    None,
}

/// A report of a helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The mechanisms of this machine.
    Probed(Probed),
    /// The inner helper waits for its message. The listener of the proxy is sent with it, if there is one.
    Ready,
    /// A mechanism does not work as the probe found.
    Failed { mechanism: String, detail: String },
    /// The program is running.
    Started,
    /// The program could not be started.
    NotStarted { detail: String, refused_by: Option<Refusal> },
    /// The program has ended.
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
        /// The processor time of the program and of the processes that it waited for.
        cpu_ms: u64,
        /// The processor time of the program's own process.
        own_cpu_ms: u64,
    },
    /// Everything has ended.
    Closed(KernelCounts),
}

/// The wall that refuses the start of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// The filter of system calls: the program is built for another architecture.
    Architecture,
    /// The walls around files.
    Files,
}

/// The kernel's counts for a program and all that it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelCounts {
    /// Processes that its control group refused.
    pub(crate) forks_refused: u64,
    /// Processes that were killed for its memory.
    pub(crate) killed_for_memory: u64,
    /// Attempts that its own network had no route for: all that do not go by the proxy.
    pub(crate) unrouted: u64,
}

/// The results of a probe: for each mechanism, the reason that it does not work, if any.
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
