use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use clock::{Clock, SystemClock};
use futures_util::future::select;
use layer0::ToolSpec;
use process_wrap::tokio::{ChildWrapper, CommandWrap};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tool::{Tool, ToolContext, ToolError};

/// The most a command may write to each of its outputs, in bytes.
const MAX_OUTPUT_BYTES: usize = 8 * 1024 * 1024;
/// How much is read at once.
const PIECE_BYTES: usize = 16 * 1024;
/// How long outputs are read after the command has ended.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// A tool that is a program of your own.
///
/// The arguments arrive as one line of compact JSON on standard input. Exit status 0 makes standard
/// output the tool's output (as JSON if it parses); anything else makes the call fail with the
/// whole of standard error, or of standard output if that is empty, and code `exit_<status>` or
/// `signal_<n>`. The program runs in a process group of its own, which is killed when the call is
/// given up.
#[derive(Debug, Clone)]
pub struct CommandTool {
    spec: ToolSpec,
    program: String,
    arguments: Vec<String>,
    folder: PathBuf,
    variables: BTreeMap<String, String>,
}

impl CommandTool {
    /// Makes the tool. The program sees only `variables` as its environment.
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

    fn spawn(&self) -> io::Result<Box<dyn ChildWrapper>> {
        let mut command = CommandWrap::with_new(&self.program, |command| {
            command
                .args(&self.arguments)
                .current_dir(&self.folder)
                .env_clear()
                .envs(&self.variables)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
        });
        #[cfg(unix)]
        command.wrap(process_wrap::tokio::ProcessGroup::leader());
        command.spawn()
    }
}

#[async_trait]
impl Tool for CommandTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Value, _: &ToolContext) -> Result<Value, ToolError> {
        let failed = |what: &str, error: io::Error| {
            ToolError::ExecutionFailed(format!("{what} `{}` failed: {error}", self.program))
        };
        let mut group =
            Group { child: self.spawn().map_err(|error| failed("starting", error))?, ended: false };
        let child = &mut group.child;
        let (stdin, stdout, stderr) =
            (child.stdin().take(), child.stdout().take(), child.stderr().take());
        let line = format!("{arguments}\n");
        let (out, err) = (Output::default(), Output::default());
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read its arguments is free to.
                let _ = stdin.write_all(line.as_bytes()).await;
            }
            Ok(())
        };
        let mut talk = pin!(async { tokio::try_join!(feed, out.read(stdout), err.read(stderr)) });
        let ended = tokio::select! {
            talked = &mut talk => talked.map(drop).map_err(|error| failed("reading from", error)).map(|()| None)?,
            status = child.wait() => Some(status),
        };
        let status = match ended {
            // It has said all it had to say.
            None => child.wait().await,
            // It has ended, but somebody it started may hold its outputs open: take what is there.
            Some(status) => {
                // The wait is for a real process, so the time is the system's.
                let _ = select(talk, SystemClock.sleep(LAST_WORDS)).await;
                status
            }
        };
        let status = status.map_err(|error| failed("waiting for", error))?;
        group.ended = true;
        let (out, err) = (out.take(), err.take());
        if status.success() {
            let text = String::from_utf8_lossy(&out);
            return Ok(
                serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.into_owned()))
            );
        }
        let said = if err.trim_ascii().is_empty() { out } else { err };
        let text = match said.trim_ascii() {
            [] => format!("`{}` ended with {status} and said nothing", self.program),
            _ => whole_text(said),
        };
        Err(ToolError::ExecutionFailed(text).with_code(code_of(status)))
    }
}

/// Returns bytes as text. Where they are no UTF-8, as JSON that holds both the readable part and the
/// bytes, so that nothing of an error is lost.
fn whole_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| {
        let bytes = error.as_bytes();
        let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
        json!({"message": String::from_utf8_lossy(bytes), "bytes_base64": encoded}).to_string()
    })
}

/// What a command has written so far.
#[derive(Default)]
struct Output(Mutex<Vec<u8>>);

impl Output {
    async fn read(&self, stream: Option<impl AsyncRead + Unpin>) -> io::Result<()> {
        let Some(mut stream) = stream else { return Ok(()) };
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = stream.read(&mut piece).await?;
            let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if count == 0 {
                return Ok(());
            }
            bytes.extend_from_slice(&piece[..count]);
            if bytes.len() > MAX_OUTPUT_BYTES {
                return Err(io::Error::other(format!(
                    "it wrote more than {MAX_OUTPUT_BYTES} bytes"
                )));
            }
        }
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn code_of(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("signal_{signal}");
    }
    status.code().map_or_else(|| "exit_unknown".to_owned(), |code| format!("exit_{code}"))
}

/// Kills the whole process group when the call is given up before its leader has ended.
struct Group {
    child: Box<dyn ChildWrapper>,
    ended: bool,
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.child.start_kill();
        }
    }
}
