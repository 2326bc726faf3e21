//! Bubblewrap, with rules like those of all walls: `/usr` to read, no network but its own, all namespaces, no
//! capabilities. It counts and limits nothing, filters no system calls and has no proxy.

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

/// The file, by the places where a system has it: the environment of what is measured is empty.
const PLACES: [&str; 2] = ["/usr/bin/bwrap", "/usr/local/bin/bwrap"];

/// Describes `true` in bubblewrap.
pub(crate) fn command() -> Command {
    let place = PLACES.into_iter().find(|place| std::path::Path::new(place).exists());
    let mut command = Command::new(place.unwrap_or("bwrap"));
    command.args(ARGUMENTS);
    command
}

/// Says why it cannot be measured, where it cannot.
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
