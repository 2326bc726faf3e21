use std::io;

use process_wrap::tokio::{ChildWrapper, CommandWrap};

/// Starts a program that gains no privileges, on Linux: neither its own set-user-id bit and
/// capabilities nor those of programs it runs have an effect (`PR_SET_NO_NEW_PRIVS`). Other systems
/// have no such restriction.
///
/// A process inherits the restriction from the thread that starts it, and a thread cannot undo it.
/// So a separate thread starts the program and ends, to leave the rest of this process
/// unrestricted. (Setting it in the child itself would need `unsafe`.)
///
/// # Errors
///
/// Fails if the thread or the program cannot be started; [`io::ErrorKind::NotFound`] if there is no
/// such program.
///
/// # Panics
///
/// Outside a Tokio runtime.
#[cfg(target_os = "linux")]
pub(crate) fn spawn_without_new_privileges(
    mut command: CommandWrap,
) -> io::Result<Box<dyn ChildWrapper>> {
    let runtime = tokio::runtime::Handle::current();
    std::thread::scope(|scope| {
        let start = || {
            rustix::thread::set_no_new_privs(true)?;
            let _inside = runtime.enter();
            command.spawn()
        };
        let thread = std::thread::Builder::new().name("start".to_owned());
        let panicked = |_| Err(io::Error::other("the thread that starts it panicked"));
        thread.spawn_scoped(scope, start)?.join().unwrap_or_else(panicked)
    })
}

/// Starts a program; this system has no such restriction.
///
/// # Errors
///
/// Fails if the program cannot be started; [`io::ErrorKind::NotFound`] if there is no such program.
///
/// # Panics
///
/// Outside a Tokio runtime.
#[cfg(not(target_os = "linux"))]
pub(crate) fn spawn_without_new_privileges(
    mut command: CommandWrap,
) -> io::Result<Box<dyn ChildWrapper>> {
    command.spawn()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Stdio;

    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn restriction_of(status: &str) -> &str {
        let line = status.lines().find(|line| line.starts_with("NoNewPrivs:"));
        line.map_or("", |line| line.trim_start_matches("NoNewPrivs:").trim())
    }

    /// Spec: N2, N4. What is started is bound, and what starts it is not.
    #[tokio::test]
    async fn only_the_program_is_bound() {
        let own = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let before = own();
        let command = CommandWrap::with_new("cat", |command| {
            command.arg("/proc/self/status").stdout(Stdio::piped());
        });
        let mut child = spawn_without_new_privileges(command).unwrap();
        let mut status = String::new();
        child.stdout().take().unwrap().read_to_string(&mut status).await.unwrap();
        assert_eq!(restriction_of(&status), "1", "{status}");
        assert!(child.wait().await.unwrap().success());
        assert_eq!(restriction_of(&own()), restriction_of(&before));
    }

    #[tokio::test]
    async fn missing_program_is_not_found() {
        let missing = CommandWrap::with_new("/nowhere/at/all", |_| {});
        let error = spawn_without_new_privileges(missing).map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
