//! Files inside and outside the walls.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use backstop_environment::{Mechanism, Network, Rules};
use layer0::Failure;
use tempfile::TempDir;

use crate::support::{block_on, has_python, program, python, run, sh, try_walls, walls};

/// Returns a folder that contains `data`, `out` and a `secret`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("data")).unwrap();
    fs::create_dir(path.join("out")).unwrap();
    fs::write(path.join("data/note"), "hello").unwrap();
    fs::write(path.join("secret"), "hidden").unwrap();
    folder
}

fn rules(folder: &Path) -> Rules {
    Rules::new().folder(folder).read(["./data"]).write(["./out"])
}

/// Spec: N1
pub(crate) fn granted_files_are_read_and_written() {
    let folder = folder();
    block_on(async {
        let walls = walls(rules(folder.path()));
        assert!(walls.not_enforced().is_empty());
        let script = "cat data/note > out/copy && mkdir out/a && mv out/copy out/a/copy && \
                      cat out/a/copy && printf '#!/bin/sh\necho ran' > out/x && chmod +x out/x && \
                      out/x && echo > /dev/null && head -c 1 /dev/urandom > /dev/null && \
                      ls data && rm -r out/a";
        let done = run(&walls, program("sh", &["-c", script], folder.path())).await;
        assert_eq!(done.out, "helloran\nnote\n", "{done:?}");
        assert!(done.ended.is_success() && done.broken.is_empty(), "{done:?}");
    });
}

/// Spec: N3
pub(crate) fn files_outside_are_not_read() {
    let folder = folder();
    block_on(async {
        let walls = walls(rules(folder.path()));
        for path in ["secret", "./out/../secret", "/etc/shadow", "/etc/hostname", "/root/x", "."] {
            let done = run(
                &walls,
                program("sh", &["-c", "cat \"$0\" || ls \"$0/\"", path], folder.path()),
            )
            .await;
            assert!(!done.ended.is_success(), "{path}: {done:?}");
            assert_eq!(done.out, "", "{path}");
        }
        let done = run(&walls, program("cat", &["secret"], folder.path())).await;
        assert!(done.err.contains("Permission denied"), "{done:?}");
        assert!(done.explained.is_none(), "nothing outside of the program sees it: {done:?}");
        assert_eq!(walls.rules().describe_grants().as_deref(), Some("read ./data, write ./out"));
        // Without walls the file can be read.
        let open = crate::support::walls(Rules::new());
        assert_eq!(run(&open, program("cat", &["secret"], folder.path())).await.out, "hidden");
    });
}

/// Spec: N3
pub(crate) fn files_outside_are_not_written() {
    let folder = folder();
    block_on(async {
        let walls = walls(rules(folder.path()));
        for script in [
            "echo x > secret",
            "echo x >> secret",
            "echo x > new",
            "echo x > data/note",
            "echo x > data/new",
            "mkdir data/new",
            "rm data/note",
            "rm secret",
            "mv secret out/secret",
            "mv data/note out/note",
            "ln secret out/linked && echo x > out/linked",
            "truncate -s 0 secret",
            "ln -s x data/link",
            "echo x > /tmp/backstop-outside",
        ] {
            let done = run(&walls, program("sh", &["-c", script], folder.path())).await;
            assert!(!done.ended.is_success(), "{script}: {done:?}");
        }
        assert_eq!(fs::read_to_string(folder.path().join("secret")).unwrap(), "hidden");
        assert_eq!(fs::read_to_string(folder.path().join("data/note")).unwrap(), "hello");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        assert!(!Path::new("/tmp/backstop-outside").exists());
    });
}

