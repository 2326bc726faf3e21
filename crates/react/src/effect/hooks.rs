//! Calls of hooks: bounded, guarded, and with events for their failures.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_react_machine::{Finish, HookPoint, Pause};
use backstop_redact::Redactor;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use layer0::error::BoxError;
use layer0::event::{EventKind, HookAborted, HookFailed, SignalReceived};
use layer0::failure::{Chain, Failure};
use layer0::message::ToolCall;
use layer0::stop::Outcome;
use layer0::{JsonText, code, text};

use super::effects::Effects;
use crate::agent::inner::AgentInner;
use crate::effect::guarded::drop_guarded;
use crate::effect::kept_text::{FailureSource, keep_text};
use crate::hook::{GateVerdict, Hook, HookContext, HookError, Moment};
use crate::journal::{Gated, PendingEvent, PendingEvents, StepEnd, StopFact};

/// The reason against a call whose gate changes arguments that a person approved.
const CHANGES: &str = "it changes arguments that a person gave";
/// The reason against a call whose gate adds a secret.
const SECRET: &str = "the arguments that it gives hold a secret of this process";

/// The kind of hooks to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HookKind {
    All,
    Gates,
    Observers,
}

/// The hooks of an agent, with the parts that calling them needs.
#[derive(Clone, Copy)]
pub(crate) struct Hooks<'a> {
    hooks: &'a [Hook],
    limit: Duration,
    clock: &'a Arc<dyn Clock>,
    redactor: &'a Redactor,
    agent: &'a AgentInner,
}

/// The results of a point's hooks.
#[derive(Default)]
pub(crate) struct HookResults {
    /// `hook.failed` events of hooks with `fail_open`.
    pub(crate) notes: Vec<EventKind>,
    /// The arguments that a gate set, and its name.
    pub(crate) arguments: Option<(String, JsonText)>,
    pub(crate) stop: Option<HookStopReason>,
}

/// The reason of a stop.
pub(crate) enum HookStopReason {
    /// A gate aborted: the hook and its reason.
    Aborted { hook: String, reason: String },
    /// A hook without `fail_open` failed.
    Rejected { error: HookError, fact: Box<EventKind> },
}

impl<'a> Hooks<'a> {
    pub(crate) fn new(agent: &'a AgentInner) -> Self {
        Self {
            hooks: &agent.hooks,
            limit: Duration::from_millis(agent.definition.limits.hook_timeout_ms),
            clock: &agent.clock,
            redactor: &agent.redactor,
            agent,
        }
    }

    /// Returns whether a hook is called at this point.
    pub(crate) fn has(&self, point: HookPoint) -> bool {
        self.hooks.iter().any(|hook| hook.points().contains(&point))
    }

    /// Calls the hooks of a point in order, until one of them stops the run.
    pub(crate) async fn call(
        &self,
        moment: Moment<'_>,
        context: &HookContext,
        kind: HookKind,
    ) -> HookResults {
        let mut called = HookResults::default();
        for hook in self.hooks {
            let wanted = match kind {
                HookKind::All => true,
                HookKind::Gates => hook.is_gate(),
                HookKind::Observers => !hook.is_gate(),
            };
            if !wanted || !hook.points().contains(&moment.point()) {
                continue;
            }
            // A gate sees the arguments that the gate before it set.
            let replaced = match (moment, &called.arguments) {
                (Moment::BeforeTool { call }, Some((_, arguments))) => {
                    let mut call = call.clone();
                    call.arguments = arguments.clone();
                    Some(call)
                }
                _ => None,
            };
            let seen = replaced.as_ref().map_or(moment, |call| Moment::BeforeTool { call });
            let error = match self.ask(hook, seen, context).await {
                Ok(GateVerdict::Continue) => continue,
                Ok(GateVerdict::Abort(reason)) => {
                    let kept = self.keep(hook, moment, context, code::HOOK_ABORTED, &reason);
                    let (hook, reason) = (hook.name().to_owned(), kept.await);
                    called.stop = Some(HookStopReason::Aborted { hook, reason });
                    return called;
                }
                Ok(GateVerdict::ReplaceArguments(arguments)) => match moment {
                    Moment::BeforeTool { .. } => {
                        let hook = hook.name().to_owned();
                        if self.redactor.redact_held_json(arguments.clone()) != arguments {
                            // The redacted arguments would run.
                            let reason = SECRET.to_owned();
                            called.stop = Some(HookStopReason::Aborted { hook, reason });
                            return called;
                        }
                        called.arguments = Some((hook, arguments));
                        continue;
                    }
                    _ => HookError::Failed("there are no arguments to replace here".into()),
                },
                Err(error) => error,
            };
            let fact = self.report_failure(hook, moment, context, &error).await;
            if hook.fail_open() {
                called.notes.push(fact);
                continue;
            }
            called.stop = Some(HookStopReason::Rejected { error, fact: Box::new(fact) });
            return called;
        }
        called
    }

