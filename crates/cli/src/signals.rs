//! Stop requests of the system: Ctrl-C, SIGTERM, a closed terminal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_react::CancellationToken;

use crate::output;

/// The time limit of a write to standard output after a request to stop.
const UNREAD: Duration = Duration::from_secs(5);

/// Whether there is nothing left to cancel.
static OVER: AtomicBool = AtomicBool::new(false);

/// Returns a token that the first signal cancels, so that the run ends with a complete record. The second signal ends
/// the process at once, and so does the first one after the end of the run.
///
/// A signal cancels before anything is printed, and takes no lock.
pub(crate) fn interrupt() -> CancellationToken {
    let token = CancellationToken::new();
    let cancelled = token.clone();
    let mut signals = StopSignals::new();
    tokio::spawn(async move {
        while let Some(ReceivedSignal { number, insists, .. }) = signals.next().await {
            let again = insists && cancelled.is_cancelled();
            if again || OVER.load(Ordering::SeqCst) {
                // 128 plus the number of the signal, as in shells.
                std::process::exit(128 + number);
            }
            if !cancelled.is_cancelled() {
                cancelled.cancel();
                output::alert("stopping; press Ctrl-C again to stop at once");
                tokio::spawn(leave_unread_output(128 + number));
            }
        }
    });
    token
}

/// Ends the process if a write to standard output blocks, because the cancelled run waits for that write.
async fn leave_unread_output(code: i32) {
    loop {
        SystemClock.sleep(UNREAD / 10).await;
        if output::writes_for(UNREAD) {
            std::process::exit(code);
        }
    }
}

/// Waits for a stop request; returns the exit code for it.
pub(crate) async fn told_to_stop() -> u8 {
    match StopSignals::new().next().await {
        // 128 plus the number of the signal, as in shells.
        Some(told) => u8::try_from(128 + told.number).unwrap_or(u8::MAX),
        None => std::future::pending().await,
    }
}

/// The turns of a conversation. Ctrl-C stops the current turn, not the program. A signal that ends the program stops
/// the current turn first; between turns it ends the program at once.
#[derive(Clone, Default)]
pub(crate) struct ChatTurns(Arc<Mutex<TurnState>>);

#[derive(Default)]
struct TurnState {
    going_on: Option<CancellationToken>,
    has_ended: bool,
}

impl ChatTurns {
    /// Installs the signal handlers. This comes before the line editor, which restores those that it finds.
    pub(crate) fn start() -> Self {
        let turns = Self::default();
        let listening = turns.clone();
        let mut signals = StopSignals::new();
        tokio::spawn(async move {
            while let Some(told) = signals.next().await {
                listening.tell(&told);
            }
        });
        turns
    }

    fn tell(&self, told: &ReceivedSignal) {
        let mut turn = self.lock();
        match &turn.going_on {
            Some(token) if !token.is_cancelled() => {
                token.cancel();
                output::note("stopping the turn; press Ctrl-C again to leave at once");
            }
            // The turn does not stop.
            Some(_) if told.insists => output::leave(128 + told.number),
            // There is no turn while a line is edited; its terminal is restored.
            None if told.ends => output::leave(128 + told.number),
            _ => {}
        }
        turn.has_ended |= told.ends;
    }

    /// Begins a turn; returns the token that stops it.
    pub(crate) fn begin(&self) -> CancellationToken {
        let token = CancellationToken::new();
        self.lock().going_on = Some(token.clone());
        token
    }

    /// Ends the turn.
    pub(crate) fn end(&self) {
        self.lock().going_on = None;
    }

    /// Returns whether the program was asked to end.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    fn lock(&self) -> MutexGuard<'_, TurnState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A received signal.
struct ReceivedSignal {
    number: i32,
    /// Whether a second one asks for more than the first. A closed terminal may send its signal twice.
    insists: bool,
    /// Whether it is meant for the whole program.
    ends: bool,
}

/// Records that the run is over and only its report is left to print.
pub(crate) fn run_is_over() {
    OVER.store(true, Ordering::SeqCst);
}

/// Records that another run begins.
pub(crate) fn run_begins() {
    OVER.store(false, Ordering::SeqCst);
}

/// The signals that ask to stop.
#[cfg(unix)]
struct StopSignals {
    hangup: Option<tokio::signal::unix::Signal>,
    interrupt: Option<tokio::signal::unix::Signal>,
    terminate: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl StopSignals {
    fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        // Under `nohup`, a closed terminal changes nothing.
        let hangup = SignalKind::hangup();
        let hangup = (!is_ignored(hangup)).then(|| signal(hangup).ok()).flatten();
        let interrupt = signal(SignalKind::interrupt()).ok();
        Self { hangup, interrupt, terminate: signal(SignalKind::terminate()).ok() }
    }

    async fn next(&mut self) -> Option<ReceivedSignal> {
        use tokio::signal::unix::{Signal, SignalKind};
        async fn next(signal: &mut Option<Signal>) {
            let came = match signal {
                Some(signal) => signal.recv().await,
                None => None,
            };
            if came.is_none() {
                std::future::pending::<()>().await;
            }
        }
        let (kind, insists, ends) = tokio::select! {
            () = next(&mut self.interrupt) => (SignalKind::interrupt(), true, false),
            () = next(&mut self.terminate) => (SignalKind::terminate(), true, true),
            () = next(&mut self.hangup) => (SignalKind::hangup(), false, true),
        };
        Some(ReceivedSignal { number: kind.as_raw_value(), insists, ends })
    }
}

/// Returns whether the process was started with the signal ignored; `false` if that is unknown.
#[cfg(unix)]
fn is_ignored(signal: tokio::signal::unix::SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or_default() >> (signal.as_raw_value() - 1) & 1 == 1
}

/// The signal of Ctrl-C.
#[cfg(not(unix))]
struct StopSignals;

#[cfg(not(unix))]
impl StopSignals {
    const fn new() -> Self {
        Self
    }

    async fn next(&mut self) -> Option<ReceivedSignal> {
        tokio::signal::ctrl_c().await.ok().map(|()| ReceivedSignal {
            number: 2,
            insists: true,
            ends: false,
        })
    }
}

/// Turns a write beyond the file size limit into an error; by default the system ends the process.
///
/// The signal is handled instead of ignored, so that programs of tools get its default action.
#[cfg(unix)]
pub(crate) fn survive_the_file_limit() {
    use tokio::signal::unix::{SignalKind, signal};
    let exceeded = rustix::process::Signal::XFSZ.as_raw();
    // The handler stays installed. If that fails, the default action remains.
    let _ = signal(SignalKind::from_raw(exceeded));
}

/// This system has no such signal.
#[cfg(not(unix))]
pub(crate) const fn survive_the_file_limit() {}
