//! The kernel, other processes, and the state that a program starts with.

use std::os::fd::AsFd;
use std::path::Path;

use backstop_environment::{Network, ProgramInput, Rules};
use layer0::Failure;
use tokio::io::AsyncWriteExt;

use crate::support::{block_on, finish, has_python, program, python, python_outside, sh, walls};

/// Calls the kernel by number, and prints each answer: 0, or the number of the error.
const CALLS: &str = "
import ctypes, os, platform, signal
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == 'x86_64'
def call(name, x86_number, arm_number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(x86_number if x86 else arm_number), *[ctypes.c_long(a) for a in arguments])
    print(name, 0 if result >= 0 else ctypes.get_errno())
path = ctypes.create_string_buffer(b'/')
at = ctypes.addressof(path)
zeros = ctypes.create_string_buffer(256)
zero = ctypes.addressof(zeros)
call('process_vm_readv', 310, 270, os.getpid(), zero, 0, zero, 0, 0)
";

/// Further calls that are only tried within walls.
const MORE_CALLS: &str = "
for name, flag in [('user', 0x10000000), ('mount', 0x20000), ('network', 0x40000000), ('pid', 0x20000000)]:
    call('unshare-' + name, 272, 97, flag)
    call('clone-' + name, 56, 220, flag | 17, 0, 0, 0, 0)
call('setns', 308, 268, 0, 0)
call('mount', 165, 40, at, at, 0, 4096, 0)
call('umount', 166, 39, at, 0)
call('pivot_root', 155, 41, at, at)
call('chroot', 161, 51, at)
call('open_tree', 428, 428, -100, at, 0)
call('fsopen', 430, 430, at, 0)
call('ptrace', 101, 117, 0, 0, 0, 0)
call('pidfd_getfd', 438, 438, 0, 0, 0)
call('keyctl', 250, 219, 0, -3, 1)
call('add_key', 248, 217, at, at, at, 1, -3)
call('bpf', 321, 280, 0, zero, 64)
call('perf_event_open', 298, 241, zero, 0, -1, -1, 0)
call('kexec_load', 246, 104, 0, 0, 0, 0)
call('init_module', 175, 105, at, 1, at)
call('userfaultfd', 323, 282, 1)
call('open_by_handle_at', 304, 265, -100, zero, 0)
call('clone3', 435, 435, zero, 64)
call('io_uring_setup', 425, 425, 1, zero)
";

/// Spec: N2, N3. Namespaces, mounts, tracing and the kernel itself are refused, whatever the rules.
pub(crate) fn kernel_calls_are_refused() {
    if !has_python() {
        return;
    }
    block_on(async {
        let calls = format!("{CALLS}{MORE_CALLS}");
        for rules in [Rules::new(), Rules::new().files().network(Network::None)] {
            let done = python(&walls(rules), &calls).await;
            assert!(done.ended.is_success(), "{done:?}");
            assert_eq!(done.out.lines().count(), 28, "{done:?}");
            for line in done.out.lines() {
                // Calls that programs can do without are missing; the others are not permitted.
                let is_missing = line.starts_with("clone3") || line.starts_with("io_uring");
                let expected = if is_missing { " 38" } else { " 1" };
                assert!(line.ends_with(expected), "{line}");
            }
        }
        // Without walls, some of them are available to every user.
        assert_eq!(python_outside(CALLS).await, "process_vm_readv 0\n");
        // The same calls by the numbers of x32.
        if cfg!(target_arch = "x86_64") {
            let script = "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(ctypes.c_long(0x40000000 | 272), 0), ctypes.get_errno())";
            assert_eq!(python(&walls(Rules::new()), script).await.out, "-1 38\n");
        }
    });
}

/// Spec: N3. The parent has no number within, and is sent no signals.
pub(crate) fn other_processes_are_out_of_reach() {
    if !has_python() {
        return;
    }
    block_on(async {
        let this = std::process::id();
        let script = format!(
            "
import os, signal
print(os.getppid())
for name, who in [('parent', {this})]:
    try:
        os.kill(who, 0)
        print(name)
    except OSError as e:
        pass
seen = 0
for pid in range(2, 40000):
    if pid in (os.getpid(), {this}): continue
    try:
        os.kill(pid, 0)
        seen += 1
    except ProcessLookupError:
        pass
    except PermissionError:
        pass
print('seen', seen)
"
        );
        let done = python(&walls(Rules::new()), &script).await;
        // Its parent is process 1, and there is no other process.
        assert_eq!(done.out, "1\nseen 0\n", "{done:?}");
        let outside = python_outside(&script).await;
        assert!(outside.contains("\nparent\n"), "{outside}");
    });
}

