//! The mechanism for each rule on this machine, and the rules without one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::plan::{FilesPlan, LandlockPlan, LimitsPlan, SeccompPlan, Sockets};
use crate::rules::{Enforcement, ListedPaths, RuleKind};
use crate::{Mechanism, Network, NotEnforced, Rules, Support};

/// Number of helper processes that count as the program's: in a control group the inner one, for a user also the outer
/// one.
const HELPERS_OF_GROUP: u64 = 1;
const HELPERS_OF_USER: u64 = 2;

/// Lowest ABI versions of Landlock that restrict truncation, TCP ports, calls to devices, and signals.
const FILES_ABI: u32 = 3;
const PORTS_ABI: u32 = 4;
const DEVICES_ABI: u32 = 5;
const SCOPES_ABI: u32 = 6;

/// Mount point of control groups.
const GROUPS: &str = "/sys/fs/cgroup";

const MIB: u64 = 1024 * 1024;

/// The smallest part of a second between a CPU limit and the whole second at which the kernel ends a process.
const CPU_MARGIN_MS: u128 = 250;

/// The mechanisms that enforce the rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EnforcementPlan {
    pub(crate) not_enforced: Vec<NotEnforced>,
    /// User and process namespaces.
    pub(crate) namespaces: bool,
    /// A separate network.
    pub(crate) network: bool,
    /// A proxy.
    pub(crate) listens: bool,
    /// Only TCP to the proxy's port, on any host.
    pub(crate) only_port: bool,
    pub(crate) landlock: Option<LandlockPlan>,
    pub(crate) seccomp: Option<SeccompPlan>,
    pub(crate) limits: LimitsPlan,
    /// Limits of control groups: number of processes, and bytes of memory.
    pub(crate) group_processes: Option<u64>,
    pub(crate) group_memory: Option<u64>,
}

impl EnforcementPlan {
    pub(crate) fn new(rules: &Rules, listed: ListedPaths, support: &Support) -> Self {
        let is_root = is_root();
        let mut this = Self {
            namespaces: support.has(Mechanism::UserNamespace)
                && support.has(Mechanism::PidNamespace),
            ..Self::default()
        };
        this.decide_network(rules, support);
        this.decide_files(rules, listed, support);
        this.decide_limits(rules, support, is_root);
        this.decide_memory(rules, support);
        this
    }

    fn lacks(&mut self, rule: &'static str, why: String) {
        self.not_enforced.push(NotEnforced::new(rule, why));
    }

    fn decide_network(&mut self, rules: &Rules, support: &Support) {
        let has_seccomp = support.has(Mechanism::Seccomp);
        let is_walled = rules.network != Network::All;
        self.network = is_walled && self.namespaces && support.has(Mechanism::NetworkNamespace);
        let needs_proxy = matches!(rules.network, Network::Hosts(_) | Network::Loopback);
        // With a separate network, the proxy records requested hosts even if it grants none.
        self.listens = self.network || needs_proxy;
        let sockets = match (is_walled, self.network) {
            (true, true) => Sockets::Internet,
            (true, false) if needs_proxy => {
                // The port is the same on every host, so any host that listens on it can be reached.
                self.only_port = support.landlock_abi() >= PORTS_ABI;
                self.lacks("network", support.lack(Mechanism::NetworkNamespace));
                Sockets::Tcp
            }
            (true, false) => Sockets::None,
            // A local socket reaches other programs, as files do.
            (false, _) if rules.is_file_walled() => Sockets::AllButLocal,
            (false, _) => Sockets::All,
        };
        if has_seccomp {
            let hides_changes = rules.is_file_walled();
            self.seccomp = Some(SeccompPlan { sockets, hides_changes, one_memory: false });
            return;
        }
        self.lacks("system calls", support.lack(Mechanism::Seccomp));
        if sockets == Sockets::None {
            self.lacks("network", support.lack(Mechanism::NetworkNamespace));
        }
    }

    fn decide_files(&mut self, rules: &Rules, listed: ListedPaths, support: &Support) {
        let abi = support.landlock_abi();
        let scopes = abi >= SCOPES_ABI;
        if !scopes && !self.namespaces {
            self.lacks("signals", support.lack(Mechanism::PidNamespace));
        }
        let files = (rules.is_file_walled() && abi >= FILES_ABI).then(|| FilesPlan {
            device_calls: abi >= DEVICES_ABI,
            read: listed.read,
            write: listed.write,
            system: Rules::system_folders().iter().map(Into::into).collect(),
        });
        if rules.is_file_walled() && files.is_none() {
            self.lacks("files", support.lack(Mechanism::Landlock));
        }
        if scopes || files.is_some() || self.only_port {
            self.landlock = Some(LandlockPlan { files, scopes, only_port: None });
        }
    }

