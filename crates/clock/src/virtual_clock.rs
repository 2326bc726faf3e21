use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use layer0::Timestamp;

use crate::{BoxFuture, Clock};

/// A clock that jumps to the next deadline as soon as everything it tracks waits for it.
///
/// It counts busy work: tracked tasks that can run, and [`ClockHold`]s around work it cannot see, such
/// as a database on another thread. When the count reaches zero, the earliest sleeper is woken.
/// Clones share one clock.
///
/// Time does not pass for a task that the clock does not track: its sleep waits for a tracked task that never comes.
/// A test passes its own future through [`VirtualClock::track`]. If a sleep begins before any
/// task is tracked, the clock prints a warning to standard error, once.
///
/// ```
/// use std::time::Duration;
///
/// use backstop_clock::{Clock, VirtualClock};
/// use layer0::Timestamp;
///
/// // #[tokio::test]
/// # #[tokio::main(flavor = "current_thread")]
/// async fn main() {
///     let clock = VirtualClock::starting_at(Timestamp::from_millis(0));
///     let own = clock.clone();
///     let test = async move {
///         own.sleep(Duration::from_secs(50)).await;
///         own.now()
///     };
///     assert_eq!(clock.track(test).await, Timestamp::from_millis(50_000));
/// }
/// ```
#[derive(Clone)]
pub struct VirtualClock(Arc<Mutex<ClockState>>);

struct ClockState {
    now: Timestamp,
    /// The difference between the time of day that was set and the time that has passed.
    set_by_ms: i64,
    started: Timestamp,
    busy: usize,
    /// Whether a task was ever tracked, or the missing task was reported.
    is_driven: bool,
    next_sleeper: u64,
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
}

impl ClockState {
    /// Counts a task or a hold as busy.
    const fn begin(&mut self) {
        self.busy += 1;
        self.is_driven = true;
    }

    /// Reports a sleep that nothing would end, once.
    fn check_driven(&mut self) {
        if !std::mem::replace(&mut self.is_driven, true) {
            warn_of_hang();
        }
    }
}

/// Writes past the capture of tests: a test that hangs prints nothing else.
#[expect(clippy::disallowed_methods, reason = "a test that hangs has no other way to say why")]
fn warn_of_hang() {
    let text = "a sleep waits on a virtual clock that tracks nothing, so no time passes: pass the test's future \
                through `VirtualClock::track`";
    drop(writeln!(std::io::stderr(), "{text}"));
}

