//! An operator within walls: a program that is asked over its standard input and answers on its output.

use std::sync::Arc;

use async_trait::async_trait;
use layer0::Environment;
use layer0::error::{EnvError, OperatorError};
use layer0::operator::{Answer, Context, Operator, OperatorProgram, Task};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::{Walled, WalledProgram, Walls};

/// The longest answer, and the most that is read of errors, in bytes.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
const MAX_ERRORS: u64 = 64 * 1024;

#[async_trait]
impl Environment for Walls {
    /// Runs the operator's [program](Operator::program) within the walls.
    ///
    /// # Errors
    ///
    /// [`EnvError::ProvisionFailed`], when the operator has no program: one in this process cannot be walled in.
    /// A wall that it ran into, [`EnvError::NetworkDenied`], [`EnvError::IsolationViolation`] or
    /// [`EnvError::ResourceExceeded`], where it failed; [`EnvError::OperatorError`] otherwise.
    async fn run(
        &self,
        operator: Arc<dyn Operator>,
        task: Task,
        _: Context,
    ) -> Result<Answer, EnvError> {
        let Some(program) = operator.program() else {
            let name = operator.name();
            return Err(EnvError::ProvisionFailed(format!(
                "operator `{name}` runs in this process, which cannot be walled in: it has no program"
            )));
        };
        let mut walled = self.command(walled_program(program)).spawn().await?;
        let mut line = serde_json::json!({ "input": task.input }).to_string();
        line.push('\n');
        let (answer, errors) = talk(&mut walled, line).await;
        let ended = walled.wait().await?;
        match read_answer(&answer) {
            Ok(output) if ended.is_success() => Ok(Answer::completed(output)),
            answered => Err(walled.explain(&errors).unwrap_or_else(|| {
                EnvError::OperatorError(answered.err().unwrap_or_else(|| {
                    OperatorError::NonRetryable(format!(
                        "operator `{}` answered, and ended with {ended}",
                        operator.name()
                    ))
                }))
            })),
        }
    }
}

fn walled_program(program: OperatorProgram) -> WalledProgram {
    let OperatorProgram { name, arguments, folder, variables, .. } = program;
    WalledProgram::new(name, arguments, folder, variables)
}

/// Asks, and reads all that is said.
async fn talk(walled: &mut Walled, line: String) -> (Vec<u8>, String) {
    let (stdin, stdout, stderr) = (walled.stdin.take(), walled.stdout.take(), walled.stderr.take());
    let ask = async {
        if let Some(mut stdin) = stdin {
            // A program that does not read its task is free to.
            let _ = stdin.write_all(line.as_bytes()).await;
        }
    };
    let ((), answer, errors) = tokio::join!(ask, read(stdout, MAX_BYTES), read(stderr, MAX_ERRORS));
    (answer, String::from_utf8_lossy(&errors).into_owned())
}

async fn read(from: Option<impl AsyncRead + Unpin>, most: u64) -> Vec<u8> {
    let mut kept = Vec::new();
    if let Some(mut from) = from {
        let _ = (&mut from).take(most).read_to_end(&mut kept).await;
        // It does not wait for what is not read.
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
    kept
}

/// What an operator answers: one of both.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answered {
    Error { code: String, message: String },
    Output(Value),
}

fn read_answer(answer: &[u8]) -> Result<Value, OperatorError> {
    let unfit =
        |why: String| OperatorError::NonRetryable(format!("its answer cannot be read: {why}"));
    let text = std::str::from_utf8(answer).map_err(|error| unfit(error.to_string()))?;
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    let line = line.ok_or_else(|| unfit("there is none".to_owned()))?;
    match serde_json::from_str(line) {
        Ok(Answered::Output(output)) => Ok(output),
        Ok(Answered::Error { code, message }) => {
            Err(OperatorError::NonRetryable(format!("{code}: {message}")))
        }
        Err(error) => Err(unfit(error.to_string())),
    }
}
