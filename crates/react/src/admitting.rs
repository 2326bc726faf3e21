//! Tool batches: which calls may run, and how many at once.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use layer0::event::{EventKind, ToolRequested};
use layer0::id::CallId;
use layer0::message::ToolCall;
use react_machine::{BUDGET_CANCELLED, EffectId, HookPoint, Input, Machine, ToolBatch, ToolRun};
use serde_json::Value;
use tool::{ToolError, failed_text};

use crate::agent::Inner;
use crate::driver::{Driver, failing};
use crate::error::AgentError;
use crate::hook::{HookContext, HookError, Moment};
use crate::hooking::{Kind, Stop};
use crate::running::panic_text;
use crate::tool_run::run_tool;

/// A call on its way from the model's answer to its tool.
struct Candidate {
    call: ToolCall,
    /// What its hooks left in the record.
    notes: Vec<EventKind>,
    /// Did a gate let it through?
    verdict: Result<(), ToolError>,
}

/// What the machine is told of a call.
enum Said {
    Fact(EventKind),
    Hold(CallId, Arc<Value>),
}

/// A hook that must not fail failed: its record, and the error.
struct Rejected(Vec<EventKind>, Option<HookError>);

impl Driver {
    /// Decides which calls of a batch may run, and answers the others: gates, lookup, arguments,
    /// policy, approval, observers, in this order.
    pub(crate) async fn admit(
        &mut self,
        machine: &mut Machine,
        batch: ToolBatch,
    ) -> Result<(), AgentError> {
        let (agent, context) = (Arc::clone(&self.agent), self.hook_context());
        let hooked = agent.hooks().has(HookPoint::BeforeTool);
        let mut said = if batch.approved || !hooked {
            let untouched = batch.calls.iter().cloned().map(Candidate::new);
            self.look_up(machine, &batch, untouched)
        } else {
            let judged = judge(&agent, &context, &batch.calls);
            match self.unless_stopped(machine, judged).await? {
                None => return Ok(()),
                Some(Ok(candidates)) => self.look_up(machine, &batch, candidates),
                Some(Err(rejected)) => return self.reject(machine, rejected).await,
            }
        };
        if hooked {
            let observed = observe(&agent, &context, said);
            said = match self.unless_stopped(machine, observed).await? {
                None => return Ok(()),
                Some(Ok(said)) => said,
                Some(Err(rejected)) => return self.reject(machine, rejected).await,
            };
        }
        for said in said {
            match said {
                Said::Fact(fact) => {
                    let fact = self.fact(fact);
                    self.feed(machine, fact)?;
                }
                Said::Hold(call_id, arguments) => {
                    machine
                        .hold(self.agent.clock.now(), &call_id, arguments)
                        .map_err(|misuse| AgentError::Internal(misuse.into()))?;
                    self.drain(machine);
                }
            }
        }
        self.commit(machine).await
    }

    async fn reject(
        &mut self,
        machine: &mut Machine,
        Rejected(facts, error): Rejected,
    ) -> Result<(), AgentError> {
        self.hook_error = error;
        let facts: Vec<_> = facts.into_iter().map(|fact| self.fact(fact)).collect();
        self.step(machine, facts).await
    }

    /// Finds tools, checks arguments, asks the policy, the machine's counts and who has to agree.
    fn look_up(
        &mut self,
        machine: &Machine,
        batch: &ToolBatch,
        candidates: impl IntoIterator<Item = Candidate>,
    ) -> Vec<Said> {
        let mut execution = machine.usage().tool_calls;
        let mut left = batch.max_executions;
        let mut said = Vec::with_capacity(batch.calls.len());
        for Candidate { call: ToolCall { id, name, arguments }, notes, verdict } in candidates {
            said.extend(notes.into_iter().map(Said::Fact));
            let (tools, grants) = (&self.agent.tools, &self.agent.grants);
            let admitted = verdict.and_then(|()| {
                // What a call needs is asked of the tool's own code.
                let admit = AssertUnwindSafe(|| tools.admit(&name, arguments, grants));
                let admitted = std::panic::catch_unwind(admit)
                    .unwrap_or_else(|panic| Err(ToolError::Panicked(panic_text(panic))))?;
                match machine.repeated_failure(&name, &admitted.arguments) {
                    Some((code, count)) => return Err(ToolError::repeated_failure(code, count)),
                    None if left == 0 => return Err(ToolError::Cancelled),
                    None => {}
                }
                match machine.denied(&name, &admitted.arguments) {
                    Some(denial) => Err(ToolError::approval_denied(&*denial.by, &*denial.reason)),
                    None => Ok(admitted),
                }
            });
            said.push(match admitted {
                Ok(admitted) if admitted.spec().approval && !batch.approved => {
                    // What it may still use is looked at once somebody agreed.
                    Said::Hold(id, admitted.arguments)
                }
                Ok(admitted) => {
                    execution += 1;
                    left -= 1;
                    let requested = ToolRequested {
                        call_id: id.clone(),
                        tool: name,
                        arguments: Arc::clone(&admitted.arguments),
                        execution,
                    };
                    self.admitted.insert(id, admitted);
                    Said::Fact(requested.into())
                }
                Err(error) => {
                    let text = match error.kind() {
                        ToolError::NotFound(name) => self.agent.tools.missing_text(name),
                        ToolError::Cancelled => BUDGET_CANCELLED.to_owned(),
                        _ => failed_text(&name, &error),
                    };
                    let failing = failing(&self.agent, &self.run, &self.session, &id, &name, 0);
                    Said::Fact(failing.respond(&error, &text))
                }
            });
        }
        said
    }

