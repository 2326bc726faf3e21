//! Input and output of an operator's program, each a line of JSON.

use std::collections::BTreeMap;

use layer0::Timestamp;
use layer0::error::OperatorError;
use layer0::id::{RunId, SessionId};
use layer0::message::Image;
use layer0::operator::{Context, Signal, Task};
use layer0::usage::Allowance;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ProgramInput;

/// The first line: the task and its context, without unknown fields.
#[derive(Serialize)]
struct OperatorTask<'a> {
    input: &'a Value,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    images: &'a [Image],
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a Value>,
    context: AskedIn<'a>,
}

#[derive(Serialize)]
struct AskedIn<'a> {
    attempt: u32,
    depth: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'a RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<&'a RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowance: Option<&'a Allowance>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
}

/// Encodes a task.
pub(super) fn task(task: &Task, context: &Context) -> String {
    let asked = OperatorTask {
        input: &task.input,
        images: &task.images,
        output_schema: task.output_schema.as_ref(),
        context: AskedIn {
            attempt: context.attempt,
            depth: context.depth,
            session: context.session.as_ref(),
            run: context.run.as_ref(),
            parent: context.parent.as_ref(),
            root: context.root.as_ref(),
            deadline: context.deadline,
            allowance: context.allowance.as_ref(),
            labels: &context.labels,
        },
    };
    format!("{}\n", json!(asked))
}

/// Returns the program's input: the task, which is complete before the program starts, followed by the end or by
/// signals.
pub(super) fn input(task: String, takes_signals: bool) -> ProgramInput {
    match takes_signals {
        true => ProgramInput::First(task.into_bytes()),
        false => ProgramInput::Whole(task.into_bytes()),
    }
}

/// Encodes a signal.
pub(super) fn signal(signal: &Signal) -> String {
    format!("{}\n", json!({ "signal": { "name": signal.name, "data": signal.data } }))
}

/// The answer of an operator.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OperatorReply {
    Error { code: String, message: String },
    Output(Value),
}

/// The reason for a missing answer.
pub(super) enum NoAnswer {
    /// The operator reported an error.
    Failed(OperatorError),
    /// Nothing that can be read.
    Unread(String),
}

/// Decodes an answer from the last line of an output.
pub(super) fn answer(answer: &[u8]) -> Result<Value, NoAnswer> {
    let unfit = |why: String| NoAnswer::Unread(format!("its answer cannot be read: {why}"));
    let text = std::str::from_utf8(answer).map_err(|error| unfit(error.to_string()))?;
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    let line = line.ok_or_else(|| unfit("there is none".to_owned()))?;
    match serde_json::from_str(line) {
        Ok(OperatorReply::Output(output)) => Ok(output),
        Ok(OperatorReply::Error { code, message }) => {
            Err(NoAnswer::Failed(OperatorError::NonRetryable(format!("{code}: {message}"))))
        }
        Err(error) => Err(unfit(error.to_string())),
    }
}
