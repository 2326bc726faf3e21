//! One execution of a tool: the call, its result, and its retry.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use backstop_react_machine::NoBudgetLeft;
use backstop_retry::{RetryContext, RetryDecision, RetryPolicy};
use backstop_tool::{Admitted, PartialOutput, ToolError, failed_text};
use layer0::code;
use layer0::event::ToolLate;
use layer0::failure::{Failure, Retry};
use tracing::Instrument;

use super::answer::{ToolOutput, answer, answer_recorded, build_tool_attempted};
use super::asking_call::AskingCall;
use super::call::{admit_execution, build_tool_context, resolve_time_limit};
use super::effects::Effects;
use super::failure::Failing;
use super::probe;
use super::stop::StopFlag;
use crate::dispatch::{Dispatcher, DispatchingRun, PriorAnswer};
use crate::effect::guarded::{execute, forward, so_far};
use crate::hook::HookContext;
use crate::journal::{Execution, ExecutionEnd, PendingEvents, StepEnd};

/// Runs a tool once and returns the events of its result.
pub(super) async fn execution(
    effects: Arc<Effects>,
    mut execution: Box<Execution>,
    stop: StopFlag,
) -> StepEnd {
    let clock = Arc::clone(&effects.agent.clock);
    let began = clock.monotonic();
    let admitted = match admit_execution(&effects, &execution) {
        Ok(admitted) => admitted,
        Err(error) => {
            let run = &execution.run;
            let failing =
                Failing::new(&effects.agent, &effects.context, &run.call_id, &run.tool, 0);
            let answer = failing.respond(&error, &failed_text(&run.tool, &error));
            let facts = PendingEvents(vec![answer]);
            return StepEnd::Execution(ExecutionEnd { facts, ..ExecutionEnd::default() });
        }
    };
    let ahead = match execution.child.clone().transpose() {
        Ok(ahead) => ahead,
        Err(nothing) => {
            let error = not_started(&nothing);
            let facts =
                PendingEvents(answer(&effects, &execution, &admitted, Err(error), &stop).await);
            return StepEnd::Execution(ExecutionEnd { facts, ..ExecutionEnd::default() });
        }
    };
    let caller = build_caller(&effects, &execution);
    let spec = admitted.spec();
    // A call that only dispatches has the time limit of its child run.
    let limit = (!spec.dispatches).then(|| resolve_time_limit(&effects.agent, &admitted));
    let may_leave = spec.dispatches || spec.idempotent;
    let ahead = ahead.map(|child| *child);
    let dispatcher = Arc::new(Dispatcher::new(caller, ahead, limit, may_leave));
    let span =
        tracing::info_span!("tool", tool = %execution.run.tool, call = %execution.run.call_id);
    let written = PartialOutput::default();
    // A stopped step does not begin; a finished answer counts.
    let result = if stop.is_stopped() {
        None
    } else {
        let call = call(&effects, &execution, &admitted, Arc::clone(&dispatcher), &written);
        let mut call = pin!(call.instrument(span));
        tokio::select! {
            biased;
            result = &mut call => Some(result),
            () = stop.wait() => None,
            () = dispatcher.wait_for_suspension() => {
                return StepEnd::Execution(ExecutionEnd { is_left: true, ..ExecutionEnd::default() });
            }
        }
    };
    // The tool's child runs end with it, and their usage is recorded before the answer.
    let returned = dispatcher.close().await;
    // Storing ends, also in a stopped step.
    dispatcher.note_once().await;
    let result =
        result.map(|result| result.map_err(|error| timed_out(&execution, &admitted, error)));
    let took = clock.monotonic().saturating_sub(began);
    execution.elapsed = execution.elapsed.saturating_add(took);
    execution.tried = execution.tried.saturating_add(1);
    let mut end = ExecutionEnd { returned, ..ExecutionEnd::default() };
    match result {
        None => {
            // Without output, the machine has the whole answer.
            if let Some(output) = so_far(&written) {
                let error = ToolError::Cancelled.with_output(output);
                end.facts =
                    PendingEvents(answer(&effects, &execution, &admitted, Err(error), &stop).await);
            }
        }
        Some(_) if let Some(PriorAnswer::Recorded(facts)) = dispatcher.prior() => {
            end.facts =
                PendingEvents(answer_recorded(&effects, &execution, facts.clone(), &stop).await);
        }
        Some(Err(error))
            if !stop.is_stopped()
                && let Some(delay) = next_delay(&effects, &execution, &admitted, &error) =>
        {
            end.facts.0.push(build_tool_attempted(&effects, &execution, &error, delay).into());
            execution.elapsed = execution.elapsed.saturating_add(delay);
            end.again = Some((delay, execution));
        }
        Some(Err(error)) if probe::is_asked(&admitted, &error) => {
            let returned = std::mem::take(&mut end.returned);
            end = probe::settle(&effects, execution, &admitted, error, &stop).await;
            end.returned = returned;
        }
        Some(result) => {
            end.facts = PendingEvents(answer(&effects, &execution, &admitted, result, &stop).await);
        }
    }
    StepEnd::Execution(end)
}

