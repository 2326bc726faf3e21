use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout};

use crate::postgres::binaries::{self, not_tested};
use crate::postgres::{PostgresServer, named_url};

use super::*;

/// Variable that marks the test that acts as a process of a run.
const IS_PROCESS: &str = "BACKSTOP_TEST_IS_PROCESS_OF_RUN";
/// Replacement of cargo: it starts test processes, two of them concurrently, and then stays alive.
const RUN: &str = r#"
read -r begin
"$@" & one=$!; "$@" & two=$!; wait $one $two
"$@"
echo done
read -r end
"#;

/// A process of a test run, which makes a database and prints its URL.
#[tokio::test]
async fn process_of_a_run() {
    if std::env::var_os(IS_PROCESS).is_none() {
        return;
    }
    let server = PostgresServer::shared().unwrap();
    println!("\nat {}", server.database().await);
}

/// A test run, with the output of its processes.
struct Run {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Run {
    /// Makes a run that has not begun. `None`, with a notice, if tests start no server.
    fn new() -> Option<Self> {
        if named_url().is_some() {
            not_tested("one server for a test run: the server is given");
            return None;
        }
        binaries::find()?;
        let mut process = Command::new("sh");
        process.args(["-c", RUN, "sh"]).arg(std::env::current_exe().unwrap());
        let test = concat!(module_path!(), "::process_of_a_run");
        process.args(["--exact", test.split_once("::").unwrap().1, "--nocapture"]);
        process.env(IS_PROCESS, "1").env("CARGO", "cargo");
        let mut process = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Some(Self { process, lines })
    }

    fn file(&self) -> PathBuf {
        path_of(self.process.id())
    }

    /// Begins the run, and returns the databases of its processes, that of the last one at the end.
    fn databases(&mut self) -> [String; 3] {
        self.process.stdin.as_mut().unwrap().write_all(b"begin\n").unwrap();
        let lines = self.lines.by_ref().map(Result::unwrap).take_while(|line| line != "done");
        let made = lines.filter_map(|line| Some(line.strip_prefix("at ")?.to_owned()));
        made.collect::<Vec<_>>().try_into().unwrap()
    }

    /// Kills the run, without any chance to react.
    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.kill();
    }
}

fn server(database: &str) -> &str {
    database.rsplit_once('/').unwrap().0
}

#[test]
fn processes_of_a_run_share_its_server() {
    let Some(mut run) = Run::new() else { return };
    let [one, two, last] = run.databases();
    assert_eq!((server(&one), server(&two)), (server(&last), server(&last)));
    assert!(!waiting::answers(&one) && !waiting::answers(&two), "they are those of the dead");
    assert!(waiting::answers(&last) && run.file().exists());
    let file = run.file();
    run.kill();
    waiting::until("the server is gone", || !waiting::answers(&last));
    waiting::until("its file is gone", || !file.exists());
}

#[test]
fn runs_have_a_server_each() {
    let (Some(mut one), Some(mut other)) = (Run::new(), Run::new()) else { return };
    let ([_, _, of_one], [_, _, of_other]) = (one.databases(), other.databases());
    assert_ne!(server(&of_one), server(&of_other));
    one.kill();
    waiting::until("the server is gone", || !waiting::answers(&of_one));
    assert!(waiting::answers(&of_other), "its run goes on");
}

#[test]
fn file_of_a_dead_run_does_no_harm() {
    for stale in [&b"postgres://backstop@127.0.0.1:1"[..], b"no URL", b"\xff"] {
        let Some(mut run) = Run::new() else { return };
        std::fs::write(run.file(), stale).unwrap();
        let [one, two, last] = run.databases();
        assert_eq!((server(&one), server(&two)), (server(&last), server(&last)));
        assert_eq!(std::fs::read_to_string(run.file()).unwrap(), server(&last));
    }
}
