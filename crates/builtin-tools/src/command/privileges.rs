//! No privileges that this process has not: `PR_SET_NO_NEW_PRIVS`.

use std::io;

use process_wrap::tokio::{ChildWrapper, CommandWrap};

/// Starts a command that gains nothing where it runs a file that is set-user-id, or has capabilities.
///
/// A process inherits that from the thread that starts it, and a thread cannot take it back: so that nothing
/// else of this process is bound, it is a thread of its own that starts the command, and ends. (In the child
/// itself it would need `unsafe`.)
#[cfg(target_os = "linux")]
pub(super) fn spawn_without_new_ones(
    mut command: CommandWrap,
) -> io::Result<Box<dyn ChildWrapper>> {
    let runtime = tokio::runtime::Handle::current();
    std::thread::scope(|scope| {
        let start = || {
            rustix::thread::set_no_new_privs(true)?;
            let _inside = runtime.enter();
            command.spawn()
        };
        let thread = std::thread::Builder::new().name("command".to_owned());
        let started = thread.spawn_scoped(scope, start)?;
        started
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that starts it panicked")))
    })
}

/// Starts a command; the system knows no such restriction.
#[cfg(not(target_os = "linux"))]
pub(super) fn spawn_without_new_ones(
    mut command: CommandWrap,
) -> io::Result<Box<dyn ChildWrapper>> {
    command.spawn()
}
