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

use super::fan_out::{done_by, stopped};

/// How often an operator is begun anew where that is not said.
const RESTARTS: u32 = 3;
/// How long is waited before the first restart; twice as long before each further one, up to [`MAX_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(30);

/// When a supervised operator is begun anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Restart {
    /// Never.
    Never,
    /// When it failed.
    #[default]
    Transient,
    /// When it ended, however it did.
    Always,
}

/// One operator that is begun anew when it ends.
///
/// Unlike a retry, a restart begins a run of its own from the input: what the one before did stays done, so
/// the operator has to bear that. Nothing is begun anew after a cancellation, a deadline, a budget that is used
/// up or a shutdown. Before a restart is waited: 1 s, 2 s, 4 s, … up to 30 s. After the last one its answer
/// or failure is that of the last run. Its steps are `1`, `2`, ….
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
    /// Names the operator, and says when it is begun anew.
    pub fn new(name: impl Into<String>, operator: impl Into<String>, restart: Restart) -> Self {
        let clock = Arc::new(SystemClock);
        Self { name: name.into(), operator: operator.into(), restart, limit: RESTARTS, clock }
    }

    /// Begins it anew at most so often; 3 times otherwise.
    #[must_use]
    pub const fn limit(mut self, restarts: u32) -> Self {
        self.limit = restarts;
        self
    }

    /// Waits on this clock.
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

/// Does a failure end what supervises too?
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
                return end.map(stopped).map_err(|error| error.after(done));
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
            let busy = context.busy();
            self.clock.sleep(wait).await;
            drop(busy);
            wait = (wait * 2).min(MAX_WAIT);
        }
        unreachable!("the runs are bounded by their limit")
    }
}
