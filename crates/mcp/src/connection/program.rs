//! The program of a connection.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::spawn::{Input, RunningProgram};

/// Time limit of waiting for a killed program.
const KILLED_WAIT: Duration = Duration::from_secs(2);

/// A program that is kept by its own task, so that it can be killed while its transport is busy, such as with output
/// that never ends.
#[derive(Debug)]
pub(super) struct KeptProgram {
    /// Cancelled when the program is expected to end by itself.
    ends: CancellationToken,
    /// Cancelled when the program has to be killed.
    killed: CancellationToken,
    end: watch::Receiver<Option<String>>,
}

impl KeptProgram {
    /// Keeps a running program and its input. If the input were closed, the program might exit, and would no longer be
    /// the parent by which its child processes are found.
    pub(super) fn keep(
        mut running: Box<dyn RunningProgram>,
        input: Arc<Mutex<Input>>,
        programs: &TaskTracker,
    ) -> Arc<Self> {
        let (ended, end) = watch::channel(None);
        let (ends, killed) = (CancellationToken::new(), CancellationToken::new());
        let program = Self { ends: ends.clone(), killed: killed.clone(), end };
        programs.spawn(async move {
            let waited = tokio::select! {
                biased;
                () = killed.cancelled() => None,
                status = async { ends.cancelled().await; running.wait().await } => Some(status),
            };
            let end = match waited {
                Some(Ok(status)) => format!("ended ({status})"),
                Some(Err(error)) => format!("ended ({error})"),
                None => {
                    running.kill();
                    // The wait is for a real process, so it uses the system clock.
                    tokio::select! {
                        _ = running.wait() => {}
                        () = SystemClock.sleep(KILLED_WAIT) => {}
                    }
                    "was let go".to_owned()
                }
            };
            drop((running, input));
            let _ = ended.send(Some(end));
        });
        Arc::new(program)
    }

    /// Waits for the program's end, and describes it. Remaining processes of the program are killed.
    pub(super) async fn wait_for_end(&self) -> String {
        self.ends.cancel();
        let mut end = self.end.clone();
        let end = end.wait_for(Option::is_some).await;
        // Without its task there is no program either.
        end.ok().and_then(|end| end.clone()).unwrap_or_else(|| "was let go".to_owned())
    }

    /// Kills the program with the processes that it has started.
    pub(super) fn kill(&self) {
        self.killed.cancel();
    }

    /// Returns a guard that kills the program when dropped.
    pub(super) fn guard(&self) -> DropGuard {
        self.killed.clone().drop_guard()
    }
}
