//! The file that the kernel runs for a program.

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

/// The machine of 32-bit programs that this 64-bit one also runs: `EM_386` and `EM_ARM`, elf(5).
const OTHER_MACHINE: u8 = if cfg!(target_arch = "x86_64") { 3 } else { 40 };

/// Returns the file that the kernel runs for a program, which for a script is its interpreter; `None` if modes or
/// mounts forbid the start. The walls around files are not checked: a start that fails later was refused by them.
pub(super) fn find_executable(program: &ProgramPlan) -> Option<PathBuf> {
    let name = Path::new(&program.name);
    if program.name.contains('/') {
        return follow_interpreters(name, &program.folder, MAX_INTERPRETERS);
    }
    let path = program.variables.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    let mut files = path.split(':').map(|folder| Path::new(folder).join(name));
    files.find_map(|file| follow_interpreters(&file, &program.folder, MAX_INTERPRETERS))
}

/// Returns whether a file is a 32-bit program, whose system calls the filter does not know.
pub(super) fn is_of_32_bits(path: &Path) -> bool {
    let head = head(path).unwrap_or_default();
    let is_class_32 = head.starts_with(b"\x7fELF\x01");
    is_class_32 && head.get(18..20) == Some(&[OTHER_MACHINE, 0])
}

/// Returns the file that the kernel runs for a path, which it looks up from the program's folder.
fn follow_interpreters(path: &Path, folder: &Path, interpreters: u32) -> Option<PathBuf> {
    let path = folder.join(path);
    let is_permitted = accessat(CWD, &path, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
    if !is_permitted || !path.is_file() {
        return None;
    }
    match interpreter(&path) {
        Some(interpreter) => {
            follow_interpreters(&interpreter, folder, interpreters.checked_sub(1)?)
        }
        None => Some(path),
    }
}

/// Returns the interpreter that a script names.
fn interpreter(path: &Path) -> Option<PathBuf> {
    // A file that can be executed but not read is no script.
    let head = head(path)?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let name = line.trim_ascii().split(|byte| matches!(byte, b' ' | b'\t')).next()?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)))
}

fn head(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path).ok()?.take(MAX_HEAD).read_to_end(&mut head).ok()?;
    Some(head)
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
        // The kernel looks it up from the program's folder.
        write("by_relative", "#!./script\n", 0o755);
        for (name, path, expected) in [
            ("./script", None, true),
            ("./plain", None, false),
            ("./by_script", None, true),
            ("./by_plain", None, false),
            ("./by_itself", None, false),
            ("./by_nothing", None, false),
            ("./by_relative", None, true),
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
            assert_eq!(find_executable(&program).is_some(), expected, "{name} in {path:?}");
        }
    }

    /// Spec: N2
    #[test]
    fn programs_of_32_bits_are_recognized() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let is_found = |class: u8, machine: u8| {
            let mut head = vec![0; 64];
            head[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', class]);
            head[18] = machine;
            fs::write(&path, head).unwrap();
            is_of_32_bits(&path)
        };
        assert!(is_found(1, OTHER_MACHINE));
        // A 64-bit program, one for x32 or an emulator, and a file that is none.
        assert!(!is_found(2, OTHER_MACHINE) && !is_found(1, 62) && !is_found(1, 8));
        fs::write(&path, "#!/bin/sh\n").unwrap();
        assert!(!is_of_32_bits(&path) && !is_of_32_bits(folder.path()));
    }
}
