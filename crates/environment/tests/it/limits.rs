//! Bombs of every kind.

use std::path::Path;
use std::time::Duration;

use backstop_environment::{Mechanism, Network, Rules};
use layer0::Failure;

use crate::support::{Outcome, block_on, has_python, program, python, run, sh, try_walls, walls};

fn is_exceeded(done: &Outcome, what: &str) {
    let error = done.explained.as_ref().unwrap_or_else(|| panic!("not explained: {done:?}"));
    assert_eq!(error.code(), "env.resource_exceeded");
    assert!(error.what().starts_with(what), "{error}");
}

/// Spec: N3. A fork bomb gets so many processes and no more, and dies with the program.
pub(crate) fn processes_are_limited() {
    if !has_python() {
        return;
    }
    block_on(async {
        let script = "
import os, sys, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
        made += 1
except OSError as e:
    print(made, file=sys.stdout)
    print(e, file=sys.stderr)
    sys.exit(1)
";
        let walls = walls(Rules::new().processes(12).network(Network::None));
        let done = python(&walls, script).await;
        assert_eq!(done.out, "11\n", "the program itself is one of them: {done:?}");
        // With a control group, the limit is reported; a user's limit shows in the program alone.
        let has_group = walls.support().has(Mechanism::PidsGroup);
        match has_group {
            true => is_exceeded(&done, "processes 12 reached"),
            false => assert!(done.broken.is_empty() && done.err.contains("unavailable")),
        }
        let done = sh(&walls, "bomb() { bomb | bomb & }; bomb; wait; sleep 0.2").await;
        assert!(!done.err.is_empty(), "{done:?}");
        // The program finds no control group to leave or to change.
        let groups = "find /sys/fs/cgroup -name pids.max -o -name memory.limit_in_bytes";
        let found = sh(&walls, groups).await;
        assert!(found.out.is_empty() || !has_group, "{found:?}");
        // The next program has the full limit again, and so do concurrent ones.
        let (one, other) = tokio::join!(python(&walls, script), python(&walls, script));
        assert_eq!((one.out.as_str(), other.out.as_str()), ("11\n", "11\n"));
    });
}

/// Spec: N3
pub(crate) fn cpu_is_limited() {
    block_on(async {
        let walls = walls(Rules::new().cpu(Duration::from_millis(500)));
        let done = sh(&walls, "exec sh -c 'while :; do :; done'").await;
        is_exceeded(&done, "cpu 500 ms reached: ");
        // The limit is one of each process, and only a shell reports which one ended its child.
        let done = sh(&walls, "sh -c 'while :; do :; done'; exit $?").await;
        assert!(done.broken.is_empty(), "{done:?}");
        let described = done.described.unwrap();
        let begin = "may be the reason: cpu 500 ms (exit status 152, ";
        assert!(described.starts_with(begin), "{described}");
        assert!(described.ends_with("; granted: cpu 500 ms"), "{described}");
        // A program that ignores the signal is killed.
        if has_python() {
            let script =
                "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass";
            let done = python(&walls, script).await;
            is_exceeded(&done, "cpu 500 ms reached: ");
        }
        assert!(sh(&walls, "true").await.broken.is_empty());
    });
}

/// Spec: N3
pub(crate) fn memory_is_limited() {
    if !has_python() {
        return;
    }
    block_on(async {
        let walls = walls(Rules::new().files().memory_mib(96));
        let done = python(&walls, "print(len(bytearray(16 << 20)))").await;
        assert_eq!(done.out, format!("{}\n", 16 << 20), "{done:?}");
        let done = python(&walls, "a = []\nwhile True: a.append(bytearray(8 << 20))").await;
        if walls.support().has(Mechanism::MemoryGroup) {
            is_exceeded(&done, "memory 96 MiB reached");
            // The limit is for all processes together.
            let script = "
import os
for _ in range(8):
    if os.fork() == 0:
        a = bytearray(40 << 20)
        os.read(0, 1)
        os._exit(0)
while True:
    os.wait()
";
            let done = python(&walls, script).await;
            is_exceeded(&done, "memory 96 MiB reached");
        } else {
            // Files in memory are not counted, and without walls around files some can be written.
            assert!(done.broken.is_empty() && done.err.contains("MemoryError"), "{done:?}");
            let error = try_walls(Rules::new().memory_mib(96)).unwrap_err();
            assert!(error.what().contains("`/dev/shm`"), "{error}");
        }
    });
}

/// Spec: N3. Memory that is in no address space: what holds it lives, and its control group goes.
pub(crate) fn memory_of_files_is_limited() {
    if !has_python() {
        return;
    }
    block_on(async {
        let walls = walls(Rules::new().files().memory_mib(64));
        let script = "
import os
try:
    a = os.memfd_create('a')
except OSError as e:
    print(e.strerror)
    raise SystemExit(1)
while True:
    os.write(a, bytes(1 << 20))
";
        let before = groups();
        let done = python(&walls, script).await;
        if walls.support().has(Mechanism::MemoryGroup) {
            is_exceeded(&done, "memory 64 MiB reached");
        } else {
            assert_eq!(done.out, "Operation not permitted\n", "{done:?}");
        }
        assert_eq!(groups(), before);
    });
}

/// Returns the control groups that this process has created.
fn groups() -> Vec<String> {
    let name = format!("backstop-{}-*", std::process::id());
    let found =
        std::process::Command::new("find").args(["/sys/fs/cgroup", "-name", &name]).output();
    String::from_utf8_lossy(&found.unwrap().stdout).lines().map(ToOwned::to_owned).collect()
}

/// Spec: N3
pub(crate) fn file_size_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let walls = walls(Rules::new().folder(folder.path()).write(["."]).file_mib(1));
        let done = run(
            &walls,
            program("sh", &["-c", "exec head -c 3000000 /dev/zero > large"], folder.path()),
        )
        .await;
        assert!(done.broken.is_empty() && done.ended.signal == Some(25), "{done:?}");
        let described = done.described.unwrap();
        let begin = "may be the reason: file size 1 MiB (signal 25); granted: read none, write .";
        assert!(described.starts_with(begin), "{described}");
        if has_python() {
            let script = "open('large2', 'wb').write(bytes(3 << 20))";
            let done = run(&walls, program("python3", &["-c", script], folder.path())).await;
            // It ignores the signal, and nothing but its own words tells of the limit.
            assert!(done.broken.is_empty() && done.err.contains("File too large"), "{done:?}");
        }
        for file in std::fs::read_dir(folder.path()).unwrap().flatten() {
            assert!(file.metadata().unwrap().len() <= 1 << 20);
        }
        let fits =
            program("sh", &["-c", "head -c 900000 /dev/zero > small"], Path::new(folder.path()));
        assert!(run(&walls, fits).await.ended.is_success());
    });
}

/// Spec: N3
pub(crate) fn wall_time_is_limited() {
    block_on(async {
        let walls = walls(Rules::new().wall(Duration::from_millis(200)));
        // Its child processes end with it, and so do its outputs.
        let done = sh(&walls, "trap '' TERM INT; sleep 61 & sleep 62; echo done").await;
        assert_eq!((done.ended.signal, done.out.as_str()), (Some(9), ""));
        is_exceeded(&done, "wall 200 ms reached");
        assert!(sh(&walls, "true").await.broken.is_empty());
    });
}
