//! The system calls that walls refuse.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use crate::plan::{SeccompPlan, Sockets};

/// Calls by number, with the arguments that they are refused for; all arguments if none are given.
pub(super) type SeccompRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls reported as missing: programs use an older call instead, which the rules can check.
const MISSING: &[i64] = &[
    // Its flags are in memory, which a filter cannot read.
    libc::SYS_clone3,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    // The mode and the flags of this one are in memory too.
    libc::SYS_openat2,
];

/// Calls that report changes, also of files that are not granted. Programs fall back to polling.
const CHANGES: &[i64] = &[
    libc::SYS_fanotify_init,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    libc::SYS_inotify_init1,
];

/// Calls that allocate memory outside the address space.
const MEMORIES: &[i64] = &[libc::SYS_memfd_create, libc::SYS_memfd_secret, libc::SYS_shmget];

/// Calls that are refused with any arguments.
const REFUSED: &[i64] = &[
    // Namespaces and mounts.
    libc::SYS_chroot,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    // `open_tree_attr`, the same number everywhere.
    467,
    libc::SYS_pivot_root,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
    // Other processes, and files by handle.
    libc::SYS_kcmp,
    libc::SYS_open_by_handle_at,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    // The kernel itself.
    libc::SYS_acct,
    libc::SYS_bpf,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_perf_event_open,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_userfaultfd,
    // Keys of the kernel are shared by all processes of a user.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
];

/// Flags of `clone` that create namespaces. The flag for time namespaces overlaps the signal bits, and has no effect in
/// `clone`.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// The part of a socket's type without flags: `SOCK_TYPE_MASK`.
const KIND: u64 = 0xf;

/// The calls that set a mode, with the number of its argument; calls that open a file have flags before the mode.
#[cfg(target_arch = "x86_64")]
const OLDER_MODES: &[(i64, u8)] =
    &[(libc::SYS_chmod, 1), (libc::SYS_creat, 1), (libc::SYS_mknod, 1)];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_MODES: &[(i64, u8)] = &[];
