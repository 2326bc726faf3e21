use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Maximum number of dangling links that are followed; Linux has the same limit for the links of a path.
const MAX_LINKS: usize = 40;

/// Returns the real path: absolute, with `..` and links resolved as far as the path exists. The rest is kept as it is,
/// so that a policy treats a missing file like an existing one, and a link to a missing file like a link to an existing
/// one.
///
/// Grants and the paths compared with them both go through this function.
#[must_use]
pub fn real_path(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut real = PathBuf::new();
    let mut rest = reverse_components(&path);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == ".." {
            real.pop();
            continue;
        }
        real.push(part);
        if let Ok(resolved) = std::fs::canonicalize(&real) {
            real = resolved;
        } else if links < MAX_LINKS
            && let Ok(target) = std::fs::read_link(&real)
        {
            links += 1;
            real.pop();
            rest.extend(reverse_components(&target));
        }
    }
    real
}

/// Returns the parts of a path, the last one first; the root of an absolute path replaces the path that it is pushed
/// to.
fn reverse_components(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.rev().map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Spec: Y1
    #[test]
    fn links_are_resolved_as_far_as_something_exists() {
        let folder = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        symlink(base.join("a"), base.join("link")).unwrap();
        symlink("../elsewhere/x", base.join("a/dangling")).unwrap();
        symlink("dangling/y", base.join("a/chain")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        for (asked, real) in [
            ("link/b", "a/b"),
            ("link/b/../none/../b", "a/b"),
            ("link/none/./x", "a/none/x"),
            ("link/dangling", "elsewhere/x"),
            ("link/chain/z", "elsewhere/x/y/z"),
            ("none/../a//b/", "a/b"),
            ("loop/x", "loop/x"),
        ] {
            assert_eq!(real_path(&base.join(asked)), base.join(real), "{asked}");
        }
        assert_eq!(real_path(Path::new("/../..")), Path::new("/"));
    }
}
