//! What a program's errors say of walls.

use std::path::{Component, Path, PathBuf};

use layer0::error::EnvError;

use crate::Rules;
use crate::rules::DEVICES;
use crate::walls::Decision;

/// What programs say when the kernel does not let them.
const REFUSED: [&str; 3] =
    ["permission denied", "operation not permitted", "read-only file system"];

/// The longest text that is looked at, in bytes, from its end.
const MOST_TEXT: usize = 64 * 1024;

/// Finds the wall that errors tell of.
pub(super) fn explain(
    rules: &Rules,
    decision: &Decision,
    folder: &Path,
    stderr: &str,
) -> Option<EnvError> {
    let from = stderr.ceil_char_boundary(stderr.len().saturating_sub(MOST_TEXT));
    let text = stderr.get(from..).unwrap_or_default();
    if let Some(limit) = limit(rules, decision, text) {
        return Some(EnvError::ResourceExceeded(limit + " reached"));
    }
    if !rules.is_file_walled() || decision.landlock.as_ref().is_none_or(|it| it.files.is_none()) {
        return None;
    }
    let refused = |line: &&str| {
        let line = line.to_ascii_lowercase();
        REFUSED.iter().any(|words| line.contains(words))
    };
    let found = text.lines().filter(refused).find_map(|line| {
        paths(line).into_iter().find(|path| is_not_granted(rules, &absolute(folder, path)))
    })?;
    let what = format!("`{found}` is not granted: {}", granted(rules));
    Some(EnvError::IsolationViolation(what))
}

/// Finds a limit that shows only in what a program says of it: where a control group counts, its count decides.
fn limit(rules: &Rules, decision: &Decision, text: &str) -> Option<String> {
    let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
    if let (Some(most), None) = (rules.processes, decision.group_processes)
        && has(&[
            "Resource temporarily unavailable",
            "Cannot fork",
            "EAGAIN",
            "can't start new thread",
        ])
    {
        return Some(format!("processes {most}"));
    }
    if let Some(most) = rules.file_mib
        && has(&["File too large", "EFBIG", "File size limit exceeded"])
    {
        return Some(format!("file size {most} MiB"));
    }
    if let (Some(most), None) = (rules.memory_mib, decision.group_memory)
        && has(&["Cannot allocate memory", "MemoryError", "ENOMEM"])
    {
        return Some(format!("memory {most} MiB"));
    }
    None
}

/// Returns what may be paths in a line, as they stand there: what is quoted, words, and what is between colons.
fn paths(line: &str) -> Vec<&str> {
    let quoted = line.split(['\'', '"', '`', '‘', '’']);
    let words = line.split([' ', '\t']).map(|word| word.trim_matches(['\'', '"', '`', ',', ':']));
    // `cat: name: Permission denied`
    let between = line.split(": ").map(str::trim).filter(|part| !part.contains(' '));
    let is_path = |part: &&str| part.contains('/') && part.len() < 4096;
    let sure = quoted.chain(words).filter(is_path);
    let inside = line.split(['\'', '"', '`', '‘', '’']).skip(1).step_by(2);
    let inside = inside.filter(|part| !part.is_empty() && !part.contains(char::is_whitespace));
    let names = between.filter(|part| !part.is_empty() && !part.contains(':'));
    sure.chain(inside).chain(names.skip(1)).collect()
}

/// Returns where a path leads to, links followed as far as this process sees them.
fn absolute(folder: &Path, path: &str) -> PathBuf {
    let path = folder.join(path);
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    // It may be one that was to be made.
    match (path.parent().and_then(|parent| parent.canonicalize().ok()), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => plain(&path),
    }
}

/// Returns a path without its `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}

/// Is this a path that the rules do not let be written, or not even be read, and that is there or could be?
fn is_not_granted(rules: &Rules, path: &Path) -> bool {
    let is_below = |listed: &Path| {
        let listed = rules.absolute(listed);
        path.starts_with(&listed) || listed.canonicalize().is_ok_and(|it| path.starts_with(it))
    };
    let is_device = DEVICES.iter().any(|(device, _)| path == Path::new(device));
    let is_place = path.parent().is_some_and(Path::is_dir);
    is_place && !is_device && !rules.write.iter().any(|listed| is_below(listed))
}

/// Says what the rules grant.
fn granted(rules: &Rules) -> String {
    let list = |paths: &[PathBuf]| {
        let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        if paths.is_empty() { "none".to_owned() } else { paths.join(", ") }
    };
    format!("read {}, write {}", list(&rules.read), list(&rules.write))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{FilesPlan, LandlockPlan};

    fn explained(rules: &Rules, folder: &Path, stderr: &str) -> Option<String> {
        let landlock =
            LandlockPlan { files: Some(FilesPlan::default()), ..LandlockPlan::default() };
        let decision = Decision { landlock: Some(landlock), ..Decision::default() };
        let error = explain(rules, &decision, folder, stderr)?;
        Some(error.what().into_owned())
    }

    /// Spec: N3
    #[test]
    fn refused_paths_are_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("data")).unwrap();
        std::fs::create_dir_all(folder.path().join("out")).unwrap();
        let rules = Rules::new().folder(folder.path()).read(["./data"]).write(["./out"]);
        let denied =
            |path: &str| Some(format!("`{path}` is not granted: read ./data, write ./out"));
        for (line, path) in [
            ("cat: /etc/shadow: Permission denied", "/etc/shadow"),
            ("PermissionError: [Errno 13] Permission denied: '/etc/shadow'", "/etc/shadow"),
            ("sh: 1: cannot create /etc/new: Permission denied", "/etc/new"),
            ("Error: EACCES: permission denied, open '/etc/shadow'", "/etc/shadow"),
            ("touch: cannot touch '/etc/new': Read-only file system", "/etc/new"),
            ("chmod: changing permissions of 'secret': Read-only file system", "secret"),
            ("cat: ../other: Permission denied", "../other"),
            ("cat: secret: Permission denied", "secret"),
            ("rm: cannot remove 'data/a': Permission denied", "data/a"),
            ("ls: cannot open directory '/root': Operation not permitted", "/root"),
            ("first\nsecond\ncat: /etc/shadow: Permission denied\n", "/etc/shadow"),
        ] {
            assert_eq!(explained(&rules, folder.path(), line), denied(path), "{line}");
        }
        for line in [
            "",
            "cat: /etc/none: No such file or directory",
            "cat: out/a: Permission denied",
            "Permission denied (publickey).",
        ] {
            assert_eq!(explained(&rules, folder.path(), line), None, "{line}");
        }
    }

    #[test]
    fn limits_show_in_what_is_said() {
        let rules = Rules::new().processes(4).file_mib(1).memory_mib(64);
        let folder = Path::new("/");
        for (line, limit) in [
            ("sh: 1: Cannot fork", "processes 4 reached"),
            ("OSError: [Errno 27] File too large", "file size 1 MiB reached"),
            ("MemoryError", "memory 64 MiB reached"),
        ] {
            assert_eq!(explained(&rules, folder, line).as_deref(), Some(limit));
            assert_eq!(explained(&Rules::new(), folder, line), None);
            let counted = Decision {
                group_processes: Some(4),
                group_memory: Some(64),
                ..Decision::default()
            };
            let explained = explain(&rules, &counted, folder, line);
            assert_eq!(explained.is_some(), limit.starts_with("file"), "{line}");
        }
    }
}