const MODES: &[(i64, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    // `fchmodat2`, the same number everywhere.
    (452, 2),
    (libc::SYS_mknodat, 2),
];
const OPENS: &[(i64, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
    (libc::SYS_openat, 2),
];

/// `__O_TMPFILE`, without the folder flag that it includes.
const TEMPORARY: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

pub(super) fn missing(plan: &SeccompPlan) -> SeccompRules {
    let changes = if plan.hides_changes { CHANGES } else { &[] };
    MISSING.iter().chain(changes).map(|call| (*call, Vec::new())).collect()
}

pub(super) fn build_deny_rules(plan: &SeccompPlan) -> io::Result<SeccompRules> {
    let memories = if plan.one_memory { MEMORIES } else { &[] };
    let mut rules: SeccompRules =
        REFUSED.iter().chain(memories).map(|call| (*call, Vec::new())).collect();
    rules.extend(borrowed_rights()?);
    let by_flag = NAMESPACES.map(|flag| rule(&[has(0, number(flag))]));
    let by_flag = by_flag.into_iter().collect::<io::Result<_>>()?;
    rules.insert(libc::SYS_clone, by_flag);
    // Input into the terminal of another program.
    let typing = [number(libc::TIOCSTI), number(libc::TIOCLINUX)];
    let typing = typing.map(|request| rule(&[is(1, request)]));
    rules.insert(libc::SYS_ioctl, typing.into_iter().collect::<io::Result<_>>()?);
    if let Some(made) = socket_rules(plan.sockets)? {
        rules.insert(libc::SYS_socket, made);
        // A pair of streams cannot reach other programs; a datagram socket can send to any name.
        let datagrams = [libc::SOCK_DGRAM, libc::SOCK_RAW].map(|it| rule(&[is_kind(it)]));
        rules.insert(libc::SYS_socketpair, datagrams.into_iter().collect::<io::Result<_>>()?);
    }
    Ok(rules)
}

/// Refuses to create files that run with the rights of their user or group: other users of this machine could run them.
fn borrowed_rights() -> io::Result<SeccompRules> {
    let bits = [libc::S_ISUID, libc::S_ISGID].map(number);
    let set = MODES.iter().chain(OLDER_MODES).map(|(call, mode)| {
        let by_bit = bits.map(|bit| rule(&[has(*mode, bit)]));
        Ok((*call, by_bit.into_iter().collect::<io::Result<_>>()?))
    });
    // Without these flags the argument is no mode, whatever its value.
    let opened = OPENS.iter().map(|(call, flags)| {
        let made = [libc::O_CREAT, TEMPORARY].map(number);
        let by_bit = made
            .into_iter()
            .flat_map(|flag| bits.map(|bit| rule(&[has(*flags, flag), has(flags + 1, bit)])));
        Ok((*call, by_bit.collect::<io::Result<_>>()?))
    });
    set.chain(opened).collect()
}

/// Returns the rules for refused sockets.
fn socket_rules(sockets: Sockets) -> io::Result<Option<Vec<SeccompRule>>> {
    let [ipv4, ipv6] = [libc::AF_INET, libc::AF_INET6].map(number);
    let others = [is_not(0, ipv4), is_not(0, ipv6)];
    let rules: Vec<_> = match sockets {
        Sockets::All => return Ok(None),
        Sockets::AllButLocal => vec![rule(&[is(0, number(libc::AF_UNIX))])?],
        Sockets::None => Vec::new(),
        Sockets::Internet => vec![rule(&others)?, rule(&[is_kind(libc::SOCK_RAW)])?],
        Sockets::Tcp => {
            // SCTP and MPTCP are streams too, which Landlock does not restrict.
            let [none, tcp] = [0, libc::IPPROTO_TCP].map(number);
            let stream = is_kind(libc::SOCK_STREAM);
            let kinds = [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET, libc::SOCK_RDM];
            let mut rules = vec![rule(&others)?, rule(&[stream, is_not(2, none), is_not(2, tcp)])?];
            for other in kinds {
                rules.push(rule(&[is_kind(other)])?);
            }
            rules
        }
    };
    Ok(Some(rules))
}

/// The condition of a rule on an argument.
struct ArgumentCondition {
    argument: u8,
    op: SeccompCmpOp,
    value: u64,
}

/// Returns the condition that the second argument is this type of socket, with any flags.
fn is_kind(kind: i32) -> ArgumentCondition {
    ArgumentCondition { argument: 1, op: SeccompCmpOp::MaskedEq(KIND), value: number(kind) }
}

const fn is(argument: u8, value: u64) -> ArgumentCondition {
    ArgumentCondition { argument, op: SeccompCmpOp::Eq, value }
}

const fn is_not(argument: u8, value: u64) -> ArgumentCondition {
    ArgumentCondition { argument, op: SeccompCmpOp::Ne, value }
}

const fn has(argument: u8, flag: u64) -> ArgumentCondition {
    ArgumentCondition { argument, op: SeccompCmpOp::MaskedEq(flag), value: flag }
}

/// Builds a rule that matches if all of its conditions do. The kernel reads these arguments as 32 bits.
fn rule(conditions: &[ArgumentCondition]) -> io::Result<SeccompRule> {
    let conditions = conditions.iter().map(|ArgumentCondition { argument, op, value }| {
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, op.clone(), *value)
    });
    let conditions = conditions.collect::<Result<_, _>>().map_err(io::Error::other)?;
    SeccompRule::new(conditions).map_err(io::Error::other)
}

/// Returns the bits of a constant as the kernel sees them in an argument of 32 bits.
fn number(constant: impl TryInto<i64>) -> u64 {
    let constant = constant.try_into().unwrap_or_default();
    u64::from_ne_bytes(constant.to_ne_bytes()) & u64::from(u32::MAX)
}
