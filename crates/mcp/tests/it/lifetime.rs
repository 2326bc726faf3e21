//! Lifetime of servers' programs and of their child processes.
//!
//! The processes hold a named pipe open, which ends when the last of them has died.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_clock::{BoxFuture, Clock, SystemClock};
use backstop_mcp::McpServer;
use layer0::Timestamp;
use layer0::failure::{Effect, Failure};
use libtest_mimic::Trial;

use crate::server::Script;
use crate::support::{Faulty, Way, call, checks, until};

pub(crate) fn trials() -> Vec<Trial> {
    if !cfg!(target_os = "linux") {
        return vec![];
    }
    checks![
        closed_clients_leave_no_process,
        dropped_clients_leave_no_process,
        killed_processes_leave_no_server,
        servers_that_are_closed_stay_away,
        starts_go_on_without_the_call,
        start_that_panics_is_begun_again,
        start_that_never_runs_is_begun_again,
        starts_end_with_the_client
    ]
}

/// Ways to start processes outside the group; each runs `held`, which reports its start and waits.
const WAYS: [&str; 4] = [
    "setsid sh -c \"$HELD\" &",
    "(setsid sh -c \"$HELD\" &)",
    "(nohup setsid sh -c \"$HELD\" <&- >&- 2>&- &)",
    "setsid env -u BACKSTOP_CALL sh -c \"$HELD\" &",
];

/// Returns the commands that start these processes with a pipe in the server's folder, which the server holds open too.
fn before(way: &str) -> String {
    format!(
        "mkfifo pipe; HELD='exec 9>pipe; echo up >&9; sleep 30; echo outlived >&9'; export HELD; \
         {way}\nexec 9>pipe; echo up >&9; unset HELD"
    )
}

fn script(way: &str, fault: &str) -> Script {
    Script { before: before(way), ..Script::faulty(fault) }
}

/// Waits until the server and its processes have started, and returns the reader of their pipe.
async fn up(folder: &Path) -> BufReader<File> {
    let pipe = folder.join("pipe");
    until(|| pipe.exists()).await;
    let read = tokio::task::spawn_blocking(move || {
        let mut reader = BufReader::new(File::open(pipe).unwrap());
        for _ in 0..2 {
            let mut line = String::new();
            while line.is_empty() {
                // A pipe that one process has closed and another has not opened yet ends for a moment.
                reader.read_line(&mut line).unwrap();
            }
            assert_eq!(line, "up\n");
        }
        reader
    });
    read.await.unwrap()
}

/// Waits until all processes have died, and returns their remaining output.
async fn rest(mut reader: BufReader<File>) -> String {
    let read = tokio::task::spawn_blocking(move || {
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        rest
    });
    read.await.unwrap()
}

/// Connects, and waits until all processes have started.
async fn connected(
    faulty: &Faulty,
    server: McpServer,
) -> (Arc<backstop_mcp::McpClient>, BufReader<File>) {
    let (client, reader) = tokio::join!(server.connect(), up(faulty.folder()));
    (client.unwrap(), reader)
}

/// Spec: T7, Q3
async fn dropped_clients_leave_no_process() {
    for way in WAYS {
        for fault in ["", "floods"] {
            let (faulty, server) = Faulty::new(Way::ALL[0], script(way, fault));
            let (client, reader) = connected(&faulty, server).await;
            if fault == "floods" {
                tokio::select! {
                    result = call(&client, "act") => panic!("{result:?}"),
                    () = until(|| faulty.calls().len() == 1) => {}
                }
            }
            drop(client);
            assert_eq!(rest(reader).await, "", "{way} {fault}");
        }
    }
}

/// Spec: T7, Q3
async fn closed_clients_leave_no_process() {
    let (faulty, server) = Faulty::new(Way::ALL[0], script(WAYS[0], "floods"));
    let (client, reader) = connected(&faulty, server).await;
    tokio::select! {
        result = call(&client, "act") => panic!("{result:?}"),
        () = until(|| faulty.calls().len() == 1) => {}
    }
    client.close().await;
    let process = format!("/proc/{}", faulty.processes()[0]);
    assert!(!Path::new(&process).exists(), "it was waited for");
    assert_eq!(rest(reader).await, "");
}

/// Spec: Q5
async fn servers_that_are_closed_stay_away() {
    let (faulty, server) = Faulty::new(Way::ALL[0], Script::faulty(""));
    let client = server.connect().await.unwrap();
    client.close().await;
    assert!(!client.is_connected());
    let error = call(&client, "act").await.unwrap_err();
    assert_eq!((error.code(), faulty.starts()), ("tool.unavailable", 1));
    assert!(format!("{error:?}").contains("`faulty` was closed"), "{error:?}");
}

/// A clock that panics at the next zero wait, once it is armed.
#[derive(Debug, Default)]
struct PanickingClock(AtomicBool);

