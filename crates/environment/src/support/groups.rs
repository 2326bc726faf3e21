//! Control groups of a program, and the places where they can be created.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::plan::GroupPlan;

/// Maximum number of names that are tried for a group.
const MAX_NAMES: u32 = 10_000;

/// The places where control groups for processes and memory can be created, or the reasons that there are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Homes {
    pub(crate) pids: Result<PathBuf, String>,
    pub(crate) memory: Result<PathBuf, String>,
}

impl Default for Homes {
    fn default() -> Self {
        let none = || Err("was not looked for".to_owned());
        Self { pids: none(), memory: none() }
    }
}

impl Homes {
    /// Finds the places by creating a group in each.
    pub(crate) fn find() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (groups, mounts) = (read("/proc/self/cgroup"), read("/proc/self/mountinfo"));
        let find = |controller: &str, file: &[&str]| {
            let mut why = format!("no control groups count {controller} here");
            for home in candidates(controller, &groups, &mounts) {
                match try_in(&home, file) {
                    Ok(()) => return Ok(home),
                    Err(error) => why = format!("{}: {error}", home.display()),
                }
            }
            Err(why)
        };
        Self {
            pids: find("pids", &["pids.max"]),
            memory: find("memory", &["memory.max", "memory.limit_in_bytes"]),
        }
    }
}

/// The groups of one program. Remaining ones are removed on drop.
#[derive(Debug, Default)]
pub(crate) struct Groups(Vec<GroupPlan>);

impl Groups {
    /// Creates the groups for limits.
    pub(crate) fn create(
        homes: &Homes,
        processes: Option<u64>,
        memory_bytes: Option<u64>,
    ) -> io::Result<Self> {
        under_free_name(|name| {
            let mut groups = Self::default();
            if let (Some(most), Ok(home)) = (processes, &homes.pids) {
                fs::write(groups.folder(home, name)?.join("pids.max"), most.to_string())?;
            }
            if let (Some(most), Ok(home)) = (memory_bytes, &homes.memory) {
                limit_memory(&groups.folder(home, name)?, most)?;
            }
            Ok(groups)
        })
    }

    pub(crate) fn plan(&self) -> Vec<GroupPlan> {
        self.0.clone()
    }

    /// Returns the program's group below a home. In version 2 one group counts both processes and memory.
    fn folder(&mut self, home: &Path, name: &str) -> io::Result<PathBuf> {
        let folder = home.join(name);
        if !self.0.iter().any(|group| group.folder == folder) {
            fs::create_dir(&folder)?;
            self.0.push(GroupPlan { folder: folder.clone(), home: home.to_owned() });
        }
        Ok(folder)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.0 {
            // The helper has removed it, or does so as soon as all processes in it have ended.
            let _ = fs::remove_dir(&group.folder);
        }
    }
}

fn limit_memory(folder: &Path, bytes: u64) -> io::Result<()> {
    let [newer, older] = ["memory.max", "memory.limit_in_bytes"].map(|name| folder.join(name));
    if newer.exists() {
        fs::write(newer, bytes.to_string())?;
        // Swap counts as memory.
        let _ = fs::write(folder.join("memory.swap.max"), "0");
    } else {
        fs::write(older, bytes.to_string())?;
        let _ = fs::write(folder.join("memory.memsw.limit_in_bytes"), bytes.to_string());
    }
    Ok(())
}

/// Creates something under a free name. A name may be in use, because process ids are unique only within a namespace,
/// and a killed process leaves its groups behind.
fn under_free_name<T>(make: impl Fn(&str) -> io::Result<T>) -> io::Result<T> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut tried = 0;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        tried += 1;
        match make(&format!("backstop-{}-{number}", std::process::id())) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tried < MAX_NAMES => {}
            made => return made,
        }
    }
}

fn try_in(home: &Path, files: &[&str]) -> io::Result<()> {
    let folder = under_free_name(|name| {
        let folder = home.join(name);
        fs::create_dir(&folder).map(|()| folder)
    })?;
    let is_counted = files.iter().any(|file| folder.join(file).exists());
    fs::remove_dir(&folder)?;
    if is_counted { Ok(()) } else { Err(io::Error::other("groups in it count nothing")) }
}

/// Returns possible places of a group, from the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn candidates(controller: &str, groups: &str, mounts: &str) -> Vec<PathBuf> {
    let older = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        let path = fields.next()?;
        controllers.split(',').any(|it| it == controller).then_some(path)
    });
    if let Some(path) = older {
        let is_it = |kind: &str, options: &str| {
            kind == "cgroup" && options.split(',').any(|it| it == controller)
        };
        return own(path, mounts, is_it).into_iter().collect();
    }
    let Some(path) = groups.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Vec::new();
    };
    let Some(own) = own(path, mounts, |kind, _| kind == "cgroup2") else { return Vec::new() };
    // A group with processes gives its controllers to none below it, but a sibling group may exist.
    let beside = own.parent().map(Path::to_owned);
    let gives = |folder: &PathBuf| {
        let given = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
        given.split_ascii_whitespace().any(|it| it == controller)
    };
    std::iter::once(own).chain(beside).filter(gives).collect()
}

/// Returns the folder of this process's own group in the matching mount.
fn own(group: &str, mounts: &str, is_it: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (before, behind) = line.split_once(" - ")?;
        let mut behind = behind.split(' ');
        let (kind, options) = (behind.next()?, behind.nth(1)?);
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        is_it(kind, options).then(|| Path::new(point).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
32 30 0:28 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
";

    #[test]
    fn groups_are_made_below_the_own_one() {
        let groups = "8:pids:/a/b\n4:memory:/docker/1\n0::/\n";
        let of = |controller| candidates(controller, groups, MOUNTS);
        assert_eq!(of("pids"), [Path::new("/sys/fs/cgroup/pids/a/b")]);
        assert_eq!(of("memory"), [Path::new("/sys/fs/cgroup/memory")]);
        assert!(of("cpu").is_empty());
    }

    /// A process of another namespace has the same id.
    #[test]
    fn taken_names_of_groups_are_passed_over() {
        let home = tempfile::tempdir().unwrap();
        let taken = |number| home.path().join(format!("backstop-{}-{number}", std::process::id()));
        let taken: Vec<PathBuf> = (1..=100).map(taken).collect();
        for folder in &taken {
            fs::create_dir(folder).unwrap();
        }
        let pids = Ok(home.path().to_owned());
        let homes = Homes { pids, ..Homes::default() };
        let groups = Groups::create(&homes, Some(3), None).unwrap();
        let [group] = &groups.plan()[..] else { panic!("one group") };
        assert_eq!(fs::read_to_string(group.folder.join("pids.max")).unwrap(), "3");
        assert!(!taken.contains(&group.folder));
        drop(groups);
        assert!(taken.iter().all(|folder| folder.is_dir()), "those of others stay");
    }

    /// The control groups of version 2, as plain files.
    #[test]
    fn groups_are_made_beside_the_own_one() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("app.slice/own");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("cgroup.subtree_control"), "").unwrap();
        fs::write(folder.path().join("app.slice/cgroup.subtree_control"), "memory pids\n").unwrap();
        let mounts = format!("31 30 0:27 / {} rw - cgroup2 cgroup2 rw", folder.path().display());
        let of = |controller| candidates(controller, "0::/app.slice/own\n", &mounts);
        assert_eq!(of("pids"), [folder.path().join("app.slice")]);
        assert!(of("cpu").is_empty());
    }
}