/// Spec: N3. Landlock does not hold these.
pub(crate) fn attributes_outside_are_not_written() {
    let folder = folder();
    block_on(async {
        let walls = walls(rules(folder.path()));
        for script in [
            "chmod 777 secret",
            "chmod 000 data/note",
            "chmod 777 .",
            "touch -d 2001-01-01 secret",
            "chown $(id -u) secret",
            "cp data/note out/n && chmod 700 out/n && touch -d 2001-01-01 out/n && touch secret",
        ] {
            let done = run(&walls, program("sh", &["-c", script], folder.path())).await;
            assert!(!done.ended.is_success(), "{script}: {done:?}");
        }
        let mode =
            |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode("out/n") & 0o777, 0o700, "what is granted is changed");
        assert_eq!(mode("secret") & 0o777, mode("data/note") & 0o777);
        let open = crate::support::walls(Rules::new());
        let done = run(&open, program("chmod", &["600", "secret"], folder.path())).await;
        assert!(done.ended.is_success() && mode("secret") & 0o777 == 0o600, "{done:?}");
    });
}

/// Spec: N3. Others of this machine could run them as the user that Backstop runs as.
pub(crate) fn files_with_borrowed_rights_are_not_made() {
    if !has_python() {
        return;
    }
    let folder = folder();
    block_on(async {
        let walls = walls(rules(folder.path()));
        let script = "
import os
open('out/plain', 'w').close()
def tried(name, work):
    try:
        work()
    except PermissionError as e:
        print(name)
for bit in (0o4000, 0o2000):
    tried('chmod', lambda: os.chmod('out/plain', 0o755 | bit))
    tried('fchmod', lambda: os.fchmod(os.open('out/plain', os.O_RDONLY), 0o755 | bit))
    tried('fchmodat', lambda: os.chmod('plain', 0o755 | bit, dir_fd=os.open('out', os.O_RDONLY)))
    tried('open', lambda: os.open('out/new', os.O_CREAT | os.O_WRONLY, 0o755 | bit))
    tried('temporary', lambda: os.open('out', os.O_TMPFILE | os.O_WRONLY, 0o755 | bit))
    tried('mknod', lambda: os.mknod('out/node', 0o755 | bit))
os.chmod('out/plain', 0o1755)
os.close(os.open('out/plain', os.O_RDONLY, 0o7777))
";
        let done = run(&walls, program("python3", &["-c", script], folder.path())).await;
        let names = "chmod\nfchmod\nfchmodat\nopen\ntemporary\nmknod\n";
        assert_eq!(done.out, names.repeat(2), "{done:?}");
        assert!(done.ended.is_success(), "{done:?}");
        let made: Vec<_> = fs::read_dir(folder.path().join("out")).unwrap().flatten().collect();
        assert_eq!(made.len(), 1, "{made:?}");
        assert_eq!(made[0].metadata().unwrap().permissions().mode() & 0o6000, 0);
    });
}

/// Spec: N3. A program is told of no change in folders that it is not granted, nor anywhere else.
pub(crate) fn changes_are_not_told_of() {
    if !has_python() {
        return;
    }
    let script = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.inotify_init1(0) >= 0, os.strerror(ctypes.get_errno()))
";
    block_on(async {
        let done = python(&walls(Rules::new().files()), script).await;
        assert_eq!(done.out, "False Function not implemented\n", "{done:?}");
        // Without walls around files, nothing has to be hidden.
        assert!(python(&walls(Rules::new()), script).await.out.starts_with("True"));
    });
}

/// Spec: N3
pub(crate) fn links_do_not_lead_out() {
    let folder = folder();
    block_on(async {
        let walls = walls(rules(folder.path()));
        std::os::unix::fs::symlink(folder.path().join("secret"), folder.path().join("data/out"))
            .unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("out/up")).unwrap();
        for script in [
            "cat data/out",
            "cat out/up/secret",
            "echo x > out/up/new",
            "ln -s ../secret out/own && cat out/own",
            "ln -s /etc/shadow out/own && cat out/own",
        ] {
            let done = run(&walls, program("sh", &["-c", script], folder.path())).await;
            assert!(!done.ended.is_success() && done.out.is_empty(), "{script}: {done:?}");
        }
    });
}

