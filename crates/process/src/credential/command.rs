//! Output of commands.

use std::io;
use std::path::Path;
use std::process::Stdio;

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::io::AsyncReadExt as _;

/// Runs a command line, and returns at most `most` bytes of its output.
///
/// It is not restricted like programs of tools: a helper for passwords may need `sudo`.
pub(super) async fn run(line: &str, folder: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut command = CommandWrap::with_new("sh", |command| {
        command
            .args(["-c", line])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
    });
    #[cfg(unix)]
    command.wrap(process_wrap::tokio::ProcessGroup::leader());
    let mut running = RunningCommand(command.spawn()?);
    let stdout = running.0.stdout().take();
    let stdout = stdout.ok_or_else(|| io::Error::other("has no output"))?;
    let mut read = Vec::new();
    let mut stdout = stdout.take(most);
    stdout.read_to_end(&mut read).await?;
    // Further output is not waited for.
    if stdout.limit() == 0 {
        return Ok(read);
    }
    // Waiting for the group would wait for the command's child processes too.
    let status = running.0.inner_mut().wait().await?;
    match status.success() {
        true => Ok(read),
        false => Err(io::Error::other(format!("ended with {status}"))),
    }
}

/// A command, killed on drop together with the processes that it started.
struct RunningCommand(Box<dyn ChildWrapper>);

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _ = self.0.start_kill();
    }
}
