//! Named trials that all run, even if some of them fail.

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

/// Default time limit of a trial. Most take milliseconds; a busy machine is not a defect.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Time after which a task counts as not woken: a log may look for rows of other processes every few seconds.
const WAKE_LIMIT: Duration = Duration::from_secs(10);

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// Opens the store at one place, anew each time: like another process, or the same process later.
pub type Open<S> = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Arc<S>>>>>;

/// Checks one promise on one subject. It panics if the subject breaks it.
pub(super) type Check<T> = fn(T) -> Running;

/// One promise of a contract, checked on a subject of its own.
#[must_use = "a trial that is not run holds nothing"]
pub struct Trial {
    name: &'static str,
    time_limit: Duration,
    run: Box<dyn FnOnce() -> Running + Send>,
}

/// The trials of a contract, in order.
///
/// A trial that fails, panics or hangs does not keep the others from running. From one test:
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use backstop_event_log::MemoryLog;
///
/// // #[tokio::test]
/// # #[tokio::main(flavor = "current_thread")]
/// async fn main() {
///     let suite = backstop_testkit::contract::event_log(async || Arc::new(MemoryLog::new()) as _);
///     suite.time_limit(Duration::from_secs(10)).check().await;
/// }
/// ```
///
/// From a test with `harness = false`, where each trial is a test that can be named on the command line:
///
/// ```
/// use std::sync::Arc;
///
/// use backstop_event_log::MemoryLog;
/// use libtest_mimic::{Arguments, run};
///
/// fn main() {
///     let suite = backstop_testkit::contract::event_log(async || Arc::new(MemoryLog::new()) as _);
///     let trials = suite.into_iter().map(|trial| {
///         libtest_mimic::Trial::test(trial.name(), move || Ok(trial.run_blocking()?))
///     });
///     // Usually `Arguments::from_args()`.
///     run(&Arguments::default(), trials.collect()).exit_if_failed();
/// }
/// ```
#[must_use = "a suite that is not run holds nothing"]
#[derive(Debug)]
pub struct Suite(Vec<Trial>);

/// A trial that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedTrial {
    /// Name of the trial.
    pub trial: &'static str,
    /// Behaviour of the subject.
    pub why: String,
}

impl Trial {
    /// Returns the name: a promise of the contract, as an identifier.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Sets the time limit; a minute by default.
    pub const fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Makes a subject and checks it.
    ///
    /// # Errors
    ///
    /// [`FailedTrial`], also if it panics elsewhere or takes too long. A subject that blocks its thread for ever is not
    /// detected.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the subject.
    #[expect(clippy::disallowed_methods, reason = "what hangs has to end, whatever its clock")]
    pub async fn run(self) -> Result<(), FailedTrial> {
        let Self { name, time_limit, run } = self;
        let trying = AssertUnwindSafe(async move { run().await }).catch_unwind();
        let why = match tokio::time::timeout(time_limit, trying).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(panic)) => text(&*panic).to_owned(),
            Err(_) => format!("takes longer than {time_limit:?}"),
        };
        Err(FailedTrial { trial: name, why })
    }

    /// Makes a subject and checks it, in a runtime of its own on this thread.
    ///
    /// # Errors
    ///
    /// As [`Trial::run`].
    ///
    /// # Panics
    ///
    /// If the operating system provides no runtime, or inside of one.
    pub fn run_blocking(self) -> Result<(), FailedTrial> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be made").block_on(self.run())
    }
}

impl Suite {
    /// Makes a suite of checks, each on a subject of its own.
    pub(super) fn new<T: 'static>(
        make: impl AsyncFn() -> T + Send + Sync + 'static,
        checks: impl IntoIterator<Item = (&'static str, Check<T>)>,
    ) -> Self {
        let make = Arc::new(make);
        let trial = |(name, check): (_, Check<T>)| {
            let make = Arc::clone(&make);
            let run = move || -> Running { Box::pin(async move { check(make().await).await }) };
            Trial { name, time_limit: TIME_LIMIT, run: Box::new(run) }
        };
        Self(checks.into_iter().map(trial).collect())
    }