impl VirtualClock {
    /// Starts a clock at `now`.
    #[must_use]
    pub fn starting_at(now: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(ClockState {
            now,
            set_by_ms: 0,
            started: now,
            busy: 0,
            is_driven: false,
            next_sleeper: 0,
            sleepers: BTreeMap::new(),
        })))
    }

    /// Keeps the clock from advancing until the hold is dropped.
    #[must_use]
    pub fn hold(&self) -> ClockHold {
        self.state().begin();
        ClockHold(self.clone())
    }

    /// Returns a future that counts as busy work whenever `task` can run, and returns its result. It may borrow, and
    /// need not be sent to another thread.
    pub fn track<F: Future>(&self, task: F) -> impl Future<Output = F::Output> + use<F> {
        self.state().begin();
        let shared = Arc::new(TaskState {
            clock: self.clone(),
            runnable: AtomicBool::new(true),
            executor: Mutex::new(Waker::noop().clone()),
        });
        let waker = Waker::from(Arc::clone(&shared));
        Tracked { task: Some(Box::pin(task)), waker, shared }
    }

    /// Sets the time of day ahead, or back if `by_ms` is negative, as a person or a time server does. Sleeps and
    /// [`Clock::monotonic`] are not affected.
    pub fn set_time_of_day(&self, by_ms: i64) {
        let mut state = self.state();
        state.set_by_ms = state.set_by_ms.saturating_add(by_ms);
    }

    fn state(&self) -> MutexGuard<'_, ClockState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decrements the busy count; at zero, jumps to the next deadline and wakes its sleepers.
    fn release(&self) {
        let woken: Vec<Waker> = {
            let mut state = self.state();
            state.busy = state.busy.saturating_sub(1);
            if state.busy > 0 {
                return;
            }
            let Some((&(deadline, _), _)) = state.sleepers.first_key_value() else { return };
            state.now = state.now.max(deadline);
            let later = state.sleepers.split_off(&(deadline, u64::MAX));
            std::mem::replace(&mut state.sleepers, later).into_values().collect()
        };
        // Outside the lock: waking marks tasks as busy again.
        woken.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for VirtualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualClock").field("now", &self.state().now).finish_non_exhaustive()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let state = self.state();
        Timestamp::from_millis(state.now.as_millis().saturating_add(state.set_by_ms))
    }

    fn monotonic(&self) -> Duration {
        let state = self.state();
        state.now.since(state.started)
    }

    fn sleep(&self, wait: Duration) -> BoxFuture {
        let mut state = self.state();
        // Deadlines have a resolution of one millisecond; a shorter wait still passes some time.
        let wait = if wait.is_zero() { wait } else { wait.max(Duration::from_millis(1)) };
        let deadline = state.now.after(wait);
        let id = state.next_sleeper;
        state.next_sleeper += 1;
        drop(state);
        Box::pin(Sleep { clock: self.clone(), key: (deadline, id) })
    }

    fn track(&self, task: BoxFuture) -> BoxFuture {
        Box::pin(Self::track(self, task))
    }
}

/// A guard that keeps a [`VirtualClock`] from advancing until it is dropped.
#[derive(Debug)]
pub struct ClockHold(VirtualClock);

impl Drop for ClockHold {
    fn drop(&mut self) {
        self.0.release();
    }
}

struct Sleep {
    clock: VirtualClock,
    key: (Timestamp, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.state();
        if state.now >= self.key.0 {
            state.sleepers.remove(&self.key);
            return Poll::Ready(());
        }
        state.sleepers.insert(self.key, cx.waker().clone());
        state.check_driven();
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.clock.state().sleepers.remove(&self.key);
    }
}

/// A task that the clock counts as busy while it is runnable.
struct Tracked<F> {
    /// `None` once it is dropped.
    task: Option<Pin<Box<F>>>,
    shared: Arc<TaskState>,
    waker: Waker,
}

struct TaskState {
    clock: VirtualClock,
    /// Whether the busy count includes this task.
    runnable: AtomicBool,
    executor: Mutex<Waker>,
}

impl TaskState {
    /// Counts the task as busy, once. The flag changes under the lock of the count: otherwise a
    /// poll in between would take over a count that does not exist yet.
    fn mark_runnable(&self) {
        let mut state = self.clock.state();
        if !self.runnable.swap(true, Ordering::SeqCst) {
            state.busy += 1;
        }
    }

    /// Removes the task from the count; returns whether it was counted.
    fn forget(&self) -> bool {
        let _locked = self.clock.state();
        self.runnable.swap(false, Ordering::SeqCst)
    }

    /// Takes over the task's count for a poll, so that a wake during the poll adds one of its own.
    fn take_over(&self) -> ClockHold {
        let mut state = self.clock.state();
        if !self.runnable.swap(false, Ordering::SeqCst) {
            state.busy += 1;
        }
        ClockHold(self.clock.clone())
    }
}

impl Wake for TaskState {
    fn wake(self: Arc<Self>) {
        self.mark_runnable();
        let executor = self.executor.lock().unwrap_or_else(PoisonError::into_inner).clone();
        executor.wake();
    }
}

impl<F: Future> Future for Tracked<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        this.shared.executor.lock().unwrap_or_else(PoisonError::into_inner).clone_from(cx.waker());
        let _taken = this.shared.take_over();
        let Some(task) = &mut this.task else { return Poll::Pending };
        task.as_mut().poll(&mut Context::from_waker(&this.waker))
    }
}

