use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clock::{Clock, SystemClock};
use futures_util::future::select;
use layer0::{JsonText, ToolSpec};
use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::io::AsyncWriteExt;
use tool::{Arguments, Tool, ToolContext, ToolError};

use self::output::Output;
use self::processes::{MARK, kill_all, new_mark};
#[cfg(unix)]
use self::watchdog::Watchdog;

mod output;
mod processes;
#[cfg(unix)]
mod watchdog;

/// How long outputs are read after the command has ended.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// A tool that is a program of your own.
///
/// The arguments arrive as one line of compact JSON on standard input, their numbers as the model wrote
/// them. Exit status 0 makes standard output the tool's output (as JSON if it is an object or an array,
/// its numbers kept as written; else as text); anything else makes the call fail with the
/// whole of standard error, or of standard output if that is empty, and code `exit_<status>` or
/// `signal_<n>`. Of an output of more than 8 MiB, the head and the tail are kept, 4 MiB each, with the
/// count of the bytes between them that are left out; it is text, even if it was JSON.
///
/// The program runs in a process group of its own. When the call is given up, or this process dies
/// (even by SIGKILL), the group is killed, and on Linux what the program has started in other groups
/// and sessions too: its descendants, and the processes that bear the variable `BACKSTOP_CALL` it was
/// started with. What the program leaves running when it has ended lives on.
#[derive(Debug, Clone)]
pub struct CommandTool {
    spec: ToolSpec,
    program: String,
    arguments: Vec<String>,
    folder: PathBuf,
    variables: BTreeMap<String, String>,
}

impl CommandTool {
    /// Makes the tool. The program sees only `variables` as its environment, and `BACKSTOP_CALL`, by
    /// which its processes are known.
    pub fn new(
        spec: ToolSpec,
        program: impl Into<String>,
        arguments: impl IntoIterator<Item = String>,
        folder: impl Into<PathBuf>,
        variables: BTreeMap<String, String>,
    ) -> Self {
        Self {
            spec,
            program: program.into(),
            arguments: arguments.into_iter().collect(),
            folder: folder.into(),
            variables,
        }
    }

    fn spawn(&self) -> io::Result<Processes> {
        let mark = new_mark();
        let mut command = CommandWrap::with_new(&self.program, |command| {
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
        let spawned = command.spawn();
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

#[async_trait]
impl Tool for CommandTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let failed = |what: &str, error: io::Error| {
            ToolError::ExecutionFailed(format!("{what} `{}` failed: {error}", self.program))
        };
        let mut processes = self.spawn().map_err(|error| failed("starting", error))?;
        let child = &mut processes.child;
        let (stdin, stdout, stderr) =
            (child.stdin().take(), child.stdout().take(), child.stderr().take());
        let line = format!("{}\n", arguments.text());
        let (out, err) = (Arc::new(Output::default()), Arc::new(Output::default()));
        let redactor = &context.redactor;
        context.written.read_with({
            let (out, err, redactor) = (Arc::clone(&out), Arc::clone(&err), redactor.clone());
            move || output::written(&out, &err, &redactor)
        });
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read its arguments is free to.
                let _ = stdin.write_all(line.as_bytes()).await;
            }
        };
        let mut talk = pin!(async { tokio::join!(feed, out.read(stdout), err.read(stderr)) });
        let ended = tokio::select! {
            _ = &mut talk => None,
            status = child.wait() => Some(status),
        };
        let status = match ended {
            // It has said all it had to say.
            None => child.wait().await,
            // It has ended, but what it started may hold its outputs open: take what is there.
            Some(status) => {
                // The wait is for a real process, so the time is the system's.
                let _ = select(talk, SystemClock.sleep(LAST_WORDS)).await;
                status
            }
        };
        let status = status.map_err(|error| failed("waiting for", error))?;
        processes.ended = true;
        if status.success() {
            return Ok(out.text(redactor).into_output());
        }
        let said = err.text(redactor);
        let said = if said.is_blank() { out.text(redactor) } else { said };
        let text = if said.is_blank() {
            format!("`{}` ended with {status} and said nothing", self.program)
        } else {
            said.into_error(redactor)
        };
        Err(ToolError::ExecutionFailed(text).with_code(code_of(status)))
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
