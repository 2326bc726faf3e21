//! What kills a program when the process that started it dies, even by SIGKILL.

use std::io::{PipeWriter, Write};
use std::process::Stdio;

use tokio::process::{Child, Command};

use super::tree::MARK;

/// Reads the group of the program, then that it has ended. Where the pipe closes before that, its
/// other end has died: the group is killed, and what bears the mark `$1`, until there is no more.
/// (`grep` fails when it may not read one of the files, so that only what it prints counts.)
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

/// A process of its own that waits for this one to die.
///
/// It is a shell that reads from a pipe whose other end only this process has: the system closes that
/// however this process ends. `PR_SET_PDEATHSIG` would need `unsafe`, would hold for one process and
/// none that it starts, and would come when the *thread* ends that started the program.
#[derive(Debug)]
pub(super) struct Watchdog {
    pipe: PipeWriter,
    /// Is reaped by the runtime after it was dropped.
    _child: Child,
}

impl Watchdog {
    /// Starts it, before the program, so that there is no moment at which that is not watched. Without
    /// a shell there is none.
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

    /// Names the group of the program, which has started.
    pub(super) fn watch(&mut self, group: u32) {
        let _ = writeln!(self.pipe, "{group}");
    }

    /// Says that there is nothing left to kill.
    pub(super) fn dismiss(mut self) {
        let _ = self.pipe.write_all(b"ended\n");
    }
}
