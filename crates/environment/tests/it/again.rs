//! Runs of this program as another user, and with fewer features of the kernel.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable with the role of this process; absent if it was started by hand.
const ROLE: &str = "BACKSTOP_TEST_ROLE";

/// The user and the group without rights.
const UNPRIVILEGED: u32 = 65_534;

fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

pub(crate) fn is_first() -> bool {
    role().is_none()
}

pub(crate) fn is_parent() -> bool {
    role().as_deref() == Some("parent")
}

pub(crate) fn is_without() -> bool {
    role().as_deref() == Some("without")
}

/// Returns a command that runs this program in a role.
pub(crate) fn this_program(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ROLE, role);
    command
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Copies this program to a place where each user may run it.
fn copy(folder: &Path) -> PathBuf {
    let copy = folder.join("walls-tests");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    for path in [folder, &copy] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

fn passes(mut command: Command) {
    let output = command.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    print!("{}", out.lines().filter(|line| line.contains("skipped:")).collect::<String>());
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
}

/// Spec: N3. What holds root holds a user without rights.
pub(crate) fn as_another_user() {
    if !is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(copy(folder.path()));
    let threads = std::env::args().find(|it| it.starts_with("--test-threads"));
    command.env(ROLE, "user").uid(UNPRIVILEGED).gid(UNPRIVILEGED).current_dir("/").args(threads);
    passes(command);
}

/// Spec: N2. Where the kernel has no namespaces, Landlock and seccomp hold what they can, and the rest is refused.
pub(crate) fn without_namespaces() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\"";
    command.args(["--user", "--map-root-user", "sh", "-c", script]).arg(copy(folder.path()));
    command.env(ROLE, "without").current_dir("/");
    if is_root() {
        let mut user = Command::new("unshare");
        user.args(command.get_args()).env(ROLE, "without").current_dir("/");
        user.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        passes(user);
    }
    passes(command);
}
