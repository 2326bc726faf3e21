//! Probes of the mechanisms of this machine.

use std::io;

use landlock::LandlockStatus;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::{files, limits, namespaces, seccomp};
use crate::plan::{FilesPlan, LandlockPlan, Probed, SeccompPlan};

/// Tries each mechanism on this process, which ends afterwards.
pub(super) fn run() -> Probed {
    let user = namespaces::enter_user();
    // For a privileged user the other namespaces may work on their own, but they are never used that way.
    let within = |enter: fn() -> Result<(), String>| match &user {
        Ok(()) => enter().err(),
        Err(_) => Some("needs a user namespace".to_owned()),
    };
    let network = within(namespaces::enter_network);
    let process = within(namespaces::enter_process);
    let limits = try_limits().err().map(|error| error.to_string());
    let (landlock_abi, landlock) = match try_landlock() {
        Ok(abi) => (abi, None),
        Err(error) => (0, Some(error.to_string())),
    };
    let seccomp = seccomp::apply(&SeccompPlan::default()).err().map(|error| error.to_string());
    Probed { landlock_abi, landlock, user: user.err(), network, process, seccomp, limits }
}

fn try_limits() -> io::Result<()> {
    setrlimit(Resource::Core, getrlimit(Resource::Core))?;
    limits::let_go_of_privileges()
}

/// Restricts this process to the system's files, with the rights of the oldest version.
fn try_landlock() -> io::Result<u32> {
    let files = FilesPlan { system: vec!["/".into()], ..FilesPlan::default() };
    let plan = LandlockPlan { files: Some(files), ..LandlockPlan::default() };
    match files::restrict(files::ruleset(&plan)?)?.landlock {
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            let effective = u32::try_from(effective_abi as i64).unwrap_or(0);
            Ok(kernel_abi.and_then(|abi| u32::try_from(abi).ok()).unwrap_or(effective))
        }
        LandlockStatus::NotEnabled => Err(io::Error::other("not enabled when the kernel started")),
        LandlockStatus::NotImplemented => Err(io::Error::other("not in this kernel")),
    }
}
