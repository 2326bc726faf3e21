//! The code of each escape, whatever the program says of it, and what is no escape.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use backstop_environment::{Mechanism, Network, Rules, Walls};
use layer0::Failure;
use tempfile::TempDir;

use crate::network::ASK;
use crate::support::{block_on, has_python, program, python, run, walls};

/// A folder with what is granted, and a secret that is not.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("out")).unwrap();
    fs::write(path.join("secret"), "hidden").unwrap();
    fs::write(path.join("out/plain"), "#!/bin/sh\necho ran\n").unwrap();
    folder
}

fn rules(folder: &Path) -> Rules {
    let hosts = Network::Hosts(vec!["api.example.com".to_owned()]);
    Rules::new()
        .folder(folder)
        .write(["./out"])
        .network(hosts)
        .cpu(Duration::from_millis(900))
        .memory_mib(96)
        .processes(12)
        .file_mib(1)
}

/// Returns the code that a program's end has.
async fn code(walls: &Walls, folder: &Path, name: &str, script: &str) -> Option<&'static str> {
    let done = run(walls, program(name, &["-c", script], folder)).await;
    assert!(!done.ended.is_success(), "{script}: {done:?}");
    done.explained.map(|error| error.code())
}

const DENIED: Option<&str> = Some("env.network_denied");
const EXCEEDED: Option<&str> = Some("env.resource_exceeded");
/// Nothing outside of the program sees these.
const UNSEEN: Option<&str> = None;

/// Each program swallows what it was told.
///
/// Spec: N3
pub(crate) fn codes_of_silent_escapes_are_what_was_seen() {
    if !has_python() {
        return;
    }
    let folder = folder();
    let path = folder.path();
    block_on(async {
        let walls = walls(rules(path));
        let has = |mechanism| walls.support().has(mechanism);
        let processes = if has(Mechanism::PidsGroup) { EXCEEDED } else { UNSEEN };
        let memory = if has(Mechanism::MemoryGroup) { EXCEEDED } else { UNSEEN };
        for (escape, expected) in [
            ("ask('GET http://example.org/ HTTP/1.1\\nHost: example.org\\n\\n')", DENIED),
            ("ask('CONNECT api.example.com:443 HTTP/1.1\\nHost: example.org:443\\n\\n')", DENIED),
            ("ask('CONNECT 192.0.2.1:443 HTTP/1.1\\n\\n')", DENIED),
            ("socket.create_connection(('192.0.2.1', 80), 2)", DENIED),
            ("socket.create_connection(('2001:db8::1', 80), 2)", DENIED),
            ("udp.sendto(b'x', ('192.0.2.1', 53))", DENIED),
            ("open('secret').read()", UNSEEN),
            ("open('/etc/shadow').read()", UNSEEN),
            ("open('new', 'w')", UNSEEN),
            ("os.symlink('../secret', 'out/link'); open('out/link').read()", UNSEEN),
            ("os.chmod('secret', 0o777)", UNSEEN),
            ("os.listdir('/proc')", UNSEEN),
            ("ctypes.CDLL(None).unshare(0x10000000)", UNSEEN),
            ("ctypes.CDLL(None).ptrace(0, 0, 0, 0)", UNSEEN),
            ("os.kill(1, 9)", UNSEEN),
            ("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", UNSEEN),
            ("os.execv('out/plain', ['plain'])", UNSEEN),
            ("[os.fork() or time.sleep(9) for _ in range(50)]", processes),
            ("bytearray(200 << 20)", memory),
            ("open('out/large', 'wb').write(bytes(3 << 20))", UNSEEN),
        ] {
            let script = format!(
                "{ASK}
import ctypes, os, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    answer({escape})
except BaseException:
    pass
os._exit(1)"
            );
            assert_eq!(code(&walls, path, "python3", &script).await, expected, "{escape}");
        }
        for (script, expected) in [
            ("while :; do :; done", EXCEEDED),
            ("exec head -c 3000000 /dev/zero > out/large", UNSEEN),
        ] {
            assert_eq!(code(&walls, path, "sh", script).await, expected, "{script}");
        }
        let granted = "read none, write ./out; network api.example.com; cpu 900 ms; \
                       memory 96 MiB; processes 12; file size 1 MiB";
        assert_eq!(walls.rules().describe_grants().as_deref(), Some(granted));
    });
}

