//! Effects of a run on the world. Each effect is a function of its step's data, and knows nothing of the run but its
//! id.

pub(crate) mod guard;
pub(crate) mod guarded;
mod answer;
mod approval;
mod asking_call;
mod asks;
mod call;
mod effects;
mod failure;
mod hooks;
mod kept_text;
mod large_result;
mod late;
mod memory;
mod model;
mod probe;
mod proposal;
mod spending;
mod stop;
mod stoppable;
mod token_count;
mod tool;

use std::pin::Pin;
use std::sync::Arc;

use crate::effect::stoppable::unless_stopped;
use crate::journal::{Step, StepEnd};

pub(crate) use asks::Asks;
pub(crate) use call::admit;
pub(crate) use effects::Effects;
pub(crate) use failure::Failing;
pub(crate) use hooks::has_hooks;
pub(crate) use proposal::is_any_held;
pub(crate) use stop::StopFlag;

/// The work of a step.
pub(crate) type Work = Pin<Box<dyn Future<Output = StepEnd> + Send>>;

impl Effects {
    /// Returns the work of a step, which ends at a poll after `stop` is set, or soon after.
    pub(crate) fn perform(self: &Arc<Self>, step: Step, stop: StopFlag) -> Work {
        let effects = Arc::clone(self);
        match step {
            Step::Attempt(attempt) => Box::pin(model::attempt(effects, attempt, stop)),
            Step::Execution(execution) => Box::pin(tool::execution(effects, execution, stop)),
            Step::Probe(execution) => Box::pin(probe::of_interrupted(effects, execution, stop)),
            Step::LateProbe(execution) => {
                stoppable(stop, async move { probe::of_answered(&effects, &execution).await })
            }
            Step::Hooks(pause) => {
                stoppable(stop, async move { hooks::pause(&effects, pause).await })
            }
            Step::Signal(signal) => {
                stoppable(stop, async move { hooks::signal(&effects, &signal).await })
            }
            Step::Gates { calls, changed } => stoppable(stop, async move {
                let gated = hooks::gates(&effects, &calls, changed).await;
                proposal::add_proposals(&effects, gated, changed).await
            }),
            Step::Observers(calls) => {
                stoppable(stop, async move { hooks::observers(&effects, &calls).await })
            }
            Step::Approval(approval) => {
                stoppable(stop, async move { approval::ask(&effects, approval).await })
            }
            // The journal sends the expiry, as it does for decisions.
            Step::Expiry(approval) => {
                Box::pin(std::future::ready(StepEnd::Expiry(approval, false)))
            }
            Step::ReadMemory(input) => {
                stoppable(stop, async move { memory::read(&effects, input).await })
            }
            Step::WriteMemory { input, output } => {
                stoppable(stop, async move { memory::write(&effects, input, output).await })
            }
            Step::Wait(waiting) => stoppable(stop, async move {
                match &effects.place.caller {
                    Some(caller) => caller.wait(waiting).await,
                    None => std::future::pending().await,
                }
                StepEnd::Left
            }),
            Step::More(given) => stoppable(stop, async move {
                StepEnd::More(match &effects.place.caller {
                    Some(caller) => caller.more(given).await,
                    None => None,
                })
            }),
        }
    }
}

/// Awaits the application's code, unless the step is stopped first.
fn stoppable(stop: StopFlag, work: impl Future<Output = StepEnd> + Send + 'static) -> Work {
    Box::pin(async move { unless_stopped(&stop, work).await.unwrap_or(StepEnd::Stopped) })
}
