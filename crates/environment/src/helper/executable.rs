//! Whether modes alone let a program be started.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::plan::ProgramPlan;

/// The folders of programs without a `PATH`: execvp(3).
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// The most interpreters that are followed, and how much is read of a script: execve(2).
const MAX_INTERPRETERS: u32 = 4;
const MAX_HEAD: u64 = 256;

/// Returns whether this process may start a program, as far as modes and mounts say: it is asked without Landlock, so
/// that a start that is refused later was refused by that.
pub(super) fn can_start(program: &ProgramPlan) -> bool {
    let name = Path::new(&program.name);
    if program.name.contains('/') {
        return can_execute(&program.folder.join(name), MAX_INTERPRETERS);
    }
    let path = program.variables.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    let mut folders = path.split(':').map(|folder| program.folder.join(folder));
    folders.any(|folder| can_execute(&folder.join(name), MAX_INTERPRETERS))
}

fn can_execute(path: &Path, interpreters: u32) -> bool {
    let is_permitted = accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
    if !is_permitted || !path.is_file() {
        return false;
    }
    match interpreter(path) {
        Some(interpreter) => interpreters > 0 && can_execute(&interpreter, interpreters - 1),
        None => true,
    }
}

/// Returns the interpreter that a script names.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    // A file that can be executed but not read is no script.
    File::open(path).ok()?.take(MAX_HEAD).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let name = line.trim_ascii().split(|byte| matches!(byte, b' ' | b'\t')).next()?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Spec: N3
    #[test]
    fn modes_of_scripts_and_interpreters_decide() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, mode: u32| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let own = |name: &str| format!("#! {} -x\n", folder.path().join(name).display());
        write("script", "#!/bin/sh\n", 0o755);
        write("plain", "#!/bin/sh\n", 0o644);
        write("by_script", &own("script"), 0o755);
        write("by_plain", &own("plain"), 0o755);
        write("by_itself", &own("by_itself"), 0o755);
        write("by_nothing", "#!/nowhere\n", 0o755);
        for (name, path, expected) in [
            ("./script", None, true),
            ("./plain", None, false),
            ("./by_script", None, true),
            ("./by_plain", None, false),
            ("./by_itself", None, false),
            ("./by_nothing", None, false),
            ("./missing", None, false),
            ("/", None, false),
            ("/bin/sh", None, true),
            ("sh", None, true),
            ("sh", Some("/nowhere:/bin"), true),
            ("sh", Some("/nowhere"), false),
            ("script", Some("."), true),
            ("plain", Some("."), false),
        ] {
            let variables = path.map(|path| ("PATH".to_owned(), path.to_owned()));
            let program = ProgramPlan {
                name: name.to_owned(),
                folder: folder.path().to_owned(),
                variables: variables.into_iter().collect(),
                ..ProgramPlan::default()
            };
            assert_eq!(can_start(&program), expected, "{name} in {path:?}");
        }
    }
}