    /// Runs a tool again that was running when the process died.
    pub(crate) async fn rerun(
        &mut self,
        machine: &mut Machine,
        id: EffectId,
        call_id: &CallId,
    ) -> Result<(), AgentError> {
        let Some(run) = self.executions.remove(call_id) else {
            let what = format!("nothing is known of call `{call_id}`");
            return Err(AgentError::Internal(what.into()));
        };
        // Tool and policy may have changed since.
        match self.agent.tools.admit(&run.tool, Arc::clone(&run.arguments), &self.agent.grants) {
            Ok(admitted) => {
                self.admitted.insert(call_id.clone(), admitted);
                self.queued.push_back(ToolRun { id, ..run });
                self.start_tools();
                Ok(())
            }
            Err(error) => {
                let failing = failing(&self.agent, &self.run, &self.session, call_id, &run.tool, 0);
                let answer = failing.respond(&error, &failed_text(&run.tool, &error));
                let answer = Input::answer(self.agent.clock.now(), id, answer);
                self.step(machine, [answer]).await
            }
        }
    }

    /// Starts queued executions while there are free places.
    pub(crate) fn start_tools(&mut self) {
        let places =
            usize::try_from(self.agent.definition.limits.max_concurrent_tools).unwrap_or(1);
        while self.running.len() < places
            && let Some(run) = self.queued.pop_front()
        {
            let Some(admitted) = self.admitted.remove(&run.call_id) else { continue };
            self.acted |= !admitted.spec().idempotent;
            let (agent, context) = (Arc::clone(&self.agent), self.hook_context());
            let (noted, depth) = (self.noted.clone(), self.request.depth);
            let sessions = Arc::clone(&self.sessions);
            let tool = run_tool(agent, context, sessions, depth, run, admitted, noted);
            self.running.push(Box::pin(tool));
        }
    }
}

impl Candidate {
    const fn new(call: ToolCall) -> Self {
        Self { call, notes: Vec::new(), verdict: Ok(()) }
    }
}

/// Asks the gates about every call.
async fn judge(
    agent: &Inner,
    context: &HookContext,
    calls: &[ToolCall],
) -> Result<Vec<Candidate>, Rejected> {
    let mut candidates = Vec::with_capacity(calls.len());
    for call in calls {
        let mut candidate = Candidate::new(call.clone());
        let moment = Moment::BeforeTool { call };
        let called = agent.hooks().call(moment, context, Kind::Gates).await;
        candidate.notes = called.notes;
        if let Some(arguments) = called.arguments {
            candidate.call.arguments = arguments;
        }
        match called.stop {
            None => {}
            Some(Stop::Aborted { hook, reason }) => {
                candidate.verdict = Err(ToolError::skipped(hook, reason));
            }
            Some(stop @ Stop::Rejected { .. }) => {
                let mut facts: Vec<EventKind> = Vec::new();
                candidates.push(candidate);
                facts.extend(candidates.into_iter().flat_map(|candidate| candidate.notes));
                let (fact, error) = stop.into_fact(moment, agent.hooks());
                facts.push(fact);
                return Err(Rejected(facts, error));
            }
        }
        candidates.push(candidate);
    }
    Ok(candidates)
}

/// Shows the observers every call that is about to run.
async fn observe(
    agent: &Inner,
    context: &HookContext,
    said: Vec<Said>,
) -> Result<Vec<Said>, Rejected> {
    let mut observed = Vec::with_capacity(said.len());
    for said in said {
        if let Said::Fact(EventKind::ToolRequested(requested)) = &said {
            let call = ToolCall {
                id: requested.call_id.clone(),
                name: Arc::clone(&requested.tool),
                arguments: Arc::clone(&requested.arguments),
            };
            let moment = Moment::BeforeTool { call: &call };
            let called = agent.hooks().call(moment, context, Kind::Observers).await;
            observed.extend(called.notes.into_iter().map(Said::Fact));
            if let Some(stop) = called.stop {
                let is_hook_event = |said| match said {
                    Said::Fact(fact @ EventKind::HookFailed(_)) => Some(fact),
                    _ => None,
                };
                let mut facts: Vec<_> = observed.into_iter().filter_map(is_hook_event).collect();
                let (fact, error) = stop.into_fact(moment, agent.hooks());
                facts.push(fact);
                return Err(Rejected(facts, error));
            }
        }
        observed.push(said);
    }
    Ok(observed)
}
