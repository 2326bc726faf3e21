//! Running a program, and the report of its end.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_environment::{ProgramInput, Walled, WalledProgram, Walls};
use backstop_process::{CompleteInput, Credential, MARK, Processes, new_mark};
use backstop_redact::Redactor;
use backstop_tool::{ToolContext, ToolError};
use futures_util::future::select;
use layer0::JsonText;
use layer0::error::EnvError;
use layer0::failure::Effect;

use super::output::{self, CommandOutput, MAX_OUTPUT_BYTES, OutputText};
use super::started::{StartError, StartedCommand};

/// The time for which outputs are read after the program has ended.
const LAST_WORDS: Duration = Duration::from_millis(250);
/// The most characters of a program's last error line that are reported with the wall that it reached.
const MAX_WORDS_CHARS: usize = 200;

/// A program of your own with its arguments, and where it runs.
///
/// It runs as a [`CommandTool`](crate::CommandTool) does: in a process group of its own, which is killed when what
/// runs it is given up.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use backstop_builtin_tools::Program;
/// use backstop_redact::Redactor;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # #[cfg(unix)] {
/// let variables = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
/// let script = ["-c".to_owned(), "read line; echo \"$line\" >&2; exit 3".to_owned()];
/// let ended = Program::new("sh", script, "/", variables).output("hello\n", &Redactor::new()).await?;
/// assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(3), "hello\n"));
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Program {
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) folder: PathBuf,
    /// The environment of the program, except for the mark of its call.
    pub(crate) variables: BTreeMap<String, String>,
    /// The walls around the program, if any.
    pub(crate) walls: Option<Walls>,
    /// Variables whose values are fetched when the program starts.
    pub(crate) credentials: Vec<(String, Credential)>,
}

/// The end of a [`Program`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramEnd {
    /// The exit status, or the signal that ended the program.
    pub status: ExitStatus,
    /// The standard output, at most 8 MiB, without secrets.
    pub stdout: String,
    /// The standard error, at most 8 MiB, without secrets.
    pub stderr: String,
}

/// The state of an ended program.
struct CommandEnd {
    status: ExitStatus,
    out: Arc<CommandOutput>,
    err: Arc<CommandOutput>,
    /// The walls around the program.
    walls: Option<Box<Walled>>,
}

impl Program {
    /// Describes a program. It sees only `variables` as its environment, and `BACKSTOP_CALL`, by which its
    /// processes are known.
    pub fn new(
        program: impl Into<String>,
        arguments: impl IntoIterator<Item = String>,
        folder: impl Into<PathBuf>,
        variables: BTreeMap<String, String>,
    ) -> Self {
        Self {
            name: program.into(),
            arguments: arguments.into_iter().collect(),
            folder: folder.into(),
            variables,
            walls: None,
            credentials: Vec::new(),
        }
    }

    /// Describes the shell, which takes a command line as one more argument: `sh -c`.
    pub fn shell(folder: impl Into<PathBuf>, variables: BTreeMap<String, String>) -> Self {
        Self::new("sh", ["-c".to_owned()], folder, variables)
    }

    /// Runs the program within walls.
    #[must_use]
    pub fn within(mut self, walls: Walls) -> Self {
        self.walls = Some(walls);
        self
    }

    /// Gives the program a credential in a variable; it is fetched at each start, and removed from the program's
    /// output. A relative path in the credential is resolved against the program's folder.
    #[must_use]
    pub fn credential(mut self, variable: impl Into<String>, credential: Credential) -> Self {
        let credential = credential.below(&*self.folder);
        self.credentials.push((variable.into(), credential));
        self
    }

    /// Returns the program with one more variable in its environment.
    pub(crate) fn seeing(&self, name: &str, value: &str) -> Self {
        let mut program = self.clone();
        program.variables.insert(name.to_owned(), value.to_owned());
        program
    }

    /// Runs it to its end, with this on its standard input.
    ///
    /// # Errors
    ///
    /// When it cannot be started or waited for; [`io::ErrorKind::NotFound`] where it is not there.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future kills the program and what it has started.
    pub async fn output(&self, input: &str, redactor: &Redactor) -> io::Result<ProgramEnd> {
        let (variables, redactor) = self.fetch(redactor).await.map_err(io::Error::other)?;
        let started = self.start(input, variables).await.map_err(|error| match error {
            StartError::NotStarted(error) => error,
            StartError::Walls(error) => io::Error::other(error),
        })?;
        let ended = self.execute(started, |_, _| {}).await?;
        let text = |output: &CommandOutput| {
            redactor.redact(&output.text(&redactor).readable()).into_owned()
        };
        let (stdout, stderr) = (text(&ended.out), text(&ended.err));
        Ok(ProgramEnd { status: ended.status, stdout, stderr })
    }

