//! The system calls that walls take away.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use crate::plan::Sockets;

/// Calls by number, and for which arguments: all where none are stated.
pub(super) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that programs do without: they take an older way, which the rules understand.
const MISSING: &[i64] = &[
    // Its flags are in memory, where no filter sees them.
    libc::SYS_clone3,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
];

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

pub(super) fn missing() -> Rules {
    MISSING.iter().map(|call| (*call, Vec::new())).collect()
}

pub(super) fn refused(sockets: Sockets) -> io::Result<Rules> {
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let by_flag = NAMESPACES.map(|flag| rule(&[has(0, number(flag))]));
    let by_flag = by_flag.into_iter().collect::<io::Result<_>>()?;
    rules.insert(libc::SYS_clone, by_flag);
    // Typing into the terminal of another program.
    let typing = [number(libc::TIOCSTI), number(libc::TIOCLINUX)];
    let typing = typing.map(|request| rule(&[is(1, request)]));
    rules.insert(libc::SYS_ioctl, typing.into_iter().collect::<io::Result<_>>()?);
    if let Some(made) = socket_rules(sockets)? {
        rules.insert(libc::SYS_socket, made);
        // A pair of streams leads nowhere else; one of datagrams can be sent to any name.
        let datagrams = [libc::SOCK_DGRAM, libc::SOCK_RAW].map(|it| rule(&[is_kind(it)]));
        rules.insert(libc::SYS_socketpair, datagrams.into_iter().collect::<io::Result<_>>()?);
    }
    Ok(rules)
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
