//! Running a program, and all that is known of it when it has ended or was given up.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_redact::Redactor;
use backstop_tool::{ToolContext, ToolError};
use futures_util::future::select;
use layer0::JsonText;
use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::io::AsyncWriteExt;

use super::output::{self, Output};
use super::privileges::spawn_without_new_ones;
use super::processes::{MARK, kill_all, new_mark};
#[cfg(unix)]
use super::watchdog::Watchdog;

/// How long outputs are read after the program has ended.
const LAST_WORDS: Duration = Duration::from_millis(250);

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
    /// All that it sees of the environment, but for the mark of its call.
    pub(crate) variables: BTreeMap<String, String>,
    /// Is what it wrote to standard output kept beside an error from standard error?
    pub(crate) keeps_output: bool,
}

/// How a [`Program`] ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramEnd {
    /// What it exited with, or the signal that ended it.
    pub status: ExitStatus,
    /// What it wrote to standard output, at most 8 MiB of it, without secrets.
    pub stdout: String,
    /// What it wrote to standard error, at most 8 MiB of it, without secrets.
    pub stderr: String,
}

/// What is left of a program that ended.
struct Ended {
    status: ExitStatus,
    out: Arc<Output>,
    err: Arc<Output>,
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
            keeps_output: false,
        }
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
        let ended = Self::execute(input, self.spawn()?, |_, _| {}).await?;
        let text =
            |output: &Output| redactor.redact(&output.text(redactor).readable()).into_owned();
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
        let processes = self.spawn().map_err(|error| failed("starting", error))?;
        let redactor = &context.redactor;
        let begun = |out: Arc<Output>, err: Arc<Output>| {
            let redactor = redactor.clone();
            context.written.read_with(move || output::written(&out, &err, &redactor));
        };
        let ended = Self::execute(input, processes, begun).await;
        let Ended { status, out, err } = ended.map_err(|error| failed("waiting for", error))?;
        if status.success() {
            return Ok(out.text(redactor).into_output());
        }
        let said = err.text(redactor);
        let beside = (self.keeps_output && !said.is_blank()).then(|| out.text(redactor));
        let said = if said.is_blank() { out.text(redactor) } else { said };
        let text = if said.is_blank() {
            format!("`{}` ended with {status} and said nothing", self.name)
        } else {
            said.into_error(redactor)
        };
        let error = ToolError::ExecutionFailed(text).with_code(code_of(status));
        Err(match beside {
            Some(output) if !output.is_blank() => error.with_output(output.into_error(redactor)),
            _ => error,
        })
    }

    /// Waits for the end of a program that was started.
    async fn execute(
        input: &str,
        mut processes: Processes,
        begun: impl FnOnce(Arc<Output>, Arc<Output>),
    ) -> io::Result<Ended> {
        let child = &mut processes.child;
        let (stdin, stdout, stderr) =
            (child.stdin().take(), child.stdout().take(), child.stderr().take());
        let (out, err) = (Arc::new(Output::default()), Arc::new(Output::default()));
        begun(Arc::clone(&out), Arc::clone(&err));
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read its arguments is free to.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let ended = {
            let mut talk = pin!(async { tokio::join!(feed, out.read(stdout), err.read(stderr)) });
            let ended = tokio::select! {
                _ = &mut talk => None,
                status = child.wait() => Some(status),
            };
            match ended {
                // It has said all it had to say.
                None => child.wait().await,
                // It has ended, but what it started may hold its outputs open: take what is there.
                Some(status) => {
                    // The wait is for a real process, so the time is the system's.
                    let _ = select(talk, SystemClock.sleep(LAST_WORDS)).await;
                    status
                }
            }
        };
        let status = ended?;
        processes.ended = true;
        Ok(Ended { status, out, err })
    }

    fn spawn(&self) -> io::Result<Processes> {
        let mark = new_mark();
        let mut command = CommandWrap::with_new(&self.name, |command| {
            command
                .args(&self.arguments)
                .current_dir(&self.folder)
                .env_clear()
                .envs(&self.variables)
                .env(MARK, &mark)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
        });
        #[cfg(unix)]
        command.wrap(process_wrap::tokio::ProcessGroup::leader());
        #[cfg(unix)]
        let mut watchdog = Watchdog::start(&mark);
        let spawned = spawn_without_new_ones(command);
        #[cfg(unix)]
        if let Some(watchdog) = &mut watchdog
            && let Some(group) = spawned.as_ref().ok().and_then(|child| child.id())
        {
            watchdog.watch(group);
        }
        Ok(Processes {
            child: spawned?,
            mark,
            ended: false,
            #[cfg(unix)]
            watchdog,
        })
    }
}

fn code_of(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("signal_{signal}");
    }
    status.code().map_or_else(|| "exit_unknown".to_owned(), |code| format!("exit_{code}"))
}

/// The processes of a call, which are killed when it is given up before its command has ended.
struct Processes {
    child: Box<dyn ChildWrapper>,
    mark: String,
    ended: bool,
    #[cfg(unix)]
    watchdog: Option<Watchdog>,
}

impl Drop for Processes {
    fn drop(&mut self) {
        if !self.ended {
            // First what the command has started, while it shows whose child that is.
            kill_all(self.child.id(), &self.mark);
            let _ = self.child.start_kill();
        }
        #[cfg(unix)]
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.dismiss();
        }
    }
}
