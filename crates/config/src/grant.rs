use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use backstop_tool::real_path;

/// Turns `fs:read:./logs/**` into `fs:read:/where/it/is/logs/**`.
pub(crate) fn resolve_grant(grant: &str, folder: &Path) -> String {
    resolve(grant, folder, escape)
}

/// Turns a tool's own `fs:read:./logs/a.log` into `fs:read:/where/it/is/logs/a.log`.
#[must_use]
pub fn resolve_capability(capability: &str, folder: &Path) -> String {
    resolve(capability, folder, str::to_owned)
}

fn resolve(capability: &str, folder: &Path, real_text: impl Fn(&str) -> String) -> String {
    let mut parts = capability.splitn(3, ':');
    let (Some("fs"), Some(operation), Some(path)) = (parts.next(), parts.next(), parts.next())
    else {
        return capability.to_owned();
    };
    // Links are resolved in the part without wildcards; the rest is compared with real paths as written.
    let parts: Vec<_> = Path::new(path).iter().collect();
    let is_pattern = |part: &&OsStr| is_pattern(&part.to_string_lossy());
    let plain = parts.iter().position(is_pattern).unwrap_or(parts.len());
    let (plain, rest) = parts.split_at(plain);
    let real = real_path(&folder.join(plain.iter().collect::<PathBuf>()));
    let mut resolved = real_text(&real.to_string_lossy());
    for part in rest {
        // Only the root ends with a separator.
        if !resolved.ends_with('/') {
            resolved.push('/');
        }
        resolved.push_str(&part.to_string_lossy());
    }
    format!("fs:{operation}:{resolved}")
}

fn is_pattern(part: &str) -> bool {
    part.contains(['*', '?', '['])
}

/// Escapes characters of a real path that would be wildcards in a pattern.
fn escape(path: &str) -> String {
    path.chars()
        .map(|c| match c {
            '*' | '?' | '[' | ']' => format!("[{c}]"),
            c => c.to_string(),
        })
        .collect()
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use backstop_tool::Grants;

    use super::*;

    /// Spec: Y1
    #[test]
    fn file_grants_follow_links_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir(real.join("data [1]")).unwrap();
        symlink(real.join("data [1]"), real.join("link")).unwrap();
        symlink(real.join("later"), real.join("dangling")).unwrap();
        let shown = real.display();
        let check = |grant: &str, resolved: &str| {
            assert_eq!(resolve_grant(grant, &real), resolved, "{grant}");
        };
        check("process:spawn", "process:spawn");
        check("fs:read", "fs:read");
        for grant in ["fs:read:./**", "fs:read:**", "fs:read:**/", "fs:read:none/../**"] {
            check(grant, &format!("fs:read:{shown}/**"));
        }
        check("fs:read:link/*.log", &format!("fs:read:{shown}/data [[]1[]]/*.log"));
        check("fs:read:link/./none/", &format!("fs:read:{shown}/data [[]1[]]/none"));
        check("fs:read:dangling/**", &format!("fs:read:{shown}/later/**"));
        check("fs:write:/nowhere/x", "fs:write:/nowhere/x");
    }

    /// Spec: Y1
    #[test]
    fn wildcards_right_below_the_root_grant_files() {
        #[track_caller]
        fn check(grant: &str, resolved: &str, granted: &str, denied: &str) {
            let grant = resolve_grant(&format!("fs:read:{grant}"), Path::new("/"));
            assert_eq!(grant, format!("fs:read:{resolved}"));
            let grants = Grants::parse([&grant]).unwrap();
            assert!(grants.allow(&format!("fs:read:{granted}")), "{grant} {granted}");
            assert!(!grants.allow(&format!("fs:read:{denied}")), "{grant} {denied}");
        }
        check("/**", "/**", "/nowhere/x", "x");
        check("/**/", "/**", "/", "x");
        check("//**", "/**", "/**", "x");
        check("./**", "/**", "/x", "x");
        check("/*", "/*", "/x", "/nowhere/x");
        check("/nowhere/*", "/nowhere/*", "/nowhere/x", "/nowhere/y/x");
        check("/nowher[e]/x", "/nowher[e]/x", "/nowhere/x", "/nowhere/y");
        check("/nowhere/", "/nowhere", "/nowhere", "/nowhere/x");
        check("/", "/", "/", "/x");
    }
}
