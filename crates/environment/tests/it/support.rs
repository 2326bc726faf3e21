//! Programs within walls, and their surroundings.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_environment::{Helper, ProgramExit, Rules, Walled, WalledProgram, Walls};
use layer0::error::EnvError;
use tokio::io::AsyncReadExt;

/// The outcome of a program.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) ended: ProgramExit,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) broken: Vec<EnvError>,
    pub(crate) explained: Option<EnvError>,
    pub(crate) described: Option<String>,
}

impl Outcome {
    /// Returns the reported interventions of the walls.
    pub(crate) fn reasons(&self) -> Vec<String> {
        self.broken.iter().map(|it| it.what().into_owned()).collect()
    }
}

/// Runs a future on separate threads.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(work)
}

pub(crate) fn walls(rules: Rules) -> Walls {
    try_walls(rules).unwrap()
}

pub(crate) fn try_walls(rules: Rules) -> Result<Walls, EnvError> {
    Walls::new(rules, Helper::this_program().unwrap())
}

pub(crate) fn variables() -> BTreeMap<String, String> {
    BTreeMap::from([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())])
}

pub(crate) fn program(name: &str, arguments: &[&str], folder: &Path) -> WalledProgram {
    WalledProgram::new(name, arguments.iter().map(|it| (*it).to_owned()), folder, variables())
}

/// Runs a shell script within walls.
pub(crate) async fn sh(walls: &Walls, script: &str) -> Outcome {
    run(walls, program("sh", &["-c", script], Path::new("/"))).await
}

/// Runs a Python program within walls.
pub(crate) async fn python(walls: &Walls, script: &str) -> Outcome {
    run(walls, program("python3", &["-c", script], Path::new("/"))).await
}

pub(crate) async fn run(walls: &Walls, program: WalledProgram) -> Outcome {
    finish(walls.command(program).spawn().await.unwrap()).await
}

pub(crate) async fn finish(mut walled: Walled) -> Outcome {
    drop(walled.stdin.take());
    let (mut stdout, mut stderr) = (walled.stdout.take().unwrap(), walled.stderr.take().unwrap());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (read, also) = tokio::join!(stdout.read_to_end(&mut out), stderr.read_to_end(&mut err));
    read.unwrap();
    also.unwrap();
    let ended = walled.wait().await.unwrap();
    let [out, err] = [out, err].map(|text| String::from_utf8_lossy(&text).into_owned());
    let explained = walled.explain(&err);
    let (broken, described) = (walled.broken(), walled.describe_walls());
    Outcome { ended, out, err, broken, explained, described }
}

/// Runs a Python script without walls, to show that an attack works there.
pub(crate) async fn python_outside(script: &str) -> String {
    let mut command = tokio::process::Command::new("python3");
    let output = command.args(["-c", script]).output().await.unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns whether Python is installed. Without it, a test is skipped with a message.
pub(crate) fn has_python() -> bool {
    let is_there = Command::new("python3").arg("--version").output().is_ok();
    if !is_there {
        println!("skipped: there is no python3 here, whose attacks are tried");
    }
    is_there
}

pub(crate) async fn short_while() {
    SystemClock.sleep(Duration::from_millis(10)).await;
}

/// Waits until a condition holds; returns whether it did within the time.
pub(crate) async fn becomes(within: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let began = SystemClock.monotonic();
    while !is_so() {
        if SystemClock.monotonic() - began > within {
            return false;
        }
        short_while().await;
    }
    true
}

/// Counts the processes of this machine whose command contains a mark.
pub(crate) fn processes_with(mark: &str) -> usize {
    let folder = std::fs::read_dir("/proc").unwrap().flatten();
    let commands = folder.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
    commands.filter(|command| String::from_utf8_lossy(command).contains(mark)).count()
}

/// Returns a mark that no other process has.
pub(crate) fn new_mark() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("mark-{}-{}-", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