/// Spec: N3. Sentences, exit statuses and signals of a program's own claim no wall.
pub(crate) fn claims_of_programs_are_not_believed() {
    let folder = folder();
    let path = folder.path();
    block_on(async {
        let walls = walls(rules(path));
        for script in [
            "echo 'cat: /etc/shadow: Permission denied' >&2; exit 1",
            "echo \"PermissionError: [Errno 13] Permission denied: '/etc/shadow'\" >&2; exit 1",
            "echo 'touch: cannot touch /etc/new: Read-only file system' >&2; exit 1",
            "echo 'sh: 1: Cannot fork' >&2; exit 1",
            "echo 'MemoryError: Cannot allocate memory' >&2; exit 1",
            "echo 'OSError: [Errno 27] File too large' >&2; exit 1",
            "echo '403 env.network_denied: host example.org is not among x' >&2; exit 1",
            "exit 137",
            "exit 152",
            "exit 153",
            "exit 159",
            "kill -XCPU $$",
            "kill -XFSZ $$",
            "kill -SYS $$",
            "ulimit -f 0; exec head -c 1000 /dev/zero > out/small",
            // A script without its x bit is none, walls or not.
            "./out/plain",
            "cat out/missing",
        ] {
            assert_eq!(code(&walls, path, "sh", script).await, UNSEEN, "{script}");
        }
    });
}

/// The ways to end by a signal that the kernel also sends for a wall, without `kill`. `LIBC` is the C library, `CALL` its
/// function for system calls, and `SIGNAL` the number.
const SIGNALS: [(&str, &str); 4] = [
    (
        "timer",
        "
timer, event = ctypes.c_void_p(), (ctypes.c_int * 16)(0, 0, SIGNAL)
assert LIBC.timer_create(1, event, ctypes.byref(timer)) == 0
LIBC.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 0, 1000000), None)
time.sleep(9)",
    ),
    (
        "end of a child process",
        "
clone = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]
if LIBC.syscall(clone, SIGNAL, 0, 0, 0, 0) == 0:
    os._exit(0)
time.sleep(9)",
    ),
    (
        "file",
        "
one, other = os.pipe()
fcntl.fcntl(one, 10, SIGNAL)
fcntl.fcntl(one, fcntl.F_SETOWN, os.getpid())
fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC)
os.write(other, b'x')
time.sleep(9)",
    ),
    (
        "signal of its own",
        "
os.kill(os.getpid(), SIGNAL)",
    ),
];

/// Spec: N3. A signal is no evidence: a program can send itself each, whatever the filter of system calls refuses.
pub(crate) fn signals_of_programs_are_not_believed() {
    if !has_python() {
        return;
    }
    let folder = folder();
    block_on(async {
        let walls = walls(rules(folder.path()).processes(64));
        for signal in [24, 25, 31] {
            for (way, lines) in SIGNALS {
                let script = format!(
                    "
import ctypes, fcntl, os, signal, time
SIGNAL, LIBC = {signal}, ctypes.CDLL(None)
signal.signal(SIGNAL, signal.SIG_DFL)
{lines}"
                );
                let done = python(&walls, &script).await;
                assert_eq!(done.ended.signal, Some(signal), "{way}: {done:?}");
                assert!(done.broken.is_empty(), "signal {signal} by a {way}: {done:?}");
                let described = done.described.unwrap();
                assert!(described.contains(&format!("(signal {signal}")), "{described}");
            }
        }
    });
}

/// Spec: N3. A program can have a filter of its own, which ends it by the same signal.
pub(crate) fn filters_of_programs_are_not_believed() {
    if !has_python() {
        return;
    }
    let folder = folder();
    block_on(async {
        // Refuses `getppid` and ends the process: load the number, compare, return.
        let script = "
import ctypes, os, struct
number = {'x86_64': 110, 'aarch64': 173}[os.uname().machine]
lines = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x80000000), (0x06, 0, 0, 0x7fff0000)]
filter = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in lines))
program = struct.pack('HxxxxxxQ', len(lines), ctypes.addressof(filter))
assert ctypes.CDLL(None).prctl(22, 2, program, 0, 0) == 0
os.getppid()";
        let done = python(&walls(rules(folder.path())), script).await;
        assert_eq!(done.ended.signal, Some(31), "{done:?}");
        assert!(done.broken.is_empty(), "{done:?}");
    });
}

