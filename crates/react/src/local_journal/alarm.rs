//! The timer of a run's deadline.

use std::time::Duration;

use backstop_clock::{BoxFuture, RunClock};
use layer0::Timestamp;

/// Maximum time between two checks of the clock, because a timer may be late.
const MAX_SLEEP: Duration = Duration::from_secs(10);

/// A timer for a run's deadline. It is made once and not at every step, because a run waits for other facts a thousand
/// times before it waits for this one.
#[derive(Default)]
pub(super) struct Alarm(Option<(Timestamp, BoxFuture)>);

impl Alarm {
    /// Waits until the run's clock reaches `deadline`; forever without one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; the next one continues the wait.
    pub(super) async fn rings_at(&mut self, deadline: Option<Timestamp>, time: &RunClock) {
        let Some(deadline) = deadline else { return std::future::pending().await };
        // A timer for another deadline fires at the wrong time.
        self.0.take_if(|(at, _)| *at != deadline);
        loop {
            let now = time.now();
            if now >= deadline {
                return self.0 = None;
            }
            // time of day: both are of the clock of the run, which is not set.
            let set = || (deadline, time.clock().sleep(deadline.since(now).min(MAX_SLEEP)));
            let (_, sleep) = self.0.get_or_insert_with(set);
            sleep.await;
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::{Arc, Mutex};

    use backstop_clock::{Clock, RunClock, SystemClock};
    use futures_util::FutureExt;

    /// A clock whose time of day is set with every sleep, and whose sleeps last as long as is next.
    #[derive(Debug, Default)]
    struct Unsteady {
        day: Mutex<i64>,
        passed: Mutex<Duration>,
        steps: Mutex<Vec<u64>>,
        slept: Mutex<Vec<Duration>>,
    }

    impl Clock for Unsteady {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(*self.day.lock().unwrap())
        }

        fn monotonic(&self) -> Duration {
            *self.passed.lock().unwrap()
        }

        fn sleep(&self, wait: Duration) -> BoxFuture {
            let day = &mut *self.day.lock().unwrap();
            *day = if *day == 0 { 86_400_000 } else { -*day };
            self.slept.lock().unwrap().push(wait);
            let step = self.steps.lock().unwrap().pop().unwrap();
            *self.passed.lock().unwrap() += Duration::from_millis(step);
            Box::pin(std::future::ready(()))
        }
    }

    async fn slept(deadline_ms: i64, mut steps: Vec<u64>) -> Vec<Duration> {
        steps.reverse();
        let clock = Arc::new(Unsteady { steps: Mutex::new(steps), ..Unsteady::default() });
        let time = RunClock::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let deadline = Timestamp::from_millis(deadline_ms);
        Alarm::default().rings_at(Some(deadline), &time).await;
        assert!(time.now() >= deadline, "it rang too early");
        std::mem::take(&mut *clock.slept.lock().unwrap())
    }

    /// Spec: B3, D1
    #[tokio::test]
    async fn the_time_of_day_moves_no_deadline() {
        let ms = Duration::from_millis;
        assert_eq!(slept(300, vec![300]).await, [ms(300)]);
        // A timer that was too early is followed by another.
        assert_eq!(slept(300, vec![250, 50]).await, [ms(300), ms(50)]);
        // A timer that was late by a minute is the last.
        assert_eq!(slept(60_000, vec![70_000]).await, [MAX_SLEEP]);
        assert_eq!(slept(0, vec![]).await, []);
    }

    #[tokio::test]
    async fn a_deadline_that_moved_is_slept_for_anew() {
        let time = RunClock::new(Arc::new(SystemClock));
        let mut alarm = Alarm::default();
        let far = time.now().after(Duration::from_secs(9));
        assert!(alarm.rings_at(Some(far), &time).now_or_never().is_none());
        alarm.rings_at(Some(time.now().after(Duration::from_millis(5))), &time).await;
        assert!(time.now() < far, "it waited for the deadline before");
    }
}