impl<F> Drop for Tracked<F> {
    fn drop(&mut self) {
        // The task and its sleeps are dropped first, so that the clock does not advance to them.
        self.task = None;
        if self.shared.forget() {
            self.shared.clock.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    async fn run<T: Send + 'static>(
        clock: &VirtualClock,
        task: impl Future<Output = T> + Send + 'static,
    ) -> T {
        tokio::spawn(clock.track(task)).await.unwrap()
    }

    #[tokio::test]
    async fn tracked_futures_return_and_borrow() {
        let clock = VirtualClock::starting_at(start());
        let name = String::from("rope");
        let length = clock.track(async {
            clock.sleep(Duration::from_secs(7)).await;
            name.len()
        });
        assert_eq!(length.await, 4);
        assert_eq!(clock.monotonic(), Duration::from_secs(7));
    }

    #[tokio::test]
    async fn sleeps_without_a_tracked_task_are_reported() {
        let clock = VirtualClock::starting_at(start());
        let driven = || clock.state().is_driven;
        let mut sleep = clock.sleep(Duration::from_secs(1));
        assert!(!driven());
        assert!(poll_once(&mut sleep).is_pending());
        assert!(driven(), "it was reported, and is not again");
    }

    fn poll_once(sleep: &mut BoxFuture) -> Poll<()> {
        sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn an_hour_passes_at_once() {
        let clock = VirtualClock::starting_at(start());
        let sleeper = clock.clone();
        run(&clock, async move { sleeper.sleep(Duration::from_secs(3600)).await }).await;
        assert_eq!(clock.now().since(start()), Duration::from_secs(3600));
    }

    #[tokio::test]
    async fn setting_the_time_of_day_moves_no_sleep() {
        let clock = VirtualClock::starting_at(start());
        let sleeper = clock.clone();
        run(&clock, async move {
            let sleep = sleeper.sleep(Duration::from_secs(10));
            sleeper.set_time_of_day(-3_600_000);
            sleep.await;
        })
        .await;
        assert_eq!(clock.monotonic(), Duration::from_secs(10));
        assert_eq!(start().since(clock.now()), Duration::from_secs(3_590));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sleepers_wake_in_order_of_their_deadlines() {
        for _ in 0..200 {
            let clock = VirtualClock::starting_at(start());
            let order = Arc::new(Mutex::new(Vec::new()));
            let root = clock.clone();
            let seen = Arc::clone(&order);
            run(&clock, async move {
                let mut tasks = Vec::new();
                for ms in [30_u64, 10, 20] {
                    let (clock, order) = (root.clone(), Arc::clone(&seen));
                    let (done, result) = tokio::sync::oneshot::channel();
                    tokio::spawn(root.track(Box::pin(async move {
                        clock.sleep(Duration::from_millis(ms)).await;
                        order.lock().unwrap().push(ms);
                        let _ = done.send(());
                    })));
                    tasks.push(result);
                }
                for task in tasks {
                    task.await.unwrap();
                }
            })
            .await;
            assert_eq!(*order.lock().unwrap(), [10, 20, 30]);
            assert_eq!(clock.now().since(start()), Duration::from_millis(30));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hold_keeps_time_still() {
        let clock = VirtualClock::starting_at(start());
        let inner = clock.clone();
        let at = run(&clock, async move {
            let (release, released) = tokio::sync::oneshot::channel::<()>();
            let timer = inner.sleep(Duration::from_secs(5));
            let hold = inner.hold();
            std::thread::spawn(move || {
                std::thread::yield_now();
                let _ = release.send(());
            });
            let winner = tokio::select! {
                biased;
                () = timer => "timer",
                _ = released => "work",
            };
            drop(hold);
            (winner, inner.now())
        })
        .await;
        assert_eq!(at, ("work", start()));
    }
}