    async fn ask(
        &self,
        hook: &Hook,
        moment: Moment<'_>,
        context: &HookContext,
    ) -> Result<GateVerdict, HookError> {
        let began = self.clock.monotonic();
        let asked = AssertUnwindSafe(async {
            // An error that cannot be printed counts as a panic.
            let print = |error: &BoxError| drop(Chain(&**error).to_string());
            hook.call(moment, context).await.inspect_err(print)
        });
        match select(Box::pin(asked.catch_unwind()), self.clock.sleep(self.limit)).await {
            // Code that blocks its thread delays its own timeout.
            Either::Left(_) if self.clock.monotonic().saturating_sub(began) > self.limit => {
                Err(HookError::timeout(self.limit))
            }
            Either::Left((Ok(answer), _)) => answer.map_err(HookError::Failed),
            Either::Left((Err(panic), _)) => Err(HookError::Panicked(text::panic_message(panic))),
            Either::Right(((), asked)) => {
                drop_guarded(asked);
                Err(HookError::timeout(self.limit))
            }
        }
    }

    /// Returns the message of a hook for the record.
    async fn keep(
        &self,
        hook: &Hook,
        moment: Moment<'_>,
        context: &HookContext,
        code: &'static str,
        said: &str,
    ) -> String {
        let name = format!("hook:{}", hook.name());
        let source = FailureSource { name: &name, call_id: moment.call_id(), code };
        keep_text(self.agent, context, source, said).await
    }

    async fn report_failure(
        &self,
        hook: &Hook,
        moment: Moment<'_>,
        context: &HookContext,
        error: &HookError,
    ) -> EventKind {
        let why = match error {
            HookError::Failed(error) => Chain(&**error).to_string(),
            error => error.to_string(),
        };
        let why = self.keep(hook, moment, context, error.code(), &why).await;
        let point = moment.point().as_str();
        tracing::warn!(code = error.code(), hook = hook.name(), point, "hook failed: {why}");
        HookFailed::new(
            hook.name(),
            point,
            moment.call_id().cloned(),
            error.code(),
            why,
            hook.fail_open(),
        )
        .into()
    }
}

impl HookStopReason {
    /// Returns the event that ends the run, and keeps the live error if there is one.
    pub(super) fn into_fact(self, moment: Moment<'_>, effects: &Effects) -> StopFact {
        match self {
            Self::Aborted { hook, reason } => {
                let mut hooks = effects.agent.hooks.iter();
                let fail_open =
                    hooks.find(|h| h.name() == hook).is_none_or(|hook| hook.fail_open());
                let aborted = HookAborted::new(
                    hook,
                    moment.point().as_str(),
                    moment.call_id().cloned(),
                    code::HOOK_ABORTED,
                    reason,
                    fail_open,
                );
                StopFact(Box::new(PendingEvent(aborted.into())))
            }
            Self::Rejected { error, fact } => {
                effects.keep_hook_error(error);
                StopFact(Box::new(PendingEvent(*fact)))
            }
        }
    }
}

