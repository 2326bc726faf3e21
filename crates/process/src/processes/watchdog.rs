//! A watchdog that kills a program when the process that started it dies, even by SIGKILL.

use std::io::{PipeWriter, Write};
use std::process::Stdio;

use tokio::process::{Child, Command};

use super::tree::MARK;

/// Reads the group of the program, then a line when it has ended. If the pipe closes before that,
/// its other end has died: the group is killed, and the processes with the mark `$1`, until there
/// are none. (`grep` fails if it may not read one of the files, so only its output counts.)
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
read -r group && read -r ended && exit
if [ -n "$group" ]; then kill -KILL -- "-$group"; fi
rounds=0 quiet=0
while [ $rounds -lt 1000 ] && [ $quiet -lt 3 ]; do
    rounds=$((rounds + 1))
    found=$(grep -lszF -e "$1" /proc/[0-9]*/environ)
    if [ -z "$found" ]; then quiet=$((quiet + 1)); fi
    for file in $found; do
        pid=${file#/proc/}
        kill -KILL "${pid%/environ}"
    done
done
"#;

/// A separate process that waits for this one to die.
///
/// It is a shell that reads from a pipe whose other end only this process has: the system closes it
/// however this process ends. `PR_SET_PDEATHSIG` would need `unsafe`, would apply to one process
/// and not to its children, and would be sent when the *thread* that started the program ends.
#[derive(Debug)]
pub(super) struct Watchdog {
    pipe: PipeWriter,
    /// Reaped by the runtime after it is dropped.
    _child: Child,
}

impl Watchdog {
    /// Starts the watchdog, before the program, so that the program is always watched. Returns
    /// `None` without a shell.
    pub(super) fn start(mark: &str) -> Option<Self> {
        let (reader, pipe) = std::io::pipe().ok()?;
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "backstop-watchdog"])
            .arg(format!("{MARK}={mark}"))
            .current_dir("/")
            .env_clear()
            .env("PATH", path)
            .process_group(0)
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Some(Self { pipe, _child: child.ok()? })
    }

    /// Sets the group of the program, which has started.
    pub(super) fn watch(&mut self, group: u32) {
        let _ = writeln!(self.pipe, "{group}");
    }

    /// Ends the watchdog: nothing is left to kill.
    pub(super) fn dismiss(mut self) {
        let _ = self.pipe.write_all(b"ended\n");
    }
}
