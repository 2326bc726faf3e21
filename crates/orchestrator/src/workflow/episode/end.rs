//! End or suspension of a workflow's run.

use std::time::Duration;

use layer0::error::OperatorError;
use layer0::event::{BudgetExhausted, RunFailed, RunFinished, RunParked, RunResumed, Warning};
use layer0::failure::{Failure, Retry, chain};
use layer0::operator::Answer;
use layer0::stop::Stop;
use layer0::text::plain;
use layer0::usage::{Allowance, Usage};
use layer0::{Code, Timestamp, code};
use serde_json::{Number, Value};

use super::Episode;
use super::signals::MAX_RECORDED_SIGNALS;
use crate::workflow::begin::BY;
use crate::workflow::diverged::Diverged;
use crate::workflow::halt::Closing;
use crate::workflow::recorded::answer;
use crate::workflow::text::parse_value;

/// Maximum number of steps named in the warning about steps that the code did not request.
const MAX_UNASKED: usize = 8;

impl Episode {
    /// Records the end and returns it.
    pub(super) async fn finish(mut self) -> Result<Answer, OperatorError> {
        match self.underway.take_end() {
            Some(Closing::Done(Ok(done))) => {
                self.note_unasked()?;
                self.stop(done.stop, &done.output).await
            }
            Some(Closing::Done(Err(error))) => self.fail(error).await,
            Some(Closing::Late) => {
                let allowed = self.allowed.unwrap_or_default();
                let used = self.ledger.progress().worked;
                let message = format!("the time of the workflow is used up: {allowed:?}");
                let spent = (millis(allowed), millis(used));
                self.exhaust(code::BUDGET_WALL_TIME, "wall_time", spent, message).await
            }
            Some(Closing::Full) => {
                let taken = self.ledger.progress().signals.len();
                let spent = (MAX_RECORDED_SIGNALS as u64, taken as u64);
                let message = format!("the workflow has received {taken} signals");
                self.exhaust(code::BUDGET_EVENTS, "events", spent, message).await
            }
            Some(Closing::Cancelled) | None => self.stop(Stop::Cancelled, &Value::from("")).await,
        }
    }

    /// Ends the run because a budget of its own is used up.
    async fn exhaust(
        mut self,
        code: &'static str,
        dimension: &'static str,
        (limit, used): (u64, u64),
        message: String,
    ) -> Result<Answer, OperatorError> {
        let reason = Code::new(code);
        let (limit, used) = (Number::from(limit), Number::from(used));
        self.note(BudgetExhausted::new(reason.clone(), dimension, limit, used, message))?;
        self.stop(Stop::BudgetExhausted { reason }, &Value::from("")).await
    }

