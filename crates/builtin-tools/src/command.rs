use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use async_trait::async_trait;
use layer0::ToolSpec;
use process_wrap::tokio::{ChildWrapper, CommandWrap};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tool::{Tool, ToolContext, ToolError};

/// The most a command may write to each of its outputs, in bytes.
const MAX_OUTPUT_BYTES: u64 = 8 * 1024 * 1024;

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

    async fn call(&self, arguments: Value, _: &ToolContext) -> Result<Value, ToolError> {
        let failed = |what: &str, error: io::Error| {
            ToolError::ExecutionFailed(format!("{what} `{}` failed: {error}", self.program))
        };
        let mut group =
            Group { child: self.spawn().map_err(|error| failed("starting", error))?, ended: false };
        let child = &mut group.child;
        let (stdin, stdout, stderr) =
            (child.stdin().take(), child.stdout().take(), child.stderr().take());
        let line = format!("{arguments}\n");
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read its arguments is free to.
                let _ = stdin.write_all(line.as_bytes()).await;
            }
            Ok(())
        };
        let ((), stdout, stderr) = tokio::try_join!(feed, read(stdout), read(stderr))
            .map_err(|error| failed("reading from", error))?;
        let status = child.wait().await.map_err(|error| failed("waiting for", error))?;
        group.ended = true;
        if status.success() {
            let text = String::from_utf8_lossy(&stdout);
            return Ok(
                serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.into_owned()))
            );
        }
        let said = if stderr.is_empty() { stdout } else { stderr };
        let text = String::from_utf8_lossy(&said);
        let text = if text.trim().is_empty() {
            format!("`{}` ended with {status} and said nothing", self.program)
        } else {
            text.into_owned()
        };
        Err(ToolError::ExecutionFailed(text).with_code(code_of(status)))
    }
}

async fn read(output: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(output) = output {
        output.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut bytes).await?;
    }
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_OUTPUT_BYTES {
        return Err(io::Error::other(format!("it wrote more than {MAX_OUTPUT_BYTES} bytes")));
    }
    Ok(bytes)
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
