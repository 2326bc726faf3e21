//! An agent as an operator: dispatched by name or as a tool, and resumed from its record.

use std::sync::Arc;

use async_trait::async_trait;
use backstop_event_log::{EventLog, LogError, RunState, RunSummary};
use backstop_react_machine::Divergence;
use layer0::Operator;
use layer0::error::OperatorError;
use layer0::operator::{Answer, Context, Task};
use layer0::stop::{Outcome, Stop};
use layer0::text::plain;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::agent::reopen::ReopenRequest;
use crate::agent::resume::ResumeRequest;
use crate::outcome::RunOutcome;
use crate::request::RunRequest;
use crate::resume_error::ResumeError;
use crate::run::finish::read_outcome;

/// An agent answers text with text, or with JSON if the task asks for a schema; the model reads an input that is not
/// text as JSON.
///
/// It obeys the context's deadline, signals, depth and allowance, and its tools dispatch through the context's
/// orchestrator. A run that has a record is resumed: see [`Context::goes_on`].
#[async_trait]
impl Operator for Agent {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn input_schema(&self) -> Option<&Value> {
        self.inner.input_schema()
    }

    fn output_schema(&self) -> Option<&Value> {
        self.inner.output_schema().map(|schema| &**schema)
    }

    fn calls(&self) -> Vec<&str> {
        self.inner.tools.operators().collect()
    }

    fn is_priced(&self) -> bool {
        self.inner.definition.price.is_some()
    }

    fn can_go_on(&self) -> bool {
        self.inner.log.is_some()
    }

    fn digest(&self) -> Option<Arc<str>> {
        Some(self.inner.record().agent.digest)
    }

    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        let request = RunRequest::for_dispatch(plain(&task.input), &task, context);
        let outcome = self.run_or_resume(request, context).await?;
        if !outcome.approvals.is_empty() && self.inner.log.is_none() {
            let why = "it waits for a person, and keeps no record in which that could be decided";
            return Err(OperatorError::NonRetryable(why.to_owned()));
        }
        let output = match task.output_schema.as_ref().or_else(|| self.output_schema()) {
            Some(_) if outcome.stop == Stop::Completed => {
                serde_json::from_str(&outcome.output).unwrap_or_else(|_| text(&outcome))
            }
            _ => text(&outcome),
        };
        let mut answer = Answer::from_output(output);
        (answer.stop, answer.run, answer.usage) =
            (outcome.stop, Some(outcome.run_id), outcome.usage);
        answer.parked_until = outcome.parked_until;
        Ok(answer)
    }
}

impl Agent {
    /// Runs a dispatched run, or resumes it from its record.
    async fn run_or_resume(
        &self,
        request: RunRequest,
        context: &Context,
    ) -> Result<RunOutcome, OperatorError> {
        let (Some(log), Some(run)) = (&self.inner.log, context.run.as_ref()) else {
            return Ok(self.run(request).await?);
        };
        if !context.goes_on {
            return Ok(self.run(request).await?);
        }
        let summary = log.summary(run).await.map_err(OperatorError::from_failure)?;
        let summary = match summary {
            Some(summary) => summary,
            None if context.is_recorded => {
                let run = run.clone();
                let is_below = context.parent.is_some();
                let missing = if is_below { LogError::Lost(run) } else { LogError::NotFound(run) };
                return Err(OperatorError::from_failure(missing));
            }
            None => return Ok(self.run(request).await?),
        };
        // Rare, and its future is many times as large as that of a run that begins.
        let taken_up = Box::pin(self.take_up(&**log, &summary, request, context));
        Ok(taken_up.await?)
    }

    /// Resumes a run that has a record.
    async fn take_up(
        &self,
        log: &dyn EventLog,
        summary: &RunSummary,
        request: RunRequest,
        context: &Context,
    ) -> Result<RunOutcome, ResumeError> {
        let run = summary.run.clone();
        let RunRequest { cancellation, place, .. } = request;
        // Its earlier usage counts, however it ends.
        if let Some(caller) = &context.caller {
            caller.report_usage(summary.usage);
        }
        if summary.is_open() {
            let mut resume = ResumeRequest::new(run).cancelled_by(cancellation);
            resume.place = place;
            return self.resume(resume).await;
        }
        // A retried workflow also resumes the child runs that it stopped when it failed.
        let can_be_tried_again =
            summary.state == RunState::Failed || summary.outcome == Some(Outcome::Cancelled);
        let is_another_attempt = context.attempt > 1
            && can_be_tried_again
            && summary.reopens.saturating_add(1) < context.attempt;
        if is_another_attempt {
            let mut reopen = ReopenRequest::new(run.clone()).cancelled_by(cancellation);
            // A retried run keeps the definition it began with.
            (reopen.place, reopen.other_agent) = (place, context.adopts);
            match self.reopen(reopen).await {
                // The run keeps its end.
                Err(ResumeError::NotReopenable { .. }) => {}
                result => return result,
            }
        }
        if *summary.agent != *self.name() {
            // An agent does not answer for another one.
            let (expected, actual) = (json!({"name": summary.agent}), json!({"name": self.name()}));
            let divergence = Divergence::new(1, "agent", expected, actual);
            return Err(ResumeError::Diverged(divergence.into()));
        }
        let outcome = read_outcome(log, &run).await?;
        outcome.ok_or_else(|| ResumeError::open(run, summary.state))
    }
}

fn text(outcome: &RunOutcome) -> Value {
    Value::String(outcome.output.as_ref().to_owned())
}
