//! The end of a run's time, as something to wait for.

use std::sync::Arc;

use clock::{BoxFuture, Clock};
use layer0::Timestamp;

/// Waits for a run's deadline. The clock is asked once for each deadline and not at every step,
/// because a run waits for something else a thousand times before it waits for this.
#[derive(Default)]
pub(crate) struct Alarm(Option<(Timestamp, BoxFuture)>);

impl Alarm {
    /// Waits until `deadline`; for ever without one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future forgets nothing; the next one waits on.
    pub(crate) async fn rings_at(&mut self, deadline: Option<Timestamp>, clock: &Arc<dyn Clock>) {
        let Some(deadline) = deadline else { return std::future::pending().await };
        self.0.take_if(|(at, _)| *at != deadline);
        let set = || (deadline, clock.sleep(deadline.since(clock.now())));
        let (_, sleep) = self.0.get_or_insert_with(set);
        sleep.await;
        self.0 = None;
    }
}