    /// Records a warning about recorded steps that the code did not request.
    fn note_unasked(&mut self) -> Result<(), OperatorError> {
        let steps = self.ledger.progress().steps.keys();
        let unasked: Vec<&str> =
            steps.map(|path| &**path).filter(|path| !self.underway.paths.has_step(path)).collect();
        if unasked.is_empty() {
            return Ok(());
        }
        let named = unasked.iter().take(MAX_UNASKED).copied().collect::<Vec<_>>().join("`, `");
        let more = unasked.len().saturating_sub(MAX_UNASKED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let warning = format!("the code did not ask for recorded steps: `{named}`{more}");
        self.note(Warning::new(warning))
    }

    /// Leaves the run to the code that started it: the record and its steps stay open.
    pub(super) async fn diverge(mut self, diverged: Diverged) -> OperatorError {
        // A definition that does not fit the record is not adopted.
        if self.ledger.has_open_adoption() {
            return diverged.into();
        }
        if let Some(before) = self.before.take()
            && let Err(error) = self.note(RunResumed::new(BY).adopting(*before))
        {
            return error;
        }
        if self.ledger.has_notes()
            && let Err(error) = self.ledger.commit().await
        {
            return OperatorError::from_failure(error);
        }
        diverged.into()
    }

    async fn stop(mut self, stop: Stop, output: &Value) -> Result<Answer, OperatorError> {
        let usage = self.ledger.usage();
        let text = self.redactor.redact_held(&plain(output)).into_owned();
        // A waiting run continues with its child runs.
        if stop != Stop::WaitingApproval {
            let mut finished = RunFinished::new(stop.outcome(), &*text, usage);
            finished.reason = stop.reason();
            finished.message = stop_message(&stop).map(Into::into);
            self.note(finished)?;
        }
        self.commit().await?;
        Ok(answer(Some(&self.run), stop, parse_value(&text), usage))
    }

    async fn fail(mut self, error: OperatorError) -> Result<Answer, OperatorError> {
        let (facts, usage) = (error.facts(), self.ledger.usage());
        if let Some(dimension) = facts.code.strip_prefix("budget.") {
            let (limit, used) = self.budget(dimension, &usage);
            let message = format!("a budget of the workflow's caller is used up: {dimension}");
            let reason = Code::new(facts.code);
            self.note(BudgetExhausted::new(reason.clone(), dimension, limit, used, message))?;
            let output = last_output(&error);
            return self.stop(Stop::BudgetExhausted { reason }, &output).await;
        }
        let redacted = |text: &String| self.redactor.redact_held(text).into_owned();
        let chain = chain(&error).iter().map(redacted).collect();
        let mut failed = RunFailed::new(Code::new(facts.code), chain, usage);
        let can_help = facts.retry != Retry::Never || facts.later != Retry::Never;
        failed.retry = can_help.then(|| facts.retry_facts());
        self.note(failed)?;
        self.commit().await?;
        Err(error)
    }

    fn note(&mut self, kind: impl Into<layer0::event::EventKind>) -> Result<(), OperatorError> {
        Ok(self.ledger.note(kind)?)
    }

    /// Returns the limit of a budget and its usage.
    fn budget(&self, dimension: &str, usage: &Usage) -> (Number, Number) {
        let started = self.ledger.progress().started.as_ref();
        let first = started.and_then(|started| started.allowance.as_deref()).copied();
        let granted = self.ledger.progress().granted.iter().flatten();
        let allowed = granted.fold(first.unwrap_or_default(), |allowed, more| allowed.plus(more));
        let of = |allowance: &Allowance| match dimension {
            "model_calls" => allowance.model_calls.map(u64::from),
            "tool_calls" => allowance.tool_calls.map(u64::from),
            "input_tokens" => allowance.input_tokens,
            "output_tokens" => allowance.output_tokens,
            "total_tokens" => allowance.total_tokens,
            _ => allowance.cost_nanousd,
        };
        let number = |allowance: &Allowance| Number::from(of(allowance).unwrap_or_default());
        (number(&allowed), number(&usage.into()))
    }

    /// Suspends the run with its child runs, to be resumed later.
    pub(super) async fn leave(mut self) -> Result<Answer, OperatorError> {
        let left = self.books.parked_until().map(|until| (until, None));
        let parked = self.parked.take().into_iter().chain(left).min_by_key(|(until, _)| *until);
        if let Some((until, reason)) = parked.clone().filter(|_| !self.has_caller) {
            self.note(parked_below(until, reason))?;
            self.commit().await?;
        }
        let usage = self.ledger.usage();
        let mut left = answer(Some(&self.run), Stop::WaitingApproval, Value::Null, usage);
        left.parked_until = parked.map(|(until, _)| until);
        Ok(left)
    }
}

fn parked_below(until: Timestamp, reason: Option<Code>) -> RunParked {
    // A child run without a record may not report the reason.
    let reason = reason.unwrap_or(Code::new(code::PROVIDER_RATE_LIMITED));
    RunParked::new(until, reason, "runs below are parked")
}

fn stop_message(stop: &Stop) -> Option<String> {
    match stop {
        Stop::Completed | Stop::WaitingApproval => None,
        Stop::Cancelled => Some("the workflow was cancelled".to_owned()),
        Stop::Incomplete { reason } => Some(format!("a step did not complete: {reason}")),
        Stop::BudgetExhausted { reason } => Some(format!("a budget is used up: {reason}")),
        other => Some(format!("{other:?}")),
    }
}

/// Returns the answer of the last step before a failure.
fn last_output(error: &OperatorError) -> Value {
    match error {
        OperatorError::SubDispatch { done, .. } => {
            done.last().map_or(Value::from(""), |step| step.output.clone())
        }
        _ => Value::from(""),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
