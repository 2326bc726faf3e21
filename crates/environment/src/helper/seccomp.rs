//! Restriction of system calls by seccomp.

use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter, sock_filter,
};

use super::seccomp_rules::{SeccompRules, build_deny_rules, missing};
use crate::plan::SeccompPlan;

/// Error of a missing call, after which programs use an older one.
const NOT_THERE: u32 = nix::libc::ENOSYS.unsigned_abs();
const NOT_PERMITTED: u32 = nix::libc::EPERM.unsigned_abs();

/// Restricts the system calls of this process, which has one thread, and of all processes that it starts.
pub(super) fn apply(plan: &SeccompPlan) -> io::Result<()> {
    install(missing(plan), NOT_THERE)?;
    install(build_deny_rules(plan)?, NOT_PERMITTED)
}

fn install(rules: SeccompRules, answer: u32) -> io::Result<()> {
    let refuse = SeccompAction::Errno(answer);
    let target = target()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, target)
        .map_err(io::Error::other)?;
    let mut program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    if target == TargetArch::x86_64 {
        program.splice(0..0, without_x32());
    }
    apply_filter(&program).map_err(io::Error::other)
}

/// Returns the architecture of this program. Calls of another architecture (32-bit programs) end the process.
fn target() -> io::Result<TargetArch> {
    TargetArch::try_from(std::env::consts::ARCH)
        .map_err(|_| io::Error::other(format!("not written for {}", std::env::consts::ARCH)))
}

/// Returns a filter that disables x32, whose calls have other numbers that the rules would not match.
fn without_x32() -> [sock_filter; 3] {
    // Load the number; skip the return if it is below the bit of x32; return.
    const X32: u32 = 0x4000_0000;
    const RETURN_ERRNO: u32 = 0x0005_0000;
    [
        sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 },
        sock_filter { code: 0x35, jt: 0, jf: 1, k: X32 },
        sock_filter { code: 0x06, jt: 0, jf: 0, k: RETURN_ERRNO | NOT_THERE },
    ]
}