    /// Runs it with this on its standard input, as the call that the context is of.
    pub(crate) async fn run(
        &self,
        input: &str,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let failed = |what: &str, error: io::Error| {
            ToolError::ExecutionFailed(format!("{what} `{}` failed: {error}", self.name))
        };
        let (variables, redactor) = self.fetch(&context.redactor).await?;
        let started = self.start(input, variables).await.map_err(|error| match error {
            StartError::NotStarted(error) => failed("starting", error).with_effect(Effect::None),
            StartError::Walls(error) => error.into(),
        })?;
        let begun = |out: Arc<CommandOutput>, err: Arc<CommandOutput>| {
            let redactor = redactor.clone();
            context.written.read_with(move || {
                let written = output::format_partial_output(&out, &err, &redactor)?;
                Some(redactor.redact_held(&written).into_owned())
            });
        };
        let ended = self.execute(started, begun).await;
        let CommandEnd { status, out, err, walls } =
            ended.map_err(|error| failed("waiting for", error))?;
        if status.success() {
            let warned = err.text(&redactor);
            if !warned.is_blank() {
                context.stderr.keep(&*redactor.redact_held(&warned.readable()));
            }
            return Ok(self.without_credentials(out.text(&redactor).into_output(), &redactor));
        }
        let said = err.text(&redactor);
        let described = walls.as_ref().and_then(|walled| walled.describe_walls());
        if let Some(walled) = walls
            && let Some(error) = walled.explain(&said.readable())
        {
            let error = with_words(error, status, &said, &redactor);
            let error = ToolError::from(error).with_code(error_code(status));
            // The model reads its last line.
            return Err(match output::format_partial_output(&out, &err, &redactor) {
                Some(wrote) => error.with_output(redactor.redact_held(&wrote)),
                None => error,
            });
        }
        let output = out.text(&redactor);
        let (said, output) = match said.is_blank() {
            true => (output, None),
            false => (said, Some(output).filter(|output| !output.is_blank())),
        };
        let text = if said.is_blank() {
            format!("`{}` ended with {status} and said nothing", self.name)
        } else {
            redactor.redact_held(&said.into_error(&redactor)).into_owned()
        };
        let error = ToolError::ExecutionFailed(text).with_code(error_code(status));
        // Nothing outside of the program saw a wall, which may be the reason nevertheless.
        let error = match described {
            Some(described) => error.with_note(described),
            None => error,
        };
        Err(match output {
            Some(output) => {
                let output = format!("standard output:\n{}", output.into_error(&redactor));
                error.with_output(redactor.redact_held(&output))
            }
            None => error,
        })
    }

    /// Fetches the credentials; returns the program's environment, and a redactor of its secrets.
    async fn fetch(
        &self,
        redactor: &Redactor,
    ) -> Result<(BTreeMap<String, String>, Redactor), EnvError> {
        let (mut variables, mut redactor) = (self.variables.clone(), redactor.clone());
        for (variable, credential) in &self.credentials {
            let secret = credential.fetch().await?;
            redactor.obtain(secret.expose());
            redactor = redactor.with_secret(secret.expose());
            variables.insert(variable.clone(), secret.expose().to_owned());
        }
        Ok((variables, redactor))
    }

    /// Takes the program's own credentials out of its output; the runtime takes out those of the process.
    fn without_credentials(&self, output: JsonText, redactor: &Redactor) -> JsonText {
        match self.credentials.is_empty() {
            true => output,
            false => redactor.redact_held_json(output),
        }
    }

