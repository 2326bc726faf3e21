//! The system calls that walls take away.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use crate::plan::{SeccompPlan, Sockets};

/// Calls by number, and for which arguments: all where none are stated.
pub(super) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that programs do without: they take an older way, which the rules understand.
const MISSING: &[i64] = &[
    // Its flags are in memory, where no filter sees them.
    libc::SYS_clone3,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    // So are the mode and the flags of these.
    libc::SYS_openat2,
];

/// Calls that tell of changes, also of files that are not granted. Programs look again by themselves then.
const CHANGES: &[i64] = &[
    libc::SYS_fanotify_init,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    libc::SYS_inotify_init1,
];

/// Calls that give memory beside that of the address space.
const MEMORIES: &[i64] = &[libc::SYS_memfd_create, libc::SYS_memfd_secret, libc::SYS_shmget];

/// Calls that are refused whatever their arguments.
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
    // Other processes, and files by number.
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

/// Flags of `clone` that make namespaces. That of time is among the bits of its signal, and no flag there.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// The part of a socket's type that is no flag: `SOCK_TYPE_MASK`.
const KIND: u64 = 0xf;

/// The calls that set a mode, and in which argument it is; those that open a file have flags before it.
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

/// `__O_TMPFILE`, without the flag of folders that comes with it.
const TEMPORARY: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

pub(super) fn missing(plan: &SeccompPlan) -> Rules {
    let changes = if plan.hides_changes { CHANGES } else { &[] };
    MISSING.iter().chain(changes).map(|call| (*call, Vec::new())).collect()
}

pub(super) fn refused(plan: &SeccompPlan) -> io::Result<Rules> {
    let memories = if plan.one_memory { MEMORIES } else { &[] };
    let mut rules: Rules = REFUSED.iter().chain(memories).map(|call| (*call, Vec::new())).collect();
    rules.extend(borrowed_rights()?);
    let by_flag = NAMESPACES.map(|flag| rule(&[has(0, number(flag))]));
    let by_flag = by_flag.into_iter().collect::<io::Result<_>>()?;
    rules.insert(libc::SYS_clone, by_flag);
    // Typing into the terminal of another program.
    let typing = [number(libc::TIOCSTI), number(libc::TIOCLINUX)];
    let typing = typing.map(|request| rule(&[is(1, request)]));
    rules.insert(libc::SYS_ioctl, typing.into_iter().collect::<io::Result<_>>()?);
    if let Some(made) = socket_rules(plan.sockets)? {
        rules.insert(libc::SYS_socket, made);
        // A pair of streams leads nowhere else; one of datagrams can be sent to any name.
        let datagrams = [libc::SOCK_DGRAM, libc::SOCK_RAW].map(|it| rule(&[is_kind(it)]));
        rules.insert(libc::SYS_socketpair, datagrams.into_iter().collect::<io::Result<_>>()?);
    }
    Ok(rules)
}

/// Refuses files that run with the rights of their user or group: others of this machine could run them.
fn borrowed_rights() -> io::Result<Rules> {
    let bits = [libc::S_ISUID, libc::S_ISGID].map(number);
    let set = MODES.iter().chain(OLDER_MODES).map(|(call, mode)| {
        let by_bit = bits.map(|bit| rule(&[has(*mode, bit)]));
        Ok((*call, by_bit.into_iter().collect::<io::Result<_>>()?))
    });
    // Without these flags there is no mode, whatever is in its place.
    let opened = OPENS.iter().map(|(call, flags)| {
        let made = [libc::O_CREAT, TEMPORARY].map(number);
        let by_bit = made
            .into_iter()
            .flat_map(|flag| bits.map(|bit| rule(&[has(*flags, flag), has(flags + 1, bit)])));
        Ok((*call, by_bit.collect::<io::Result<_>>()?))
    });
    set.chain(opened).collect()
}

/// Which sockets are refused.
fn socket_rules(sockets: Sockets) -> io::Result<Option<Vec<SeccompRule>>> {
    let [ipv4, ipv6] = [libc::AF_INET, libc::AF_INET6].map(number);
    let others = [is_not(0, ipv4), is_not(0, ipv6)];
    let rules: Vec<_> = match sockets {
        Sockets::All => return Ok(None),
        Sockets::AllButLocal => vec![rule(&[is(0, number(libc::AF_UNIX))])?],
        Sockets::None => Vec::new(),
        Sockets::Internet => vec![rule(&others)?, rule(&[is_kind(libc::SOCK_RAW)])?],
        Sockets::Tcp => {
            // SCTP and MPTCP are streams too, which Landlock does not know.
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

/// What an argument is for a rule to hold.
struct Condition {
    argument: u8,
    op: SeccompCmpOp,
    value: u64,
}

/// Is the second argument this type of socket, whatever its flags?
fn is_kind(kind: i32) -> Condition {
    Condition { argument: 1, op: SeccompCmpOp::MaskedEq(KIND), value: number(kind) }
}

const fn is(argument: u8, value: u64) -> Condition {
    Condition { argument, op: SeccompCmpOp::Eq, value }
}

const fn is_not(argument: u8, value: u64) -> Condition {
    Condition { argument, op: SeccompCmpOp::Ne, value }
}

const fn has(argument: u8, flag: u64) -> Condition {
    Condition { argument, op: SeccompCmpOp::MaskedEq(flag), value: flag }
}

/// Makes a rule that holds where all of its conditions do. The kernel reads these arguments as 32 bits.
fn rule(conditions: &[Condition]) -> io::Result<SeccompRule> {
    let conditions = conditions.iter().map(|Condition { argument, op, value }| {
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, op.clone(), *value)
    });
    let conditions = conditions.collect::<Result<_, _>>().map_err(io::Error::other)?;
    SeccompRule::new(conditions).map_err(io::Error::other)
}

/// The bits of a constant, as the kernel sees them in an argument of 32 bits.
fn number(constant: impl TryInto<i64>) -> u64 {
    let constant = constant.try_into().unwrap_or_default();
    u64::from_ne_bytes(constant.to_ne_bytes()) & u64::from(u32::MAX)
}