impl Clock for PanickingClock {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }

    fn sleep(&self, wait: Duration) -> BoxFuture {
        assert!(!wait.is_zero() || !self.0.swap(false, Ordering::SeqCst), "the clock is armed");
        SystemClock.sleep(wait)
    }
}

/// Spec: Q5
async fn start_that_panics_is_begun_again() {
    let (_faulty, server) = Faulty::new(Way::ALL[0], Script::faulty("dies_in_call"));
    let clock = Arc::new(PanickingClock::default());
    let client = server.clock(Arc::clone(&clock) as Arc<dyn Clock>).connect().await.unwrap();
    assert_eq!(call(&client, "act").await.unwrap_err().code(), "tool.interrupted");
    clock.0.store(true, Ordering::SeqCst);
    let error = call(&client, "act").await.unwrap_err();
    assert_eq!((error.code(), error.is_retryable()), ("tool.unavailable", true));
    assert!(format!("{error:?}").contains("`faulty` was cut short"), "{error:?}");
    assert_eq!(call(&client, "act").await.unwrap().as_string().as_deref(), Some("act is done"));
}

/// Spec: Q5. The runtime of a call ends before the start that the call began is polled.
async fn start_that_never_runs_is_begun_again() {
    let (faulty, server) = Faulty::new(Way::ALL[0], Script::faulty("dies_in_call"));
    let client = server.connect().await.unwrap();
    assert_eq!(call(&client, "act").await.unwrap_err().code(), "tool.interrupted");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let mut calling = std::pin::pin!(call(&client, "act"));
            runtime.unwrap().block_on(std::future::poll_fn(|context| {
                assert!(calling.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            }));
        });
    });
    assert_eq!(faulty.starts(), 1);
    assert_eq!(call(&client, "act").await.unwrap().as_string().as_deref(), Some("act is done"));
}

/// Describes a server that dies in its first call, and whose restart takes longer than a call may take.
fn slow_to_start(seconds: u32) -> Script {
    let before = format!("test -e starts && {{ echo $$ >now; mv now again; sleep {seconds}; }}");
    Script { before, ..Script::faulty("dies_in_call") }
}

/// Spec: Q5
async fn starts_go_on_without_the_call() {
    let (faulty, server) = Faulty::new(Way::ALL[0], slow_to_start(2));
    let client = server.timeout(Duration::from_millis(400)).connect().await.unwrap();
    assert_eq!(call(&client, "act").await.unwrap_err().code(), "tool.interrupted");
    let mut codes = Vec::new();
    let answer = loop {
        match call(&client, "act").await {
            Ok(answer) => break answer,
            Err(error) => codes.push((error.code(), error.effect())),
        }
    };
    assert_eq!(answer.as_string().unwrap(), "act is done");
    assert!(
        codes.len() > 2 && codes.iter().all(|it| *it == ("tool.timeout", Effect::None)),
        "{codes:?}"
    );
    assert_eq!(faulty.starts(), 2);
}

/// Spec: Q3
async fn starts_end_with_the_client() {
    let (faulty, server) = Faulty::new(Way::ALL[0], slow_to_start(60));
    let client = server.timeout(Duration::from_millis(100)).connect().await.unwrap();
    call(&client, "act").await.unwrap_err();
    assert_eq!(call(&client, "act").await.unwrap_err().code(), "tool.timeout");
    let again = faulty.folder().join("again");
    until(|| again.exists()).await;
    let process = std::fs::read_to_string(again).unwrap();
    let process = Path::new("/proc").join(process.trim());
    assert!(process.exists());
    let begun = SystemClock.monotonic();
    client.close().await;
    // A start that continues would take ten seconds to be abandoned.
    assert!(SystemClock.monotonic() - begun < Duration::from_secs(5));
    assert!(!process.exists(), "the program that was starting was waited for");
    let error = call(&client, "act").await.unwrap_err();
    assert_eq!((error.code(), faulty.starts()), ("tool.unavailable", 1));
}

/// Spec: T7. The server of a dead process would act beside its own second execution.
async fn killed_processes_leave_no_server() {
    // A process without its mark has no parent left that knows it.
    for way in &WAYS[..3] {
        let folder = tempfile::tempdir().unwrap();
        let mut script = script(way, "");
        script.folder = folder.path().to_str().unwrap().to_owned();
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .arg("hold")
            .env("HELD_SCRIPT", serde_json::to_string(&script).unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let reader = up(folder.path()).await;
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert_eq!(rest(reader).await, "", "{way}");
    }
}

/// Runs the process that is killed, which holds a server.
pub(crate) fn hold() {
    let script: Script = serde_json::from_str(&std::env::var("HELD_SCRIPT").unwrap()).unwrap();
    let folder = script.folder.clone();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (_faulty, server) = Faulty::new(Way::ALL[0], script);
        let _client = server.folder(folder).connect().await.unwrap();
        SystemClock.sleep(Duration::from_secs(60)).await;
    });
}
