//! Several concurrent steps.

use futures_util::StreamExt;
use futures_util::stream;
use layer0::error::{OperatorError, StepDone};
use layer0::failure::{Failure, chain};
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;
use serde_json::{Value, json};

/// Behaviour of concurrent steps when one of them fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The others are stopped, and the workflow fails with that failure.
    #[default]
    FailFast,
    /// The others continue, and the answer has the end of each.
    Collect,
}

/// Returns the end of a workflow whose step did not complete.
pub(super) fn propagate_stop(answer: Answer) -> Answer {
    let mut stopped = Answer::from_output(answer.output);
    (stopped.stop, stopped.parked_until) = (answer.stop, answer.parked_until);
    stopped
}

/// Returns a finished step.
pub(super) fn done_by(step: impl Into<Box<str>>, operator: &str, answer: &Answer) -> StepDone {
    StepDone::new(step, operator, answer.output.clone()).run(answer.run.clone())
}

/// Dispatches tasks, at most `limit` at once, and returns their answers as a list in the order of the tasks.
pub(super) async fn fan_out(
    context: &Context,
    tasks: Vec<(String, Task)>,
    (limit, on_failure): (Option<usize>, OnFailure),
) -> Result<Answer, OperatorError> {
    let count = tasks.len();
    let operators: Vec<String> = tasks.iter().map(|(operator, _)| operator.clone()).collect();
    let limit = limit.unwrap_or(count).max(1);
    let steps = tasks.into_iter().enumerate().map(|(place, (operator, task))| {
        let context = context.step((place + 1).to_string()).sharing(count - place);
        async move { (place, context.dispatch(&operator, task).await) }
    });
    let mut steps = stream::iter(steps).buffer_unordered(limit);
    let mut ends: Vec<Option<Result<Answer, OperatorError>>> = Vec::new();
    ends.resize_with(count, || None);
    while let Some((place, end)) = steps.next().await {
        match (on_failure, end) {
            // Steps that nothing waits for any more are stopped.
            (OnFailure::FailFast, Err(error)) => {
                return Err(error.after(completed_steps(&operators, &ends)));
            }
            (OnFailure::FailFast, Ok(answer)) if answer.stop != Stop::Completed => {
                return Ok(propagate_stop(answer));
            }
            (_, end) => ends[place] = Some(end),
        }
    }
    let ends = operators.into_iter().zip(ends.into_iter().flatten());
    let output = ends.map(|(operator, end)| match (on_failure, end) {
        (OnFailure::FailFast, Ok(answer)) => answer.output,
        (_, Ok(answer)) if answer.stop == Stop::Completed => {
            json!({ "operator": operator, "output": answer.output })
        }
        (_, Ok(answer)) => json!({
            "operator": operator,
            "output": answer.output,
            "stopped": answer.stop.reason(),
        }),
        (_, Err(error)) => json!({
            "operator": operator,
            "error": { "reason": error.code(), "message": innermost_message(&error) },
        }),
    });
    Ok(Answer::from_output(output.collect()))
}

/// Returns the innermost message of a failure: it is the same live and from a record.
fn innermost_message(error: &OperatorError) -> Value {
    chain(error).pop().into()
}

fn completed_steps(
    operators: &[String],
    ends: &[Option<Result<Answer, OperatorError>>],
) -> Vec<StepDone> {
    let ends = operators.iter().zip(ends).enumerate();
    let done = ends.filter_map(|(place, (operator, end))| {
        let answer = end.as_ref()?.as_ref().ok()?;
        Some(done_by((place + 1).to_string(), operator, answer))
    });
    done.collect()
}