/// Returns the caller of the tool's dispatches.
fn build_caller(effects: &Effects, execution: &Execution) -> DispatchingRun {
    let HookContext { run, session } = effects.context.clone();
    DispatchingRun {
        run,
        session,
        sessions: Arc::clone(&execution.sessions),
        depth: execution.depth,
        call: execution.run.call_id.clone(),
        asks: Arc::clone(&effects.asks),
        clock: Arc::clone(&effects.agent.clock),
        orchestrator: effects.place.orchestrator.clone(),
        max_park: effects.place.max_park,
        adopts: effects.place.adopts,
        accepts_lost_tail: effects.place.accepts_lost_tail,
        signals: effects.signals().cloned(),
        lease: effects.lease().cloned(),
        redactor: effects.agent.redactor.clone(),
    }
}

/// Returns a timeout of the call if its child run ended by the time limit of the call.
fn timed_out(execution: &Execution, admitted: &Admitted, error: ToolError) -> ToolError {
    let given = execution.child.as_ref().and_then(|child| child.as_ref().ok()?.grant.time);
    match admitted.spec().timeout.filter(|limit| given == Some(*limit)) {
        Some(limit)
            if error.author_code().is_some_and(|code| **code == *code::BUDGET_WALL_TIME) =>
        {
            ToolError::timeout(limit)
        }
        _ => error,
    }
}

/// Returns the failure of a call whose operator does not start.
fn not_started(NoBudgetLeft { reason, message, .. }: &NoBudgetLeft) -> ToolError {
    ToolError::ExecutionFailed(format!("not started: {message}")).with_code(reason.as_str())
}

/// Calls the tool, with its full context.
async fn call(
    effects: &Effects,
    execution: &Execution,
    admitted: &Admitted,
    dispatcher: Arc<Dispatcher>,
    written: &PartialOutput,
) -> Result<ToolOutput, ToolError> {
    let Execution { run, sessions, depth, .. } = execution;
    let mut context = build_tool_context(effects, &run.call_id, sessions, admitted);
    context.approval_data.clone_from(&run.approval_data);
    context.people = Some(Arc::new(AskingCall::new(effects, run, &context, &dispatcher)));
    context.depth = *depth;
    context.written = written.clone();
    context.operators = Some(Arc::clone(&dispatcher) as _);
    context.runtime = Some(Arc::clone(&dispatcher) as _);
    let (images, stderr) = (context.images.clone(), context.stderr.clone());
    let before = Arc::clone(&dispatcher);
    let shown = |text| {
        let done_before = match before.prior() {
            Some(PriorAnswer::Once(before)) => Some(before.clone()),
            _ => None,
        };
        ToolOutput { text, images: images.so_far(), stderr: stderr.so_far(), done_before }
    };
    if admitted.spec().dispatches {
        return forward(admitted.clone(), context).await.map(shown);
    }
    let answer = ToolLate::new(run.call_id.clone(), run.execution);
    let late = Arc::clone(&effects.late);
    let note_late = move || late.push(answer);
    let limit = resolve_time_limit(&effects.agent, admitted);
    let clock = &effects.agent.clock;
    let answered = execute(admitted.clone(), context, limit, &dispatcher, clock, note_late).await;
    answered.map(shown)
}

/// Returns the delay before a retry of the tool. Only a delay that the tool's error names leads to a retry: for all
/// other errors, the model decides.
fn next_delay(
    effects: &Effects,
    execution: &Execution,
    admitted: &Admitted,
    error: &ToolError,
) -> Option<Duration> {
    let Retry::After(_) = error.retry() else { return None };
    let is_idempotent = admitted.spec().idempotent;
    let mut tried = RetryContext::new(execution.tried, execution.elapsed, is_idempotent);
    // A retry is another execution in the run's budget.
    tried.max_attempts = (!execution.may_repeat).then_some(0);
    let agent = &effects.agent;
    let policy =
        RetryPolicy::new(agent.retry, Arc::clone(&agent.clock)).jitter(agent.jitter.clone());
    match policy.decide(error, tried) {
        RetryDecision::Again(delay) => Some(delay),
        _ => None,
    }
}