    /// Sets the time limit of each trial; a minute by default.
    pub fn time_limit(self, limit: Duration) -> Self {
        Self(self.0.into_iter().map(|trial| trial.time_limit(limit)).collect())
    }

    /// Adds the trials of another suite.
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Runs all trials, one after the other, and returns those that failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the running trial; the later ones do not run.
    pub async fn run(self) -> Vec<FailedTrial> {
        let mut failed = Vec::new();
        for trial in self {
            failed.extend(trial.run().await.err());
        }
        failed
    }

    /// Runs all trials, one after the other.
    ///
    /// # Panics
    ///
    /// If any failed; the message names all failed trials, with their reasons.
    pub async fn check(self) {
        let count = self.0.len();
        let failed: Vec<String> = self.run().await.iter().map(ToString::to_string).collect();
        let failures = failed.len();
        assert!(failed.is_empty(), "{failures} of {count} trials failed:\n{}", failed.join("\n"));
    }
}

impl IntoIterator for Suite {
    type Item = Trial;
    type IntoIter = std::vec::IntoIter<Trial>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trial")
            .field("name", &self.name)
            .field("time_limit", &self.time_limit)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for FailedTrial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.trial, self.why)
    }
}

impl std::error::Error for FailedTrial {}

/// Lists checks with their names.
macro_rules! checks {
    ($($check:path),+ $(,)?) => {
        [$(
            (
                $crate::contract::suite::last_of(stringify!($check)),
                (|subject| Box::pin($check(subject)) as _) as $crate::contract::suite::Check<_>,
            )
        ),+]
    };
}

pub(super) use checks;

/// Returns the last part of a path.
pub(super) fn last_of(path: &'static str) -> &'static str {
    path.rsplit("::").next().unwrap_or(path).trim()
}

/// Waits for a wake-up, and fails with the promise if it does not come. The trial's limit is longer, and names no
/// reason.
#[expect(clippy::disallowed_methods, reason = "what hangs has to end, whatever its clock")]
pub(super) async fn woken<T>(promise: &str, waiting: impl Future<Output = T>) -> T {
    let woken = tokio::time::timeout(WAKE_LIMIT, waiting).await;
    woken.unwrap_or_else(|_| panic!("{promise}: not woken within {WAKE_LIMIT:?}"))
}

fn text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn holds(_: u8) {}

    async fn fails(subject: u8) {
        panic!("no {subject}");
    }

    async fn hangs(_: u8) {
        std::future::pending::<()>().await;
    }

    fn suite() -> Suite {
        let suite = Suite::new(async || 7, checks![holds, fails, hangs, fails, holds]);
        suite.time_limit(Duration::from_millis(1))
    }

    #[tokio::test]
    async fn every_trial_runs_whichever_fail() {
        let failed: Vec<String> = suite().run().await.iter().map(ToString::to_string).collect();
        assert_eq!(failed, ["fails: no 7", "hangs: takes longer than 1ms", "fails: no 7"]);
    }

    #[tokio::test]
    async fn a_check_names_all_that_failed() {
        let checked = AssertUnwindSafe(suite().check()).catch_unwind().await;
        let panic = checked.expect_err("three of them fail");
        let said = "3 of 5 trials failed:\nfails: no 7\nhangs: takes longer than 1ms\nfails: no 7";
        assert_eq!(text(&*panic), said);
    }

    #[test]
    fn a_trial_runs_without_a_runtime() {
        let [first, second] = [0, 1].map(|at| suite().into_iter().nth(at).expect("one of five"));
        assert_eq!((first.name(), first.run_blocking()), ("holds", Ok(())));
        assert_eq!(second.run_blocking().map_err(|failed| failed.trial), Err("fails"));
    }
}