/// Spec: N3. The limit is one of each process: a smaller one of the program's own, or the time of several processes, is
/// not that limit.
pub(crate) fn cpu_claims_of_programs_are_not_believed() {
    block_on(async {
        let walls = walls(Rules::new().cpu(Duration::from_millis(1_500)));
        let spin = "sh -c 'ulimit -S -t 1; while :; do :; done'";
        for script in [
            "ulimit -t 1; while :; do :; done".to_owned(),
            format!("{spin}; {spin}; kill -XCPU $$"),
            format!("{spin}; {spin}; kill -KILL $$"),
            format!("{spin}; {spin}; exit 152"),
        ] {
            let done = run(&walls, program("sh", &["-c", &script], Path::new("/"))).await;
            assert!(!done.ended.is_success() && done.broken.is_empty(), "{script}: {done:?}");
        }
    });
}

/// Spec: N3. A program that may not be started by its mode was not kept by walls.
pub(crate) fn program_without_its_x_bit_is_no_violation() {
    let folder = folder();
    let path = folder.path();
    block_on(async {
        let walls = walls(rules(path));
        let start = async |name: &str| {
            let program = program(path.join(name).to_str().unwrap(), &[], path);
            walls.command(program).spawn().await.map(drop).map_err(|error| error.code())
        };
        assert_eq!(start("out/plain").await, Err("env.provision_failed"));
        fs::set_permissions(path.join("out/plain"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(start("out/plain").await, Ok(()));
        // Neither is one that is not granted and that nobody may start.
        assert_eq!(start("secret").await, Err("env.provision_failed"));
        fs::set_permissions(path.join("secret"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(start("secret").await, Err("env.isolation_violation"));
        // What it names as its interpreter has to be granted, too.
        let script = format!("#!{}\n", path.join("secret").display());
        fs::write(path.join("out/plain"), script).unwrap();
        assert_eq!(start("out/plain").await, Err("env.isolation_violation"));
    });
}

/// The smallest program of 32 bits: `mov eax, 1; xor ebx, ebx; int 0x80`.
fn program_of_32_bits() -> Vec<u8> {
    let mut bytes = b"\x7fELF\x01\x01\x01".to_vec();
    bytes.resize(16, 0);
    let (at, code) = (0x0804_8000_u32, *b"\xb8\x01\0\0\0\x31\xdb\xcd\x80");
    let size = 52 + 32 + u32::try_from(code.len()).unwrap();
    bytes.extend([2_u16, 3].iter().flat_map(|it| it.to_le_bytes()));
    bytes.extend([1, at + 84, 52, 0, 0].iter().flat_map(|it: &u32| it.to_le_bytes()));
    bytes.extend([52_u16, 32, 1, 0, 0, 0].iter().flat_map(|it| it.to_le_bytes()));
    bytes
        .extend([1, 0, at, at, size, size, 5, 0x1000].iter().flat_map(|it: &u32| it.to_le_bytes()));
    bytes.extend(code);
    bytes
}

/// Spec: N2, N3. A signal would be no evidence, and so the program is not started.
pub(crate) fn program_of_another_architecture_is_a_violation() {
    let folder = folder();
    let path = folder.path().join("out/old");
    fs::write(&path, program_of_32_bits()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let runs = std::process::Command::new(&path).status().is_ok_and(|status| status.success());
    let by_script = folder.path().join("out/by_script");
    fs::write(&by_script, format!("#!{}\n", path.display())).unwrap();
    fs::set_permissions(&by_script, fs::Permissions::from_mode(0o755)).unwrap();
    block_on(async {
        let walls = walls(rules(folder.path()));
        for path in [&path, &by_script] {
            let program = program(path.to_str().unwrap(), &[], folder.path());
            let error = walls.command(program).spawn().await.map(drop).unwrap_err();
            assert_eq!(error.code(), "env.isolation_violation", "{error}");
            assert!(error.what().contains("it is a 32-bit program"), "{}", error.what());
        }
        if !runs {
            println!("skipped: this machine runs no programs of 32 bits");
            return;
        }
        // One that a program starts is ended, and only its signal says so.
        let script = format!("exec {}", path.display());
        let done = run(&walls, program("sh", &["-c", &script], folder.path())).await;
        assert!(done.ended.signal == Some(31) && done.broken.is_empty(), "{done:?}");
        let described = done.described.unwrap();
        assert!(described.starts_with("may be the reason: a 32-bit program"), "{described}");
    });
}
