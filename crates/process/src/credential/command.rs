//! What a command prints.

use std::io;
use std::path::Path;
use std::process::Stdio;

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::io::AsyncReadExt as _;

/// Runs a command line, and returns at most so many bytes of what it prints. It is not bound as programs of tools are: a helper for passwords may need `sudo`.
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
    let mut running = Running(command.spawn()?);
    let stdout = running.0.stdout().take();
    let stdout = stdout.ok_or_else(|| io::Error::other("has no output"))?;
    let mut read = Vec::new();
    let mut stdout = stdout.take(most);
    stdout.read_to_end(&mut read).await?;
    // There may be more, which is not waited for.
    if stdout.limit() == 0 {
        return Ok(read);
    }
    // Of the group, the wait would be for what the command has started too.
    let status = running.0.inner_mut().wait().await?;
    match status.success() {
        true => Ok(read),
        false => Err(io::Error::other(format!("ended with {status}"))),
    }
}

/// A command, which is killed with what it has started when this is dropped.
struct Running(Box<dyn ChildWrapper>);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.start_kill();
    }
}
