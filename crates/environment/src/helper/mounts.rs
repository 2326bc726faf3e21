//! The program's view of the files: paths that it may not write are mounted read-only, and control groups are hidden.
//!
//! Landlock restricts the contents of files and folders, but not their modes, owners, times and attributes.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::files::open_exactly;

/// Creates a mount namespace for this process and its child processes.
pub(super) fn enter() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| format!("unshare: {error}"))
}

/// Mounts everything read-only except the written paths, which contain no links.
pub(super) fn protect(written: &[PathBuf]) -> Result<(), String> {
    if written.iter().any(|path| path == Path::new("/")) {
        return Ok(());
    }
    for path in written {
        let opened = open_exactly(path).map_err(|error| error.to_string())?;
        // The opened file, regardless of later changes of the path.
        let opened_path = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        let bound = mount(Some(&*opened_path), &*opened_path, None::<&str>, flags, None::<&str>);
        bound.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    for Mount { point, flags, .. } in all()? {
        if written.iter().any(|path| point.starts_with(path)) {
            continue;
        }
        let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        let mounted = mount(None::<&str>, &point, None::<&str>, flags, None::<&str>);
        match mounted {
            // A mount that this user cannot reach, or that another mount covers, cannot be written by its path.
            Ok(()) | Err(Errno::EACCES | Errno::EINVAL | Errno::ENOENT) => {}
            Err(error) => return Err(format!("{}: {error}", point.display())),
        }
    }
    Ok(())
}

/// Hides all control groups. A program that can write them could leave its own, or raise its limits.
pub(super) fn cover_groups() -> Result<(), String> {
    for Mount { point, .. } in all()?.into_iter().filter(|mount| mount.is_group) {
        let flags =
            MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let options = Some("size=4k,mode=555");
        match mount(Some("none"), &point, Some("tmpfs"), flags, options) {
            // A mount below one that is already hidden is out of reach.
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(format!("{}: {error}", point.display())),
        }
    }
    Ok(())
}

/// `MS_NOSYMFOLLOW` of linux/mount.h, since Linux 5.10.
const NO_SYMFOLLOW: MsFlags = MsFlags::from_bits_retain(256);

struct Mount {
    point: PathBuf,
    /// The flags that a remount has to keep.
    flags: MsFlags,
    is_group: bool,
}

fn all() -> Result<Vec<Mount>, String> {
    let text = fs::read_to_string("/proc/self/mountinfo");
    let text = text.map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
    Ok(text.lines().filter_map(read).collect())
}

/// Parses a line of `/proc/self/mountinfo`: proc_pid_mountinfo(5).
fn read(line: &str) -> Option<Mount> {
    const FLAGS: [(&str, MsFlags); 4] = [
        ("nodev", MsFlags::MS_NODEV),
        ("noexec", MsFlags::MS_NOEXEC),
        ("nosuid", MsFlags::MS_NOSUID),
        ("nosymfollow", NO_SYMFOLLOW),
    ];
    let (before, behind) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(4);
    let (point, options) = (before.next()?, before.next()?);
    let options: Vec<&str> = options.split(',').collect();
    let flags = FLAGS.into_iter().filter(|(name, _)| options.contains(name));
    let kind = behind.split(' ').next()?;
    Some(Mount {
        point: unescape(point),
        flags: flags.map(|(_, flag)| flag).collect(),
        is_group: matches!(kind, "cgroup" | "cgroup2"),
    })
}

/// Decodes white space and backslashes, which are written as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, byte) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = behind.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_their_flags() {
        let line =
            r"31 30 0:27 / /mnt/a\040b\134c rw,nosuid,relatime shared:1 - cgroup cgroup rw,pids";
        let guarded = read("31 30 0:27 / /mnt rw,nodev,nosymfollow - ext4 /dev/a rw").unwrap();
        assert_eq!(guarded.flags, MsFlags::MS_NODEV | NO_SYMFOLLOW, "a remount keeps them");
        let mount = read(line).unwrap();
        assert_eq!(mount.point, Path::new(r"/mnt/a b\c"));
        assert_eq!((mount.flags, mount.is_group), (MsFlags::MS_NOSUID, true));
        assert!(read("nonsense").is_none());
    }
}