/// Returns whether a hook of the agent is called at this point.
pub(crate) fn has_hooks(agent: &AgentInner, point: HookPoint) -> bool {
    Hooks::new(agent).has(point)
}

/// Calls the hooks of a pause.
pub(super) async fn pause(effects: &Effects, pause: Pause) -> StepEnd {
    let reason;
    let moment = match &pause {
        Pause::RunStart { input } => Moment::RunStart { input },
        Pause::BeforeModel { call, messages } => Moment::BeforeModel { call: *call, messages },
        Pause::AfterModel { call, text, tool_calls, stop_reason } => {
            Moment::AfterModel { call: *call, text, tool_calls, stop_reason }
        }
        Pause::RunEnd(Finish::Failed(cause)) => {
            reason = Some(cause.code());
            Moment::RunEnd { outcome: Outcome::Failed, reason: reason.as_ref(), output: "" }
        }
        Pause::RunEnd(Finish::Stopped { stop, output }) => {
            reason = stop.reason();
            Moment::RunEnd { outcome: stop.outcome(), reason: reason.as_ref(), output }
        }
        _ => return StepEnd::Hooks(PendingEvents::default(), None),
    };
    at(effects, moment).await
}

/// Shows a signal to the hooks.
pub(super) async fn signal(effects: &Effects, signal: &SignalReceived) -> StepEnd {
    at(effects, Moment::Signal { name: &signal.name, data: &signal.data }).await
}

async fn at(effects: &Effects, moment: Moment<'_>) -> StepEnd {
    let called = Hooks::new(&effects.agent).call(moment, &effects.context, HookKind::All).await;
    let stop = called.stop.map(|stop| stop.into_fact(moment, effects));
    StepEnd::Hooks(PendingEvents(called.notes), stop)
}

/// Asks the gates about every call. Gates check arguments that a person changed, but cannot change them: they are
/// decided.
pub(super) async fn gates(effects: &Effects, calls: &[ToolCall], changed: bool) -> StepEnd {
    let hooks = Hooks::new(&effects.agent);
    let mut gated = Vec::with_capacity(calls.len());
    for call in calls {
        let mut one = Gated::new(call.clone());
        let moment = Moment::BeforeTool { call };
        let called = hooks.call(moment, &effects.context, HookKind::Gates).await;
        one.notes = PendingEvents(called.notes);
        match called.arguments {
            Some((hook, arguments)) if changed && arguments != call.arguments => {
                one.skipped = Some((hook, CHANGES.to_owned()));
            }
            Some((_, arguments)) => one.call.arguments = arguments,
            None => {}
        }
        match called.stop {
            None => {}
            Some(HookStopReason::Aborted { hook, reason }) => {
                one.skipped = Some((hook, reason));
            }
            Some(stop @ HookStopReason::Rejected { .. }) => {
                gated.push(one);
                let notes = gated.into_iter().flat_map(|one| one.notes.0).collect();
                return StepEnd::Gates(Err((
                    PendingEvents(notes),
                    stop.into_fact(moment, effects),
                )));
            }
        }
        gated.push(one);
    }
    StepEnd::Gates(Ok(gated))
}

/// Shows the observers every call that is about to run.
pub(super) async fn observers(effects: &Effects, calls: &[ToolCall]) -> StepEnd {
    let hooks = Hooks::new(&effects.agent);
    let mut observed = Vec::with_capacity(calls.len());
    for call in calls {
        let moment = Moment::BeforeTool { call };
        let called = hooks.call(moment, &effects.context, HookKind::Observers).await;
        observed.push(PendingEvents(called.notes));
        if let Some(stop) = called.stop {
            let notes = observed.into_iter().flat_map(|PendingEvents(notes)| notes).collect();
            return StepEnd::Observers(Err((
                PendingEvents(notes),
                stop.into_fact(moment, effects),
            )));
        }
    }
    StepEnd::Observers(Ok(observed))
}
