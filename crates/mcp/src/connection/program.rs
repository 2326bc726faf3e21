//! The program of a connection.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::spawn::{Input, Running};

/// How long the end of a program that was killed is waited for.
const KILLED_WAIT: Duration = Duration::from_secs(2);

/// A program that a task of its own keeps, so that it is killed whatever its transport is doing: one that writes
/// without end keeps that busy.
#[derive(Debug)]
pub(super) struct KeptProgram {
    /// Is the program to end by itself?
    ends: CancellationToken,
    /// Is the program to be killed?
    killed: CancellationToken,
    end: watch::Receiver<Option<String>>,
}

impl KeptProgram {
    /// Keeps a program that runs, and its input: a program that ends because that ends is no parent any more of what
    /// it has started, by which that is found.
    pub(super) fn keep(
        mut running: Box<dyn Running>,
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
                    // The wait is for a real process, so the time is the system's.
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

    /// Waits until the program has ended, and says how. What it has left behind is killed.
    pub(super) async fn ended(&self) -> String {
        self.ends.cancel();
        let mut end = self.end.clone();
        let end = end.wait_for(Option::is_some).await;
        // Without its task there is no program either.
        end.ok().and_then(|end| end.clone()).unwrap_or_else(|| "was let go".to_owned())
    }

    /// Kills the program with all that it has started.
    pub(super) fn kill(&self) {
        self.killed.cancel();
    }

    /// Kills the program when this is dropped.
    pub(super) fn guard(&self) -> DropGuard {
        self.killed.clone().drop_guard()
    }
}
