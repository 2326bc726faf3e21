//! Lifetime of programs and their resources.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use backstop_environment::{Network, Rules, Walled};
use futures_util::future::join_all;
use tokio::io::AsyncReadExt;

use crate::again::this_program;
use crate::support::{
    becomes, block_on, has_python, new_mark, processes_with, program, python, sh, walls,
};

/// Time limit for the end of remaining processes.
const SOON: Duration = Duration::from_secs(1);

/// A typical daemon: forked twice, in its own session, ignoring signals. Prints when it has started.
const DAEMON: &str = "
import os, signal, sys, time
mark = sys.argv[1]
heard, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        print('there', flush=True)
        os.write(told, b'.')
        time.sleep(600)
    os._exit(0)
os.wait()
os.read(heard, 1)
";

fn rules() -> Rules {
    Rules::new().files().network(Network::None).processes(20).memory_mib(200)
}

/// Starts a daemon with a mark, and waits for it; the program itself remains if `stays` is set.
async fn start(mark: &str, stays: bool) -> Walled {
    let stays = if stays { "time.sleep(600)" } else { "" };
    let script = format!("{DAEMON}{stays}");
    let program = program("python3", &["-c", &script, mark], Path::new("/"));
    let mut walled = walls(rules()).command(program).spawn().await.unwrap();
    let mut said = [0; 6];
    walled.stdout.as_mut().unwrap().read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"there\n");
    walled
}

/// Spec: N3
pub(crate) fn nothing_outlives_the_program() {
    if !has_python() {
        return;
    }
    block_on(async {
        let mark = new_mark();
        let mut walled = start(&mark, false).await;
        assert!(walled.wait().await.unwrap().is_success());
        assert_eq!(processes_with(&mark), 0);
    });
}

/// Spec: N3
pub(crate) fn dropped_program_is_killed() {
    if !has_python() {
        return;
    }
    block_on(async {
        let mark = new_mark();
        let walled = start(&mark, true).await;
        assert_eq!(processes_with(&mark), 2);
        drop(walled);
        assert!(becomes(SOON, || processes_with(&mark) == 0).await);
    });
}

/// Spec: N3
pub(crate) fn nothing_outlives_a_killed_parent() {
    if !has_python() {
        return;
    }
    let mark = new_mark();
    let mut parent = this_program("parent").arg(&mark).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "started\n");
    // The program, its daemon, and the parent.
    assert!(block_on(becomes(SOON, || processes_with(&mark) == 3)));
    let name = format!("backstop-{}-", parent.id());
    let is_left = || groups().iter().any(|group| group.contains(&name));
    parent.kill().unwrap();
    parent.wait().unwrap();
    block_on(async {
        assert!(becomes(SOON, || processes_with(&mark) == 0).await);
        assert!(becomes(SOON, || !is_left()).await, "{:?}", groups());
    });
}

/// Runs the parent that is killed.
pub(crate) fn start_and_wait() {
    let mark = std::env::args().nth(1).unwrap();
    block_on(async {
        let mut walled = start(&mark, true).await;
        println!("started");
        drop(walled.wait().await);
    });
}

/// Spec: N3
pub(crate) fn hundred_run_side_by_side() {
    block_on(async {
        let walls = walls(rules());
        let runs = (0..100).map(|number| {
            let walls = walls.clone();
            async move { sh(&walls, &format!("echo {number}; exit {}", number % 7)).await }
        });
        for (number, done) in join_all(runs).await.into_iter().enumerate() {
            assert_eq!(done.out, format!("{number}\n"), "{done:?}");
            assert_eq!(done.ended.code, Some(i32::try_from(number % 7).unwrap()));
        }
    });
}

/// Spec: N2. No process, file, descriptor or group, whether it ran, failed, was dropped or never started.
pub(crate) fn nothing_is_left_behind() {
    if !has_python() {
        return;
    }
    if is_alone() {
        return block_on(leave_nothing());
    }
    let alone = this_program("alone").args(ALONE).output().unwrap();
    let [out, err] = [&alone.stdout, &alone.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(alone.status.success() && out.contains("1 passed"), "{out}\n{err}");
}

/// The arguments that run only this case, in a process where nothing else starts processes.
const ALONE: [&str; 2] = ["--exact", "lifetime::nothing_is_left_behind"];

fn is_alone() -> bool {
    std::env::var("BACKSTOP_TEST_ROLE").as_deref() == Ok("alone")
}

async fn leave_nothing() {
    let walls = walls(rules().wall(Duration::from_secs(5)));
    // Resources that are created only once remain.
    sh(&walls, "true").await;
    let before = left();
    sh(&walls, "exit 3").await;
    sh(&walls, "kill -9 $$").await;
    python(&walls, "import os\nwhile True: os.fork()").await;
    let program = |name: &str| program(name, &["60"], Path::new("/"));
    assert!(walls.command(program("not-there")).spawn().await.is_err());
    drop(walls.command(program("sleep")).spawn().await.unwrap());
    drop(tokio::spawn(walls.command(program("sleep")).spawn()).await);
    let given_up = tokio::spawn(walls.command(program("sleep")).spawn());
    given_up.abort();
    drop(given_up.await);
    let is_clean = becomes(SOON, || left() == before).await;
    assert!(is_clean, "{before:?} {:?}", left());
}

/// Returns the resources of this process: children, open files, groups.
fn left() -> (Vec<String>, usize, Vec<String>) {
    let this = std::process::id();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let children = tasks.flat_map(|task| {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        text.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>()
    });
    let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let own = format!("backstop-{this}-");
    (children.collect(), files, groups().into_iter().filter(|it| it.contains(&own)).collect())
}

/// Returns the control groups that walls of any process have created.
fn groups() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new("/sys/fs/cgroup").to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with("backstop-") {
                    found.push(name);
                }
                folders.push(entry.path());
            }
        }
    }
    found
}
