//! Detection of network file systems.
//!
//! The write-ahead log needs shared memory and locks that all processes observe, which a network file system does not
//! provide, see <https://www.sqlite.org/wal.html> and <https://www.sqlite.org/howtocorrupt.html>, section 2.

use std::path::{Path, PathBuf};

/// Returns the type of the file system of a path; `None` if unknown.
pub(crate) type Probe = fn(&Path) -> Option<String>;

/// Types of file systems in `/proc/self/mountinfo` whose files several machines or kernels share: those of networks,
/// and the shared folders of VirtualBox, VMware, Parallels, Docker Desktop and WSL.
const TYPES: [&str; 20] = [
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "drvfs",
    "fakeowner",
    "gpfs",
    "lustre",
    "ncpfs",
    "orangefs",
    "prl_fs",
    "pvfs2",
    "smb2",
    "smb3",
    "smbfs",
    "vboxsf",
    "virtiofs",
    "vmhgfs",
];

/// FUSE file systems that keep their files on this machine; most others reach a server or the host of this machine.
const LOCAL_FUSE: [&str; 13] = [
    "fuse.bindfs",
    "fuse.cryfs",
    "fuse.ecryptfs",
    "fuse.encfs",
    "fuse.exfat",
    "fuse.fuse-overlayfs",
    "fuse.gocryptfs",
    "fuse.lxcfs",
    "fuse.mergerfs",
    "fuse.ntfs-3g",
    "fuse.unionfs",
    "fuse.unionfs-fuse",
    "fuse.zfs-fuse",
];

/// Returns the type of the network file system that a path is on, or will be on once it exists.
pub(crate) fn network_type(path: &Path, probe: Probe) -> Option<String> {
    let place = nearest_existing(path)?;
    probe(&place).filter(|name| is_network(name))
}

fn is_network(name: &str) -> bool {
    // `nfs`, `nfs4` and `nfsd`.
    let is_remote_fuse = name.starts_with("fuse.") && !LOCAL_FUSE.contains(&name);
    name.starts_with("nfs") || is_remote_fuse || TYPES.contains(&name)
}

/// Returns the path, or the nearest parent folder that exists.
fn nearest_existing(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).ok()?;
    absolute.ancestors().find_map(|place| place.canonicalize().ok())
}

/// Returns the type of a path's mount by the mount's id; on kernels before Linux 5.8, by the number of the file system.
#[cfg(target_os = "linux")]
pub(crate) fn file_system_type(path: &Path) -> Option<String> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok();
    let has_id = |mask| StatxFlags::from_bits_retain(mask).contains(StatxFlags::MNT_ID);
    let id = found.filter(|found| has_id(found.stx_mask)).map(|found| found.stx_mnt_id);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok();
    let named = mounts.zip(id).and_then(|(mounts, id)| type_of_mount(&mounts, id));
    named.or_else(|| {
        let number = rustix::fs::statfs(path).ok()?.f_type;
        type_of_number(u64::try_from(number).ok()?).map(ToOwned::to_owned)
    })
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn file_system_type(_: &Path) -> Option<String> {
    None
}

/// Finds a mount in `/proc/self/mountinfo`: its id comes first, its type after a lone `-`.
#[cfg(any(target_os = "linux", test))]
fn type_of_mount(mounts: &str, id: u64) -> Option<String> {
    let mut mounts = mounts.lines().map(|line| line.split(' '));
    let mut fields =
        mounts.find(|fields| fields.clone().next().is_some_and(|first| first.parse() == Ok(id)))?;
    fields.by_ref().find(|field| *field == "-")?;
    fields.next().map(ToOwned::to_owned)
}

/// Returns the name of a network file system by its number in `statfs(2)`. FUSE has one number for all its file
/// systems.
#[cfg(any(target_os = "linux", test))]
const fn type_of_number(number: u64) -> Option<&'static str> {
    match number {
        0x6969 => Some("nfs"),
        0x517b => Some("smbfs"),
        0xfe53_4d42 => Some("smb3"),
        0xff53_4d42 => Some("cifs"),
        0x0102_1997 => Some("9p"),
        0x5346_414f | 0x6b41_4653 => Some("afs"),
        0x00c3_6400 => Some("ceph"),
        0x7375_7245 => Some("coda"),
        0x564c => Some("ncpfs"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
31 27 0:40 / /srv/my\\040data rw,relatime shared:7 master:2 - nfs4 server:/export rw,vers=4.2
32 27 0:41 / /mnt/host rw - virtiofs shared rw
33 27 8:1 / / rw - ext4 /dev/sda1 rw
";

    /// Spec: J1
    #[test]
    fn mounts_are_known_by_their_type() {
        let check = |id: u64, expected: Option<&str>, is_refused: bool| {
            let found = type_of_mount(MOUNTS, id);
            assert_eq!(found.as_deref(), expected, "{id}");
            assert_eq!(found.is_some_and(|name| is_network(&name)), is_refused, "{id}");
        };
        check(31, Some("nfs4"), true);
        check(32, Some("virtiofs"), true);
        check(33, Some("ext4"), false);
        check(3, None, false);
        for name in ["nfs", "cifs", "smb3", "9p", "afs", "fuse.sshfs", "ceph", "vboxsf"] {
            assert!(is_network(name), "{name}");
        }
        for name in ["fuse.grpcfuse", "fuse.vmhgfs-fuse", "fuse.gcsfuse", "fuse.unknown"] {
            assert!(is_network(name), "{name}");
        }
        for name in ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "fuse", "fuseblk", "zfs", "apfs"] {
            assert!(!is_network(name), "{name}");
        }
        for name in LOCAL_FUSE {
            assert!(!is_network(name), "{name}");
        }
    }

    /// Spec: J1
    #[test]
    fn numbers_name_network_file_systems() {
        for number in [0x6969, 0x517b, 0xfe53_4d42, 0xff53_4d42, 0x0102_1997, 0x5346_414f] {
            assert!(type_of_number(number).is_some_and(is_network), "{number:#x}");
        }
        // ext4, tmpfs, FUSE.
        for number in [0xef53, 0x0102_1994, 0x6573_5546] {
            assert_eq!(type_of_number(number), None, "{number:#x}");
        }
    }

    /// Spec: J1
    #[cfg(target_os = "linux")]
    #[test]
    fn proc_is_named_as_it_is_mounted() {
        assert_eq!(file_system_type(Path::new("/proc/self/status")).as_deref(), Some("proc"));
    }

    /// Spec: J1
    #[test]
    fn absent_file_is_judged_by_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("not/there/a.db");
        let at = |place: &Path| place.is_dir().then(|| "nfs".to_owned());
        assert_eq!(network_type(&path, at).as_deref(), Some("nfs"));
        assert_eq!(network_type(&path, |_| Some("ext4".to_owned())), None);
        assert_eq!(network_type(&path, |_| None), None);
    }
}
