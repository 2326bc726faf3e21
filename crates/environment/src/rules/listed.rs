//! The absolute paths of rules.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use layer0::error::EnvError;

use super::Rules;

/// Maximum number of links on a path: the kernel's own limit, path_resolution(7).
const MOST_LINKS: usize = 40;

/// The targets of the listed paths, without links, and without targets that another one grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ListedPaths {
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
}

/// A listed path after resolution.
struct ResolvedPath<'a> {
    stated: &'a Path,
    /// The target of the path.
    to: PathBuf,
    /// The folders in which its names and those of links were looked up.
    folders: Vec<PathBuf>,
}

/// Resolves the listed paths, which have to exist.
///
/// A program can replace anything in a folder that it writes by a link. So a path that leads through such a folder is
/// granted by the folder alone, and refused if its target is elsewhere. The same holds for folders that other programs
/// write, except that these folders grant nothing themselves.
pub(super) fn resolve_listed_paths(rules: &Rules) -> Result<ListedPaths, EnvError> {
    let read = follow_all(rules, &rules.read)?;
    let write = follow_all(rules, &rules.write)?;
    let there = |path: &&PathBuf| rules.absolute(path).exists();
    let others: Vec<_> = rules.written_by_others.iter().filter(there).cloned().collect();
    let others = follow_all(rules, &others)?;
    let kept = |paths: &[ResolvedPath<'_>]| select_targets(paths, &write, &others);
    Ok(ListedPaths { read: kept(&read)?, write: kept(&write)? })
}

fn follow_all<'a>(rules: &Rules, paths: &'a [PathBuf]) -> Result<Vec<ResolvedPath<'a>>, EnvError> {
    let followed = |stated: &'a PathBuf| {
        let (to, folders) = follow(&rules.absolute(stated)).map_err(|error| {
            let stated = stated.display();
            EnvError::ProvisionFailed(format!(
                "`{stated}` is listed, but cannot be reached: {error}"
            ))
        })?;
        Ok(ResolvedPath { stated, to, folders })
    };
    paths.iter().map(followed).collect()
}

/// Returns the targets that need a grant of their own.
fn select_targets(
    paths: &[ResolvedPath<'_>],
    written: &[ResolvedPath<'_>],
    by_others: &[ResolvedPath<'_>],
) -> Result<Vec<PathBuf>, EnvError> {
    let mut kept = Vec::new();
    for path in paths {
        let by_others = by_others.iter().filter(|written| path.leads_through(&written.to));
        let own = written.iter().find(|written| path.leads_through(&written.to));
        let mut through = own.into_iter().chain(by_others);
        if let Some(written) = through.find(|written| !path.to.starts_with(&written.to)) {
            let (stated, written) = (path.stated.display(), written.stated.display());
            return Err(EnvError::ProvisionFailed(format!(
                "`{stated}` is listed, but leads out of `{written}`, which is written: a program could make \
                 it lead anywhere; list the place that it leads to"
            )));
        }
        if own.is_none() {
            kept.push(path.to.clone());
        }
    }
    Ok(kept)
}

impl ResolvedPath<'_> {
    fn leads_through(&self, written: &Path) -> bool {
        self.folders.iter().any(|folder| folder.starts_with(written))
    }
}

/// Returns the target of an absolute path, and the folders in which a name was looked up on the way.
fn follow(path: &Path) -> io::Result<(PathBuf, Vec<PathBuf>)> {
    let (mut at, mut folders) = (PathBuf::from("/"), Vec::new());
    let mut rest = names(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        folders.push(at.clone());
        if !next.symlink_metadata()?.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(io::Error::other("too many links"));
        }
        if at.starts_with("/proc") {
            let why = format!("the link `{}` leads elsewhere in each process", next.display());
            return Err(io::Error::other(why));
        }
        let target = next.read_link()?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        rest.extend(names(&target));
    }
    // Fails if a name follows one of a file, which the loop does not detect.
    at.metadata()?;
    Ok((at, folders))
}

/// Returns the names of a path in reverse order.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let mut names: Vec<_> = names.collect();
    names.reverse();
    names
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// Returns a folder with `data`, `out` and `out/kept` in it, and its path without links.
    fn folder() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        fs::create_dir(path.join("data")).unwrap();
        fs::create_dir_all(path.join("out/kept")).unwrap();
        (folder, path)
    }

    /// Spec: N3
    #[test]
    fn links_are_followed_once() {
        let (_folder, path) = folder();
        symlink("data", path.join("link")).unwrap();
        symlink(path.join("link"), path.join("second")).unwrap();
        let rules = Rules::new().folder(&path).read(["./second/../link/."]).write(["./out"]);
        let found = resolve_listed_paths(&rules).unwrap();
        assert_eq!(
            found,
            ListedPaths { read: vec![path.join("data")], write: vec![path.join("out")] }
        );
        symlink("loop", path.join("loop")).unwrap();
        let error = resolve_listed_paths(&Rules::new().folder(&path).read(["loop"])).unwrap_err();
        assert!(error.to_string().contains("too many links"), "{error}");
    }

    /// Spec: N3
    #[test]
    fn what_a_program_can_replace_grants_nothing() {
        let (_folder, path) = folder();
        let rules = Rules::new().folder(&path).write(["./out", "./out/kept"]).read(["./out/kept"]);
        let whole = ListedPaths { read: vec![], write: vec![path.join("out")] };
        assert_eq!(resolve_listed_paths(&rules).unwrap(), whole);
        // As a program may have left it.
        fs::remove_dir(path.join("out/kept")).unwrap();
        symlink("/etc", path.join("out/kept")).unwrap();
        for listing in [
            Rules::new().read(["./out/kept"]).write(["./out"]),
            Rules::new().write(["./out/kept", "./out"]),
            Rules::new().read(["./data/../out/kept/ssl"]).write(["./out"]),
        ] {
            let error = resolve_listed_paths(&listing.folder(&path)).unwrap_err().to_string();
            assert!(error.contains("leads out of `./out`, which is written"), "{error}");
        }
        // If the folder is not written, the link is the user's own.
        let found = resolve_listed_paths(&Rules::new().folder(&path).read(["./out/kept"])).unwrap();
        assert_eq!(found.read, [Path::new("/etc")]);
    }

    /// Spec: N3
    #[test]
    fn links_of_other_programs_lead_nowhere_else() {
        let (_folder, path) = folder();
        let rules = || {
            let rules = Rules::new().folder(&path).written_by_others(["./out", "./not-there"]);
            rules.read(["./out/kept"])
        };
        assert_eq!(resolve_listed_paths(&rules()).unwrap().read, [path.join("out/kept")]);
        assert!(resolve_listed_paths(&rules().write(["./out"])).unwrap().read.is_empty());
        fs::remove_dir(path.join("out/kept")).unwrap();
        symlink("/etc", path.join("out/kept")).unwrap();
        for listing in [rules(), rules().write(["./data"]), rules().write(["./out/kept"])] {
            let error = resolve_listed_paths(&listing).unwrap_err().to_string();
            assert!(error.contains("leads out of `./out`, which is written"), "{error}");
        }
    }

    /// Spec: N3
    #[cfg(target_os = "linux")]
    #[test]
    fn links_of_processes_are_refused() {
        let error =
            resolve_listed_paths(&Rules::new().read(["/proc/self"])).unwrap_err().to_string();
        assert!(error.contains("the link `/proc/self` leads elsewhere in each process"), "{error}");
        assert!(resolve_listed_paths(&Rules::new().read(["/proc"])).is_ok());
    }
}
