//! An operator within walls: a program that is asked over its standard input and answers on its output.

mod ends;
mod lines;

use std::future::poll_fn;
use std::sync::Arc;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use layer0::Environment;
use layer0::error::{EnvError, OperatorError};
use layer0::operator::{Answer, Context, Operator, OperatorProgram, Signal, Signals, Task};
use layer0::stop::Stop;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;

use self::ends::DeadlinePassed;
use self::lines::NoAnswer;
use crate::{ProgramExit, Walled, WalledProgram, Walls};

/// The longest answer, and the most that is read of errors, in bytes.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
const MAX_ERRORS: u64 = 64 * 1024;

#[async_trait]
impl Environment for Walls {
    /// Runs the operator's [program](Operator::program) within the walls, until the deadline of the context at most;
    /// then, and when it is sent the signal `cancel`, it is ended with all that it has started. A cancelled one
    /// answers with [`Stop::Cancelled`]. Other signals are passed on to a program that
    /// [takes them](OperatorProgram::takes_signals). The time is the system's, as the program is.
    ///
    /// # Errors
    ///
    /// [`EnvError::ProvisionFailed`], when the operator has no program: one in this process cannot be walled in.
    /// A wall that it ran into, [`EnvError::NetworkDenied`], [`EnvError::IsolationViolation`] or
    /// [`EnvError::ResourceExceeded`], where it failed; [`EnvError::OperatorError`] otherwise: of the code
    /// `budget.wall_time` when the deadline has passed, and [`OperatorError::NonRetryable`] when it is sent a signal
    /// that it does not take.
    async fn run(
        &self,
        operator: Arc<dyn Operator>,
        task: Task,
        context: Context,
    ) -> Result<Answer, EnvError> {
        let name = operator.name();
        let Some(program) = operator.program() else {
            return Err(EnvError::ProvisionFailed(format!(
                "operator `{name}` runs in this process, which cannot be walled in: it has no program"
            )));
        };
        // time of day: the orchestrator has just set the deadline, and the rest is measured.
        let left = context.deadline.map(|deadline| deadline.since(SystemClock.now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(OperatorError::from_failure(DeadlinePassed::before_start(name)).into());
        }
        let line = lines::task(&task, &context);
        let takes_signals = program.takes_signals;
        let late = async {
            match left {
                Some(left) => SystemClock.sleep(left).await,
                None => std::future::pending().await,
            }
        };
        let work = async {
            let program = walled_program(program).reading(lines::input(line, takes_signals));
            let mut walled = self.command(program).spawn().await?;
            let stdin = walled.stdin.take();
            tokio::select! {
                heard = hear(&mut walled) => {
                    let (answer, errors, ended) = heard?;
                    read_result(name, &walled, &answer, &errors, &ended)
                }
                end = tell(stdin, &context.signals) => match end {
                    EarlyEnd::Cancelled => Ok(cancelled_answer()),
                    EarlyEnd::Unfit(signal) => Err(unfit(name, &signal)),
                },
            }
        };
        // The program's remaining processes end when its walls are dropped.
        tokio::select! {
            ended = work => ended,
            () = late => Err(OperatorError::from_failure(DeadlinePassed::after_start(name)).into()),
        }
    }
}

fn walled_program(program: OperatorProgram) -> WalledProgram {
    let OperatorProgram { name, arguments, folder, variables, .. } = program;
    WalledProgram::new(name, arguments, folder, variables)
}

/// The reason to end a program before it has answered.
enum EarlyEnd {
    Cancelled,
    /// The program was sent a signal that it does not take.
    Unfit(Signal),
}

/// Sends the program the signals that it takes. Returns when the program has to be ended.
async fn tell(mut stdin: Option<ChildStdin>, signals: &Signals) -> EarlyEnd {
    loop {
        let signal = poll_fn(|context| signals.poll_take(context)).await;
        let line = match (&*signal.name, &stdin) {
            (Signal::CANCEL, _) => return EarlyEnd::Cancelled,
            (_, Some(_)) => lines::signal(&signal),
            (_, None) => return EarlyEnd::Unfit(signal),
        };
        if let Some(stdin) = &mut stdin {
            tokio::select! {
                // A program may ignore its signals.
                _ = stdin.write_all(line.as_bytes()) => {}
                () = poll_fn(|context| signals.poll_has(Signal::CANCEL, context)) => {}
            }
        }
    }
}

fn cancelled_answer() -> Answer {
    let mut answer = Answer::from_output(Value::Null);
    answer.stop = Stop::Cancelled;
    answer
}

fn unfit(operator: &str, signal: &Signal) -> EnvError {
    let name = &signal.name;
    let why = format!(
        "operator `{operator}` was sent the signal `{name}`, and its program takes none but `cancel`"
    );
    OperatorError::NonRetryable(why).into()
}

/// Reads all output of a program, and waits for its end.
async fn hear(walled: &mut Walled) -> Result<(Vec<u8>, String, ProgramExit), EnvError> {
    let (stdout, stderr) = (walled.stdout.take(), walled.stderr.take());
    let (answer, errors) = tokio::join!(read(stdout, MAX_BYTES), read(stderr, MAX_ERRORS));
    let ended = walled.wait().await?;
    Ok((answer, String::from_utf8_lossy(&errors).into_owned(), ended))
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

/// Returns the answer or error of a program that has ended by itself.
fn read_result(
    operator: &str,
    walled: &Walled,
    answer: &[u8],
    errors: &str,
    ended: &ProgramExit,
) -> Result<Answer, EnvError> {
    match lines::answer(answer) {
        Ok(output) if ended.is_success() => Ok(Answer::from_output(output)),
        answered => Err(walled.explain(errors).unwrap_or_else(|| {
            let why = match answered {
                Ok(_) => format!("operator `{operator}` answered, and ended with {ended}"),
                Err(NoAnswer::Failed(error)) => return error.into(),
                Err(NoAnswer::Unread(why)) => why,
            };
            OperatorError::NonRetryable(with_walls(why, walled)).into()
        })),
    }
}

/// Adds the walls, because a wall may be the unseen reason.
fn with_walls(why: String, walled: &Walled) -> String {
    match walled.describe_walls() {
        Some(walls) => format!("{why} ({walls})"),
        None => why,
    }
}
