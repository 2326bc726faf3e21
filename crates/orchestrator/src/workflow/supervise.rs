use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use layer0::Operator;
use layer0::code;
use layer0::error::OperatorError;
use layer0::failure::Failure;
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;

use super::fan_out::{done_by, propagate_stop};

/// Default number of restarts.
const RESTARTS: u32 = 3;
/// Wait before the first restart; doubled before each further one, up to [`MAX_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Condition for restarting a supervised operator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Restart {
    /// Never restart.
    Never,
    /// Restart after a failure.
    #[default]
    Transient,
    /// Restart after any end.
    Always,
}

/// One operator that is restarted when it ends.
///
/// Unlike a retry, a restart begins a new run from the input: the actions of the run before remain, so the operator has
/// to tolerate that. Nothing is restarted after a cancellation, a deadline, an exhausted budget or a shutdown. The
/// waits before restarts are 1 s, 2 s, 4 s, … up to 30 s. After the last restart, the answer or failure is that of the
/// last run. Its steps are `1`, `2`, ….
///
/// ```
/// use backstop_orchestrator::{Restart, Supervise};
/// use layer0::Operator;
///
/// let watched = Supervise::new("watched", "crawler", Restart::Transient).limit(5);
/// assert_eq!(watched.calls(), ["crawler"]);
/// ```
#[derive(Debug, Clone)]
pub struct Supervise {
    name: String,
    operator: String,
    restart: Restart,
    limit: u32,
    clock: Arc<dyn Clock>,
}

impl Supervise {
    /// Supervises an operator with this condition for restarts.
    pub fn new(name: impl Into<String>, operator: impl Into<String>, restart: Restart) -> Self {
        let clock = Arc::new(SystemClock);
        Self { name: name.into(), operator: operator.into(), restart, limit: RESTARTS, clock }
    }

    /// Limits the number of restarts; 3 by default.
    #[must_use]
    pub const fn limit(mut self, restarts: u32) -> Self {
        self.limit = restarts;
        self
    }

    /// Sets the clock that measures the waits.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    fn restarts_after(&self, end: &Result<Answer, OperatorError>) -> bool {
        match (self.restart, end) {
            (Restart::Never, _) => false,
            (_, Err(error)) => !ends_all(error.code()),
            (Restart::Transient, Ok(_)) => false,
            (Restart::Always, Ok(answer)) => {
                matches!(answer.stop, Stop::Completed | Stop::Incomplete { .. })
            }
        }
    }
}

/// Returns whether a failure ends the supervisor too.
fn ends_all(code: &str) -> bool {
    let codes = [
        code::ORCH_DEADLINE,
        code::ORCH_DEPTH,
        code::ORCH_OPERATOR_NOT_FOUND,
        code::ORCH_SHUTDOWN,
        code::REPLAY_DIVERGED,
        code::RUN_CANCELLED,
    ];
    codes.contains(&code) || code.starts_with("budget.")
}

#[async_trait]
impl Operator for Supervise {
    fn name(&self) -> &str {
        &self.name
    }

    fn calls(&self) -> Vec<&str> {
        vec![&self.operator]
    }

    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        let (mut done, mut wait) = (Vec::new(), FIRST_WAIT);
        for run in 1_u32.. {
            let step = run.to_string();
            let end = context.step(&*step).dispatch(&self.operator, task.clone()).await;
            if run > self.limit || !self.restarts_after(&end) {
                return end.map(propagate_stop).map_err(|error| error.after(done));
            }
            match &end {
                Ok(answer) => done.push(done_by(step, &self.operator, answer)),
                Err(error) => tracing::info!(
                    operator = self.operator,
                    code = error.code(),
                    ?wait,
                    "an operator is begun anew"
                ),
            }
            // A restart from before the process died needs no second wait.
            if !context.step((run + 1).to_string()).has_begun().await {
                let busy = context.busy();
                self.clock.sleep(wait).await;
                drop(busy);
            }
            wait = (wait * 2).min(MAX_WAIT);
        }
        unreachable!("the runs are bounded by their limit")
    }
}
