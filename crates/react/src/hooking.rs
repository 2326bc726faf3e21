//! Calling hooks: bounded, guarded, and with facts for what went wrong.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use clock::Clock;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use layer0::error::BoxError;
use layer0::event::{EventKind, HookAborted, HookFailed};
use layer0::failure::{Chain, Failure};
use layer0::stop::Outcome;
use layer0::{Code, code};
use react_machine::{Finish, HookPoint, Machine, Pause};
use redact::Redactor;
use serde_json::Value;

use crate::agent::Inner;
use crate::driver::Driver;
use crate::error::AgentError;
use crate::hook::{Hook, HookContext, HookError, Moment, Verdict};
use crate::redacting::recordable;
use crate::running::{drop_guarded, panic_text};

/// Which hooks of a point are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    All,
    Gates,
    Observers,
}

/// The hooks of an agent, and what calling them takes.
#[derive(Clone, Copy)]
pub(crate) struct Hooks<'a> {
    hooks: &'a [Hook],
    limit: Duration,
    clock: &'a Arc<dyn Clock>,
    redactor: &'a Redactor,
}

impl Inner {
    pub(crate) fn hooks(&self) -> Hooks<'_> {
        Hooks {
            hooks: &self.hooks,
            limit: Duration::from_millis(self.definition.limits.hook_timeout_ms),
            clock: &self.clock,
            redactor: &self.redactor,
        }
    }
}

/// What hooks came to.
#[derive(Default)]
pub(crate) struct Called {
    /// `hook.failed` of hooks whose failure does not matter.
    pub(crate) notes: Vec<EventKind>,
    /// What a gate wants the arguments to be.
    pub(crate) arguments: Option<Arc<Value>>,
    pub(crate) stop: Option<Stop>,
}

/// Why it does not go on.
pub(crate) enum Stop {
    /// A gate says so: the hook and its reason.
    Aborted { hook: String, reason: String },
    /// A hook that must not fail failed.
    Rejected { error: HookError, fact: EventKind },
}

impl Hooks<'_> {
    /// Is anything called at this point?
    pub(crate) fn has(&self, point: HookPoint) -> bool {
        self.hooks.iter().any(|hook| hook.points().contains(&point))
    }

    /// Calls the hooks of a point in order, until one of them stops it.
    pub(crate) async fn call(
        &self,
        moment: Moment<'_>,
        context: &HookContext,
        kind: Kind,
    ) -> Called {
        let mut called = Called::default();
        for hook in self.hooks {
            let wanted = match kind {
                Kind::All => true,
                Kind::Gates => hook.is_gate(),
                Kind::Observers => !hook.is_gate(),
            };
            if !wanted || !hook.points().contains(&moment.point()) {
                continue;
            }
            // A gate sees what the one before it made of the call.
            let replaced = match (moment, &called.arguments) {
                (Moment::BeforeTool { call }, Some(arguments)) => {
                    let mut call = call.clone();
                    call.arguments = Arc::clone(arguments);
                    Some(call)
                }
                _ => None,
            };
            let seen = replaced.as_ref().map_or(moment, |call| Moment::BeforeTool { call });
            let error = match self.ask(hook, seen, context).await {
                Ok(Verdict::Continue) => continue,
                Ok(Verdict::Abort(reason)) => {
                    let (hook, reason) =
                        (hook.name().to_owned(), self.redactor.redact(&reason).into_owned());
                    called.stop = Some(Stop::Aborted { hook, reason });
                    return called;
                }
                Ok(Verdict::ReplaceArguments(arguments)) => match moment {
                    Moment::BeforeTool { .. } => {
                        called.arguments = Some(recordable(self.redactor, arguments).into());
                        continue;
                    }
                    _ => HookError::Failed("there are no arguments to replace here".into()),
                },
                Err(error) => error,
            };
            let fact = self.failed(hook, moment, &error);
            if hook.fail_open() {
                called.notes.push(fact);
                continue;
            }
            called.stop = Some(Stop::Rejected { error, fact });
            return called;
        }
        called
    }

    async fn ask(
        &self,
        hook: &Hook,
        moment: Moment<'_>,
        context: &HookContext,
    ) -> Result<Verdict, HookError> {
        let began = self.clock.now();
        let asked = AssertUnwindSafe(async {
            // An error that cannot be printed is as good as a panic.
            let print = |error: &BoxError| drop(Chain(&**error).to_string());
            hook.call(moment, context).await.inspect_err(print)
        });
        match select(Box::pin(asked.catch_unwind()), self.clock.sleep(self.limit)).await {
            // Code that blocks its thread holds up its own timeout.
            Either::Left(_) if self.clock.now().since(began) > self.limit => {
                Err(HookError::timeout(self.limit))
            }
            Either::Left((Ok(answer), _)) => answer.map_err(HookError::Failed),
            Either::Left((Err(panic), _)) => Err(HookError::Panicked(panic_text(panic))),
            Either::Right(((), asked)) => {
                drop_guarded(asked);
                Err(HookError::timeout(self.limit))
            }
        }
    }

    fn failed(&self, hook: &Hook, moment: Moment<'_>, error: &HookError) -> EventKind {
        let why = match error {
            HookError::Failed(error) => Chain(&**error).to_string(),
            error => error.to_string(),
        };
        let why = self.redactor.redact(&why);
        let point = moment.point().as_str();
        tracing::warn!(code = error.code(), hook = hook.name(), point, "hook failed: {why}");
        HookFailed {
            hook: hook.name().into(),
            point: point.into(),
            call_id: moment.call_id().cloned(),
            reason: Code::new(error.code()),
            message: (*why).into(),
            fail_open: hook.fail_open(),
        }
        .into()
    }
}