/// Spec: N2
pub(crate) fn privileges_are_none() {
    block_on(async {
        let status = "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status";
        let done = sh(&walls(Rules::new().network(Network::None)), status).await;
        for none in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(done.out.contains(&format!("{none}:\t0000000000000000")), "{done:?}");
        }
        assert!(
            done.out.contains("NoNewPrivs:\t1") && done.out.contains("Seccomp:\t2"),
            "{done:?}"
        );
        // The limits without a rule are those of this process, except the one for core dumps.
        let done = sh(&walls(Rules::new()), "ulimit -c; ulimit -f").await;
        assert_eq!(done.out, "0\nunlimited\n", "{done:?}");
    });
}

/// Spec: N2. A file that this process left open would lead out of every wall.
pub(crate) fn inherited_files_are_closed() {
    if !has_python() {
        return;
    }
    block_on(async {
        let file = std::fs::File::open("/").unwrap();
        rustix::io::fcntl_setfd(file.as_fd(), rustix::io::FdFlags::empty()).unwrap();
        let script = "
import os
def is_open(n):
    try:
        os.fstat(n)
        return True
    except OSError:
        return False
print([n for n in range(1000) if is_open(n)])";
        assert!(
            python_outside(script).await.contains(", 3") || python_outside(script).await.len() > 12
        );
        let done = python(&walls(Rules::new()), script).await;
        assert_eq!(done.out, "[0, 1, 2]\n", "{done:?}");
    });
}

/// Nothing is written to the program after its start, as if this process had died.
///
/// Spec: N2
pub(crate) fn program_begins_with_its_whole_input() {
    block_on(async {
        let walls = walls(Rules::new().files().network(Network::None));
        let count = || program("sh", &["-c", "cat /dev/stdin | wc -c"], Path::new("/"));
        for length in [0, 1, 65_537, 3 << 20] {
            let counted = count().reading(ProgramInput::Whole(vec![b'x'; length]));
            let walled = walls.command(counted).spawn().await.unwrap();
            assert!(walled.stdin.is_none());
            let done = finish(walled).await;
            assert_eq!(done.out.trim(), length.to_string(), "{}", done.err);
        }
        let first = count().reading(ProgramInput::First(vec![b'x'; 200_000]));
        let mut walled = walls.command(first).spawn().await.unwrap();
        walled.stdin.as_mut().unwrap().write_all(b"rest").await.unwrap();
        let done = finish(walled).await;
        assert_eq!(done.out.trim(), "200004", "{}", done.err);
        // It does not start with a part of its input.
        let large = count().reading(ProgramInput::First(vec![b'x'; 64 << 20]));
        let error = walls.command(large).spawn().await.unwrap_err();
        assert!(error.to_string().contains("standard input"), "{error}");
    });
}

pub(crate) fn standard_streams_are_the_programs() {
    block_on(async {
        let walls = walls(Rules::new().files().network(Network::None));
        let program = program(
            "sh",
            &["-c", "read line; echo \"$line\" >&2; echo out; exit 3"],
            Path::new("/"),
        );
        let mut walled = walls.command(program).spawn().await.unwrap();
        walled.stdin.as_mut().unwrap().write_all(b"hello\n").await.unwrap();
        let done = finish(walled).await;
        assert_eq!(
            (done.ended.code, done.out.as_str(), done.err.as_str()),
            (Some(3), "out\n", "hello\n")
        );
        let done = sh(&walls, "kill -TERM $$").await;
        assert_eq!((done.ended.code, done.ended.signal), (None, Some(15)));
        // Large enough for more than one message.
        let mut large =
            crate::support::program("sh", &["-c", "echo ${#A} ${#B} ${#C}"], Path::new("/"));
        for name in ["A", "B", "C"] {
            large.variables.insert(name.to_owned(), "x".repeat(120_000));
        }
        let done = crate::support::run(&walls, large).await;
        assert_eq!(done.out, "120000 120000 120000\n", "{}", done.err);
    });
}

pub(crate) fn program_that_is_missing_is_named() {
    block_on(async {
        let walls = walls(Rules::new().files());
        let error =
            walls.command(program("not-there", &[], Path::new("/"))).spawn().await.unwrap_err();
        assert_eq!(error.code(), "env.provision_failed");
        assert!(
            error.what().starts_with("program `not-there` cannot be started: No such"),
            "{error}"
        );
        let folder = Path::new("/not/there");
        let error = walls.command(program("sh", &[], folder)).spawn().await.unwrap_err();
        assert!(error.what().contains("folder `/not/there`"), "{error}");
    });
}
