//! Several steps at once.

use futures_util::StreamExt;
use futures_util::stream;
use layer0::error::{OperatorError, StepDone};
use layer0::failure::{Failure, chain};
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;
use serde_json::{Value, json};

/// What becomes of several steps at once when one of them fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The others are stopped, and it fails with that one.
    #[default]
    FailFast,
    /// The others go on, and the answer says of each how it ended.
    Collect,
}

/// Returns how a step ended that did not complete, for a workflow that ends with it.
pub(super) fn stopped(answer: Answer) -> Answer {
    let mut stopped = Answer::completed(answer.output);
    (stopped.stop, stopped.parked_until) = (answer.stop, answer.parked_until);
    stopped
}

/// Returns a step that was done.
pub(super) fn done_by(step: impl Into<Box<str>>, operator: &str, answer: &Answer) -> StepDone {
    StepDone::new(step, operator, answer.output.clone()).run(answer.run.clone())
}

/// Dispatches tasks, so many at once, and returns their answers as a list in the order asked.
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
            // Those that are not waited for any more are stopped.
            (OnFailure::FailFast, Err(error)) => return Err(error.after(done(&operators, &ends))),
            (OnFailure::FailFast, Ok(answer)) if answer.stop != Stop::Completed => {
                return Ok(stopped(answer));
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
            "error": { "reason": error.code(), "message": cause_of(&error) },
        }),
    });
    Ok(Answer::completed(output.collect()))
}

/// Returns what is at the bottom of a failure: it is the same live and from a record.
fn cause_of(error: &OperatorError) -> Value {
    chain(error).pop().into()
}

fn done(operators: &[String], ends: &[Option<Result<Answer, OperatorError>>]) -> Vec<StepDone> {
    let ends = operators.iter().zip(ends).enumerate();
    let done = ends.filter_map(|(place, (operator, end))| {
        let answer = end.as_ref()?.as_ref().ok()?;
        Some(done_by((place + 1).to_string(), operator, answer))
    });
    done.collect()
}