impl Stop {
    /// Returns the fact that ends the run, and the live error where there is one.
    pub(crate) fn into_fact(
        self,
        moment: Moment<'_>,
        hooks: Hooks<'_>,
    ) -> (EventKind, Option<HookError>) {
        match self {
            Self::Aborted { hook, reason } => {
                let fail_open = hooks
                    .hooks
                    .iter()
                    .find(|h| h.name() == hook)
                    .is_none_or(|hook| hook.fail_open());
                let aborted = HookAborted {
                    hook: hook.into(),
                    point: moment.point().as_str().into(),
                    call_id: moment.call_id().cloned(),
                    reason: Code::new(code::HOOK_ABORTED),
                    message: reason.into(),
                    fail_open,
                };
                (aborted.into(), None)
            }
            Self::Rejected { error, fact } => (fact, Some(error)),
        }
    }
}

impl Driver {
    /// Calls the hooks of a pause and lets the run go on, unless one of them stops it.
    pub(crate) async fn pause(
        &mut self,
        machine: &mut Machine,
        pause: Pause,
    ) -> Result<(), AgentError> {
        let agent = Arc::clone(&self.agent);
        let context = self.hook_context();
        let called = self.unless_stopped(machine, async {
            let reason;
            let moment = match &pause {
                Pause::RunStart { input } => Moment::RunStart { input },
                Pause::BeforeModel { call, messages } => {
                    Moment::BeforeModel { call: *call, messages }
                }
                Pause::AfterModel { call, text, tool_calls, stop_reason } => {
                    Moment::AfterModel { call: *call, text, tool_calls, stop_reason: *stop_reason }
                }
                Pause::RunEnd(Finish::Failed(cause)) => {
                    reason = Some(cause.code());
                    Moment::RunEnd { outcome: Outcome::Failed, reason: reason.as_ref(), output: "" }
                }
                Pause::RunEnd(Finish::Stopped { stop, output }) => {
                    reason = stop.reason();
                    Moment::RunEnd { outcome: stop.outcome(), reason: reason.as_ref(), output }
                }
                _ => return (Vec::new(), None),
            };
            let called = agent.hooks().call(moment, &context, Kind::All).await;
            let stop = called.stop.map(|stop| stop.into_fact(moment, agent.hooks()));
            (called.notes, stop)
        });
        let Some((notes, stop)) = called.await? else { return Ok(()) };
        // The hooks saw the conversation; the machine is about to append to it.
        drop(pause);
        let mut facts: Vec<_> = notes.into_iter().map(|note| self.fact(note)).collect();
        let Some((fact, error)) = stop else {
            for fact in facts {
                self.feed(machine, fact)?;
            }
            let now = self.agent.clock.now();
            machine.proceed(now).map_err(|misuse| AgentError::Internal(misuse.into()))?;
            self.drain(machine);
            return self.commit(machine).await;
        };
        self.hook_error = error;
        facts.push(self.fact(fact));
        self.step(machine, facts).await
    }

    pub(crate) fn hook_context(&self) -> HookContext {
        HookContext { run: self.run.clone(), session: self.session.clone() }
    }
}
