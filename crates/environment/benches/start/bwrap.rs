//! Bubblewrap with rules like those of all walls: `/usr` to read, a separate network, all namespaces, no capabilities.
//! It has no limits, no filter of system calls and no proxy.

use tokio::process::Command;

const ARGUMENTS: [&str; 24] = [
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--chdir",
    "/",
    "/bin/true",
];

/// The paths of the program on different systems; the environment of the measured programs is empty.
const PLACES: [&str; 2] = ["/usr/bin/bwrap", "/usr/local/bin/bwrap"];

/// Returns the command that runs `true` in bubblewrap.
pub(crate) fn command() -> Command {
    let place = PLACES.into_iter().find(|place| std::path::Path::new(place).exists());
    let mut command = Command::new(place.unwrap_or("bwrap"));
    command.args(ARGUMENTS);
    command
}

/// Returns the reason that bubblewrap cannot be measured, if any.
pub(crate) fn lack() -> Option<String> {
    match command().as_std_mut().env_clear().output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Some(format!("which does not run here: {}", said.trim()))
        }
        Err(error) => Some(format!("`bwrap` is not there ({error}): apt-get install bubblewrap")),
    }
}
