//! The end of a run's time, as something to wait for.

use std::sync::Arc;
use std::time::Duration;

use clock::{BoxFuture, Clock};
use layer0::Timestamp;

/// How long is slept at most before the time of day is looked at again: it may be set, and timers stand
/// still while a machine is suspended.
const MAX_SLEEP: Duration = Duration::from_secs(10);

/// Waits for a run's deadline. A timer is made once and not at every step, because a run waits for
/// something else a thousand times before it waits for this.
#[derive(Default)]
pub(crate) struct Alarm(Option<(Timestamp, BoxFuture)>);

impl Alarm {
    /// Waits until the clock says `deadline`; for ever without one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future forgets nothing; the next one waits on.
    pub(crate) async fn rings_at(&mut self, deadline: Option<Timestamp>, clock: &Arc<dyn Clock>) {
        let Some(deadline) = deadline else { return std::future::pending().await };
        // A timer for another deadline rings at the wrong time.
        self.0.take_if(|(at, _)| *at != deadline);
        loop {
            let now = clock.now();
            if now >= deadline {
                return self.0 = None;
            }
            let set = || (deadline, clock.sleep(deadline.since(now).min(MAX_SLEEP)));
            let (_, sleep) = self.0.get_or_insert_with(set);
            sleep.await;
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Mutex;

    use futures_util::FutureExt;

    /// A clock whose time of day does not go with its timers: each sleep moves it by what is next.
    #[derive(Debug)]
    struct Unsteady {
        now: Mutex<i64>,
        steps: Mutex<Vec<i64>>,
        slept: Mutex<Vec<Duration>>,
    }

    impl Clock for Unsteady {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(*self.now.lock().unwrap())
        }

        fn sleep(&self, wait: Duration) -> BoxFuture {
            self.slept.lock().unwrap().push(wait);
            *self.now.lock().unwrap() += self.steps.lock().unwrap().pop().unwrap();
            Box::pin(std::future::ready(()))
        }
    }

    async fn slept(deadline_ms: i64, mut steps: Vec<i64>) -> Vec<Duration> {
        steps.reverse();
        let clock = Arc::new(Unsteady {
            now: Mutex::new(0),
            steps: Mutex::new(steps),
            slept: Mutex::default(),
        });
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as Arc<dyn Clock>;
        let deadline = Timestamp::from_millis(deadline_ms);
        Alarm::default().rings_at(Some(deadline), &shared).await;
        assert!(clock.now() >= deadline, "it rang too early");
        std::mem::take(&mut *clock.slept.lock().unwrap())
    }

    /// Spec: B3
    #[tokio::test]
    async fn it_rings_when_the_clock_says_so_and_no_timer() {
        let ms = Duration::from_millis;
        assert_eq!(slept(300, vec![300]).await, [ms(300)]);
        // The clock was set back by 50 ms meanwhile.
        assert_eq!(slept(300, vec![250, 50]).await, [ms(300), ms(50)]);
        // It was set ahead by a minute while the first sleep lasted.
        assert_eq!(slept(60_000, vec![70_000]).await, [MAX_SLEEP]);
        assert_eq!(slept(0, vec![]).await, []);
    }

    #[tokio::test]
    async fn a_deadline_that_moved_is_slept_for_anew() {
        let clock: Arc<dyn Clock> = Arc::new(clock::SystemClock);
        let mut alarm = Alarm::default();
        let far = clock.now().after(Duration::from_secs(9));
        assert!(alarm.rings_at(Some(far), &clock).now_or_never().is_none());
        alarm.rings_at(Some(clock.now().after(Duration::from_millis(5))), &clock).await;
        assert!(clock.now() < far, "it waited for the deadline before");
    }
}