/// Spec: N3. A program that ran before may have put a link in the place of what is listed.
pub(crate) fn swapped_paths_grant_nothing() {
    let folder = folder();
    let path = folder.path();
    fs::create_dir(path.join("out/kept")).unwrap();
    fs::create_dir(path.join("private")).unwrap();
    fs::write(path.join("private/key"), "hidden").unwrap();
    block_on(async {
        let rules = || Rules::new().folder(path).read(["./data", "./out/kept"]).write(["./out"]);
        let walls = walls(rules());
        let swap = "rmdir out/kept && ln -s ../private out/kept && cat out/kept/key";
        for script in [swap, "cat out/kept/key"] {
            let done = run(&walls, program("sh", &["-c", script], path)).await;
            assert_eq!(done.out, "", "{script}: {done:?}");
        }
        let error = try_walls(rules()).unwrap_err();
        assert!(
            error.what().contains("`./out/kept` is listed, but leads out of `./out`"),
            "{error}"
        );
        // A change from outside is noticed too.
        fs::rename(path.join("data"), path.join("moved")).unwrap();
        std::os::unix::fs::symlink("private", path.join("data")).unwrap();
        let error = walls.command(program("cat", &["data/key"], path)).spawn().await.unwrap_err();
        assert_eq!(error.code(), "env.provision_failed");
        assert!(error.what().contains("a link was put in its place"), "{error}");
    });
}

/// Spec: N3
pub(crate) fn processes_outside_are_not_read() {
    if !has_python() {
        return;
    }
    block_on(async {
        let parent = std::process::id();
        let script = format!(
            "
import os
for name in ['environ', 'mem', 'maps', 'auxv', 'fd/0', 'fd/1', 'cwd/etc/passwd', 'root/etc/passwd', 'exe']:
    path = '/proc/{parent}/' + name
    try:
        if name.startswith('fd'):
            print(name, os.readlink(path))
        else:
            with open(path, 'rb') as f:
                print(name, len(f.read(1)) if name != 'mem' else 'opened')
    except OSError as e:
        pass
"
        );
        // Without walls, everything can be read.
        let outside = crate::support::python_outside(&script).await;
        assert!(outside.contains("environ 1"), "{outside}");
        // A rule of any kind hides the parent's process, even if /proc is granted.
        for rules in
            [Rules::new().read(["/proc"]), Rules::new().network(Network::None), Rules::new()]
        {
            let done = python(&walls(rules), &script).await;
            assert!(done.ended.is_success(), "{done:?}");
            assert_eq!(done.out, "", "{done:?}");
        }
        // Without /proc in the rules there is not even a list.
        let done = sh(&walls(Rules::new().files()), "ls /proc; cat /proc/version").await;
        assert_eq!(done.out, "", "{done:?}");
    });
}

/// Spec: N1
pub(crate) fn interpreters_start() {
    block_on(async {
        let walls = walls(Rules::new().files().network(Network::None));
        for (name, code) in [
            ("sh", "echo 42"),
            ("bash", "echo 42"),
            ("perl", "print 42, \"\\n\""),
            ("python3", "import json, ssl, subprocess; print(json.dumps(42))"),
            ("node", "console.log(42)"),
        ] {
            let flag = if matches!(name, "node" | "perl") { "-e" } else { "-c" };
            if std::process::Command::new(name).arg("--version").output().is_err() {
                println!("skipped: there is no {name} here");
                continue;
            }
            let done = run(&walls, program(name, &[flag, code], Path::new("/"))).await;
            assert_eq!(done.out, "42\n", "{name}: {done:?}");
        }
    });
}

/// Spec: N1
pub(crate) fn listed_path_has_to_be_there() {
    let error = try_walls(Rules::new().folder("/tmp").read(["./not-there"])).unwrap_err();
    assert_eq!(error.code(), "env.provision_failed");
    assert!(error.what().starts_with("`./not-there` is listed, but cannot be reached"), "{error}");
}

/// Spec: N3
pub(crate) fn program_outside_is_not_granted() {
    let folder = folder();
    let tool = folder.path().join("tool");
    fs::copy("/bin/true", &tool).unwrap();
    block_on(async {
        let walls = walls(rules(folder.path()));
        assert!(walls.support().has(Mechanism::Landlock));
        let program = program(tool.to_str().unwrap(), &[], folder.path());
        let error = walls.command(program).spawn().await.unwrap_err();
        assert_eq!(error.code(), "env.isolation_violation");
        assert!(error.what().contains("is not granted: Permission denied"), "{error}");
    });
}