    fn decide_limits(&mut self, rules: &Rules, support: &Support, is_root: bool) {
        let bytes = |mib: u64| mib.saturating_mul(MIB);
        let is_guarded = self.is_guarded();
        self.limits.cpu_seconds = rules.cpu.map(cpu_seconds);
        self.limits.file_bytes = rules.file_mib.map(bytes);
        if let Some(most) = rules.processes {
            if is_guarded && support.has(Mechanism::PidsGroup) {
                self.group_processes = Some(most.saturating_add(HELPERS_OF_GROUP));
            } else if !is_root && self.namespaces {
                // Counted for the user within its namespace, since Linux 5.14.
                self.limits.processes = Some(most.saturating_add(HELPERS_OF_USER));
            } else if support.has(Mechanism::PidsGroup) {
                let lack = support.lack(Mechanism::UserNamespace);
                self.lacks(
                    "processes",
                    format!("the program could write its control group: {lack}"),
                );
            } else {
                self.lacks("processes", support.lack(Mechanism::PidsGroup));
            }
        }
        if !support.has(Mechanism::Rlimits) {
            self.lacks("limits", support.lack(Mechanism::Rlimits));
        }
    }

    fn decide_memory(&mut self, rules: &Rules, support: &Support) {
        let Some(most) = rules.memory_mib.map(|mib| mib.saturating_mul(MIB)) else { return };
        if self.is_guarded() && support.has(Mechanism::MemoryGroup) {
            self.group_memory = Some(most);
            return;
        }
        // Limits the address space of each process, and refuses memory outside it.
        self.limits.address_space_bytes = Some(most);
        if let Some(seccomp) = &mut self.seccomp {
            seccomp.one_memory = true;
        }
        let lack = support.lack(Mechanism::MemoryGroup);
        match self.landlock.as_ref().and_then(|landlock| landlock.files.as_ref()) {
            None => {
                let why = "files that are kept in memory (`/dev/shm`) are not counted without walls around files";
                self.lacks("memory", format!("{why}: {lack}"));
            }
            Some(files) => {
                let mut written = files.write.iter();
                if let Some(path) = written.find(|path| is_in_memory(path)) {
                    let path = path.display();
                    let why =
                        format!("`{path}` is written and kept in memory, which is not counted");
                    self.lacks("memory", format!("{why}: {lack}"));
                }
            }
        }
    }

    /// Returns the enforcement of a rule.
    pub(crate) fn enforcement(&self, rule: RuleKind) -> Enforcement {
        let lacks = |name: &str| self.not_enforced.iter().any(|lacking| lacking.rule == name);
        let full = |is_full: bool| if is_full { Enforcement::Full } else { Enforcement::None };
        match rule {
            RuleKind::Cpu | RuleKind::FileSize => full(!lacks("limits")),
            RuleKind::Files => full(!lacks("files")),
            RuleKind::Memory if self.group_memory.is_none() && lacks("limits") => Enforcement::None,
            // The address space of each process is limited.
            RuleKind::Memory if lacks("memory") => Enforcement::Partial,
            RuleKind::Network if !lacks("network") => Enforcement::Full,
            // All sockets but those of TCP are refused.
            RuleKind::Network if self.seccomp.is_some() => Enforcement::Partial,
            RuleKind::Network => Enforcement::None,
            RuleKind::Processes => full(!lacks("processes")),
            RuleKind::Memory | RuleKind::Wall => Enforcement::Full,
        }
    }

    /// Returns whether the program cannot write the groups that limit it.
    fn is_guarded(&self) -> bool {
        self.namespaces || self.walls_groups()
    }

    /// Returns the written paths if everything else is mounted read-only: in namespaces with walls around files.
    pub(crate) fn written_paths(&self) -> Option<&[PathBuf]> {
        let files = self.landlock.as_ref()?.files.as_ref()?;
        self.namespaces.then_some(files.write.as_slice())
    }

    /// Returns whether the walls around files keep control groups from being written.
    fn walls_groups(&self) -> bool {
        let files = self.landlock.as_ref().and_then(|landlock| landlock.files.as_ref());
        files.is_some_and(|files| {
            let is_apart = |path: &PathBuf| {
                let path = path.canonicalize().unwrap_or_else(|_| path.clone());
                !path.starts_with(GROUPS) && !Path::new(GROUPS).starts_with(path)
            };
            files.write.iter().all(is_apart)
        })
    }
}

/// Returns the whole second at which the kernel ends a process. It samples the used time by ticks: without a margin, the
/// exact time would often be below the limit, and would not show that the limit was reached.
fn cpu_seconds(most: Duration) -> u64 {
    let seconds = (most.as_millis() + CPU_MARGIN_MS).div_ceil(1_000);
    u64::try_from(seconds).unwrap_or(u64::MAX)
}

#[cfg(target_os = "linux")]
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(not(target_os = "linux"))]
const fn is_root() -> bool {
    false
}

