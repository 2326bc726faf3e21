//! A kernel without user namespaces: Landlock, seccomp, and the helper as the parent of orphans.

use std::path::Path;

use backstop_environment::{Mechanism, Network, Rules};
use layer0::Failure;

use crate::support::{
    block_on, has_python, new_mark, processes_with, program, python, run, sh, try_walls, walls,
};

fn hosts() -> Rules {
    Rules::new().network(Network::Hosts(vec!["api.example.com".to_owned()]))
}

/// Spec: N2
pub(crate) fn hosts_are_refused() {
    let error = try_walls(hosts()).unwrap_err();
    assert_eq!(error.code(), "env.provision_failed");
    let what = error.what();
    assert!(what.contains("network cannot be enforced: network namespace: "), "{what}");
    assert!(try_walls(Rules::new().network(Network::Loopback)).is_err());
    let support = walls(Rules::new()).support().clone();
    assert!(!support.has(Mechanism::UserNamespace), "{support:?}");
    let user = support.rows().iter().find(|row| row.mechanism == Mechanism::UserNamespace).unwrap();
    assert_eq!(user.mend.as_deref(), Some("`sysctl user.max_user_namespaces=10000`"));
}

/// Spec: N2
pub(crate) fn hosts_run_by_best_effort() {
    if !has_python() {
        return;
    }
    block_on(async {
        let walls = walls(hosts().best_effort());
        let rules: Vec<_> = walls.not_enforced().iter().map(|it| it.rule).collect();
        assert_eq!(rules, ["network"]);
        let granted = walls.describe_grants();
        assert_eq!(granted.as_deref(), Some("network api.example.com (in part)"));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = format!(
            "
import os, socket, urllib.request, urllib.error
def tried(name, work):
    try:
        work()
        print(name)
    except OSError as e:
        pass
tried('tcp', lambda: socket.create_connection(('127.0.0.1', {port}), 2))
tried('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
tried('listen', lambda: socket.create_server(('127.0.0.1', 0)))
try:
    urllib.request.urlopen('http://example.org/', timeout=5)
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode(), end='')
"
        );
        let done = python(&walls, &script).await;
        assert_eq!(
            done.out, "403 env.network_denied: host example.org is not among api.example.com\n",
            "{done:?}"
        );
    });
}

/// Spec: N2
pub(crate) fn no_network_is_held() {
    if !has_python() {
        return;
    }
    block_on(async {
        let walls = walls(Rules::new().network(Network::None));
        assert!(walls.not_enforced().is_empty());
        let script = "
import socket
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            socket.socket(family, kind)
            print(family, kind)
        except PermissionError:
            pass
socket.socketpair()
";
        let done = python(&walls, script).await;
        assert_eq!((done.ended.code, done.out.as_str()), (Some(0), ""), "{done:?}");
    });
}

/// Spec: N2
pub(crate) fn files_are_walled() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "hidden").unwrap();
    block_on(async {
        let walls = walls(Rules::new().files());
        let done = run(&walls, program("cat", &["secret"], folder.path())).await;
        assert!(done.out.is_empty() && done.err.contains("Permission denied"), "{done:?}");
        let parent = std::process::id();
        let granted = crate::support::walls(Rules::new().read(["/proc"]));
        let done = sh(&granted, &format!("cat /proc/{parent}/environ")).await;
        assert_eq!(done.out, "", "{done:?}");
    });
}

/// Spec: N3
pub(crate) fn nothing_outlives_the_program() {
    if !has_python() {
        return;
    }
    block_on(async {
        let mark = new_mark();
        let script = "
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
        os._exit(0)
    os.wait()
";
        let program = program("python3", &["-c", script, &mark], Path::new("/"));
        let walls = walls(Rules::new());
        assert!(run(&walls, program).await.ended.is_success());
        assert_eq!(processes_with(&mark), 0);
    });
}

/// Spec: N3. The inner helper is in the same walls, the outer one and the parent are not.
pub(crate) fn program_cannot_end_its_helper() {
    if !has_python() {
        return;
    }
    block_on(async {
        let this = std::process::id();
        let script = format!(
            "
import os, signal
outer = 0
for line in open('/proc/%d/status' % os.getppid()):
    if line.startswith('PPid:'):
        outer = int(line.split()[1])
for who in (outer, {this}):
    try:
        os.kill(who, 0)
        print(who)
    except PermissionError:
        print('refused')
"
        );
        let walls = walls(Rules::new());
        let done = python(&walls, &script).await;
        assert_eq!(done.out, "refused\nrefused\n", "{done:?}");
        // Without the inner helper, the outer one ends all remaining processes.
        let mark = new_mark();
        let script = "
import os, signal, time
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
time.sleep(0.2)
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(600)
";
        let done = run(&walls, program("python3", &["-c", script, &mark], Path::new("/"))).await;
        assert_eq!(done.ended.signal, Some(9), "{done:?}");
        assert_eq!(processes_with(&mark), 0);
    });
}

/// Spec: N2. A program that may write its control group is not held by it.
pub(crate) fn processes_are_refused() {
    let error = try_walls(Rules::new().processes(8)).unwrap_err();
    assert!(error.what().starts_with("processes cannot be enforced: "), "{error}");
    if walls(Rules::new()).support().has(Mechanism::PidsGroup) {
        assert!(try_walls(Rules::new().processes(8).files()).is_ok());
        let write = Rules::new().processes(8).write(["/sys/fs/cgroup"]);
        assert!(try_walls(write).is_err());
    }
}