    /// Waits for the end of a program that was started.
    async fn execute(
        &self,
        mut started: StartedCommand,
        begun: impl FnOnce(Arc<CommandOutput>, Arc<CommandOutput>),
    ) -> io::Result<CommandEnd> {
        let (stdout, stderr) = started.outputs();
        let limit = self.walls.as_ref().and_then(|walls| walls.rules().output_kib);
        let limit = limit.map_or(MAX_OUTPUT_BYTES, |kib| {
            usize::try_from(kib.saturating_mul(1024)).unwrap_or(usize::MAX).min(MAX_OUTPUT_BYTES)
        });
        let (out, err) = (Arc::new(CommandOutput::new(limit)), Arc::new(CommandOutput::new(limit)));
        begun(Arc::clone(&out), Arc::clone(&err));
        let ended = {
            let mut talk = pin!(async { tokio::join!(out.read(stdout), err.read(stderr)) });
            let ended = tokio::select! {
                _ = &mut talk => None,
                status = started.wait() => Some(status),
            };
            match ended {
                // Its output is complete.
                None => started.wait().await,
                // It has ended, but its child processes may hold its outputs open: take the output so far.
                Some(status) => {
                    // The wait is for a real process, so the time is the system's.
                    let _ = select(talk, SystemClock.sleep(LAST_WORDS)).await;
                    status
                }
            }
        };
        let status = ended?;
        Ok(CommandEnd { status, out, err, walls: started.into_walls() })
    }

    /// Starts the program. Its input is complete by then: a program that was begun without it, because this process
    /// died, would act on nothing.
    async fn start(
        &self,
        input: &str,
        variables: BTreeMap<String, String>,
    ) -> Result<StartedCommand, StartError> {
        match &self.walls {
            Some(walls) => {
                let mut variables = variables;
                variables.insert(MARK.to_owned(), new_mark());
                let arguments = self.arguments.iter().cloned();
                let program = WalledProgram::new(&*self.name, arguments, &*self.folder, variables)
                    .reading(ProgramInput::Whole(input.as_bytes().to_vec()));
                let walled = walls.command(program).spawn().await.map_err(StartError::Walls)?;
                Ok(StartedCommand::Walled(Box::new(walled)))
            }
            None => {
                let input = CompleteInput::new(input.as_bytes()).map_err(StartError::NotStarted)?;
                let started = Processes::start(&self.name, |command| {
                    command
                        .stdin(input)
                        .args(&self.arguments)
                        .current_dir(&self.folder)
                        .env_clear()
                        .envs(&variables);
                });
                let free =
                    started.map_err(|error| StartError::NotStarted(self.not_started(error)))?;
                Ok(StartedCommand::Free(Box::new(free)))
            }
        }
    }

    /// Names the folder if the folder is missing: the system names neither folder nor program.
    fn not_started(&self, error: io::Error) -> io::Error {
        if self.folder.is_dir() {
            return error;
        }
        let why = format!("there is no folder `{}` to run it in", self.folder.display());
        io::Error::new(io::ErrorKind::NotADirectory, why)
    }
}

/// Adds the program's exit status and the last line of its errors to the error of a wall.
fn with_words(
    error: EnvError,
    status: ExitStatus,
    said: &OutputText,
    redactor: &Redactor,
) -> EnvError {
    let said = said.readable();
    let said = redactor.redact(&said);
    let words = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let words: String = words.unwrap_or_default().chars().take(MAX_WORDS_CHARS).collect();
    let more = match words.is_empty() {
        true => format!(" ({status})"),
        false => format!(" ({status}: {words})"),
    };
    match error {
        EnvError::IsolationViolation(what) => EnvError::IsolationViolation(what + &more),
        EnvError::NetworkDenied(what) => EnvError::NetworkDenied(what + &more),
        EnvError::ResourceExceeded(what) => EnvError::ResourceExceeded(what + &more),
        other => other,
    }
}

fn error_code(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("signal_{signal}");
    }
    status.code().map_or_else(|| "exit_unknown".to_owned(), |code| format!("exit_{code}"))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn reads(script: &str) -> Program {
        let variables = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        Program::new("sh", ["-c".to_owned(), script.to_owned()], "/", variables)
    }

    /// Nothing is written to the program here once it has started, as nothing is by a process that has died.
    ///
    /// Spec: T8
    #[tokio::test]
    async fn program_begins_with_its_whole_input() {
        for length in [0, 1, 65_536, 65_537, 3 << 20] {
            let program = reads("wc -c");
            let started = program.start(&"x".repeat(length), program.variables.clone()).await;
            let Ok(mut started) = started else { panic!("it starts") };
            let out = CommandOutput::new(MAX_OUTPUT_BYTES);
            out.read(started.outputs().0).await;
            assert!(started.wait().await.unwrap().success());
            let text = out.text(&Redactor::new()).readable().to_owned();
            assert_eq!(text.trim(), length.to_string());
        }
    }
}