/// Returns whether a path is on a file system in memory.
#[cfg(target_os = "linux")]
fn is_in_memory(path: &Path) -> bool {
    /// `TMPFS_MAGIC` and `RAMFS_MAGIC`, statfs(2).
    const KINDS: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    let found = rustix::fs::statfs(path).ok();
    found.is_some_and(|found| u64::try_from(found.f_type).is_ok_and(|kind| KINDS.contains(&kind)))
}

#[cfg(not(target_os = "linux"))]
const fn is_in_memory(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: N2
    #[test]
    fn what_nothing_holds_is_named() {
        use Mechanism::{
            Landlock, MemoryGroup, NetworkNamespace, PidNamespace, Seccomp, UserNamespace,
        };
        let hosts = || Rules::new().network(Network::Hosts(vec!["a.example".to_owned()]));
        let none = || Rules::new().network(Network::None);
        let no_namespaces = [UserNamespace, NetworkNamespace, PidNamespace];
        for (rules, missing, abi, lacks) in [
            (hosts().files(), &[][..], 7, &[][..]),
            (hosts(), &[NetworkNamespace], 7, &["network"]),
            (hosts(), &no_namespaces, 7, &["network"]),
            (none(), &no_namespaces, 7, &[]),
            (none(), &[NetworkNamespace, Seccomp], 7, &["system calls", "network"]),
            (none(), &no_namespaces, 5, &["signals"]),
            (Rules::new().files(), &[Landlock], 0, &["files"]),
            (Rules::new().files(), &[], 2, &["files"]),
            (Rules::new().files(), &no_namespaces, 6, &[]),
            (Rules::new().files(), &no_namespaces, 3, &["signals"]),
            (Rules::new(), &[Landlock], 0, &[]),
            (Rules::new(), &[Seccomp], 7, &["system calls"]),
            (Rules::new().processes(9), &no_namespaces, 7, &["processes"]),
            (Rules::new().processes(9).files(), &no_namespaces, 7, &[]),
            (Rules::new().processes(9).write(["/"]), &no_namespaces, 7, &["processes"]),
            (Rules::new().memory_mib(64), &[], 7, &[]),
            (Rules::new().memory_mib(64), &[MemoryGroup], 7, &["memory"]),
            (Rules::new().memory_mib(64), &no_namespaces, 7, &["memory"]),
            (Rules::new().memory_mib(64).files(), &[MemoryGroup], 7, &[]),
            (Rules::new().memory_mib(64).write(["/dev/shm"]), &[MemoryGroup], 7, &["memory"]),
        ] {
            let listed = ListedPaths { read: rules.read.clone(), write: rules.write.clone() };
            let decision = EnforcementPlan::new(&rules, listed, &Support::without(missing, abi));
            let named: Vec<_> = decision.not_enforced.iter().map(|it| it.rule).collect();
            assert_eq!(named, lacks, "{rules:?} without {missing:?}, ABI {abi}");
        }
    }

    /// Spec: N2, T5
    #[test]
    fn grants_without_walls_are_left_out() {
        use Mechanism::{Landlock, MemoryGroup, NetworkNamespace, Rlimits, Seccomp};
        let rules = Rules::new()
            .read(["/data"])
            .network(Network::Hosts(vec!["a.example".to_owned()]))
            .cpu(Duration::from_secs(1))
            .memory_mib(64)
            .processes(9);
        let [files, network, limits] = [
            "read /data, write none",
            "network a.example",
            "cpu 1000 ms; memory 64 MiB; processes 9",
        ];
        let all = format!("{files}; {network}; {limits}");
        let in_part = format!("{files}; {network} (in part); {limits}");
        for (missing, abi, expected) in [
            (&[][..], 7, all.as_str()),
            (&[Landlock], 0, &format!("{network}; {limits}")),
            (&[NetworkNamespace], 7, &in_part),
            (&[NetworkNamespace, Seccomp], 7, &format!("{files}; {limits}")),
            (
                &[Landlock, MemoryGroup],
                0,
                &format!("{network}; cpu 1000 ms; memory 64 MiB (in part); processes 9"),
            ),
            (&[Rlimits], 7, &format!("{files}; {network}; memory 64 MiB; processes 9")),
            (&[Rlimits, MemoryGroup], 7, &format!("{files}; {network}; processes 9")),
        ] {
            let listed = ListedPaths { read: rules.read.clone(), write: rules.write.clone() };
            let decision = EnforcementPlan::new(&rules, listed, &Support::without(missing, abi));
            let described = rules.describe(|rule| decision.enforcement(rule));
            assert_eq!(described.as_deref(), Some(expected), "without {missing:?}, ABI {abi}");
        }
    }

    /// Spec: N3. The exact time of a process that the kernel ended has to be above the limit.
    #[test]
    fn cpu_limits_leave_a_margin() {
        for (ms, expected) in [(1, 1), (750, 1), (751, 2), (1_000, 2), (1_750, 2), (60_000, 61)] {
            assert_eq!(cpu_seconds(Duration::from_millis(ms)), expected, "{ms} ms");
        }
    }
}
