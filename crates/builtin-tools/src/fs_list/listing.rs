use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ignore::{DirEntry, WalkBuilder};
use serde_json::{Value, json};

use super::matcher::Matcher;
use crate::path;
use crate::walk::{CancelFlag, Filter, Reason, Skipped, failed_path};

/// A listing of a folder, or of everything below it.
pub(super) struct Listing {
    pub(super) base: PathBuf,
    pub(super) root: PathBuf,
    pub(super) pattern: Option<Matcher>,
    pub(super) max: usize,
    pub(super) is_recursive: bool,
    pub(super) is_everything: bool,
    pub(super) given_up: CancelFlag,
}

impl Listing {
    /// Lists the folder, if its path leads to the checked folder until the end. The folder is listed by its descriptor,
    /// so that a link in its place meanwhile leads nowhere else.
    pub(super) fn run(&self) -> io::Result<Value> {
        let folder = match File::open(&self.root) {
            Ok(folder) => folder,
            // The answer counts it as skipped.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(self.list(&self.root));
            }
            Err(error) => return Err(error),
        };
        let is_judged = path::opened_path(&folder, &self.root)? == self.root;
        let listed = self.list(&path::by_descriptor(&folder, &self.root));
        let now = std::fs::metadata(&self.root)?;
        match is_judged && is_same_file(&folder.metadata()?, &now) {
            true => Ok(listed),
            false => Err(io::Error::other("the folder changed meanwhile")),
        }
    }

    /// Lists the folder, which the walk reaches by this path.
    fn list(&self, walked: &Path) -> Value {
        // The folder itself is listed completely: only the contents below may be too many.
        let filter = Filter::new(self.root.clone(), self.is_everything || !self.is_recursive);
        let filter = Arc::new(Mutex::new(filter.walked_by(walked.to_owned())));
        let filtered = Arc::clone(&filter);
        // Links are not followed: they may lead out of the granted paths.
        let mut walk = WalkBuilder::new(walked);
        walk.standard_filters(false)
            .sort_by_file_name(Ord::cmp)
            .max_depth((!self.is_recursive).then_some(1))
            .filter_entry(move |entry| lock(&filtered).keeps(entry));
        let (mut entries, mut count, mut skipped) = (Vec::new(), 0_usize, Skipped::default());
        for entry in walk.build() {
            if self.given_up.is_set() {
                break;
            }
            match entry {
                Ok(entry) if entry.depth() == 0 => {}
                Ok(entry) => {
                    let below = entry.path().strip_prefix(walked).unwrap_or(entry.path());
                    if self.pattern.as_ref().is_some_and(|pattern| !pattern.takes(below)) {
                        continue;
                    }
                    count += 1;
                    if entries.len() < self.max {
                        entries.push(row(&entry, below));
                    }
                }
                Err(error) => {
                    let path = failed_path(&error).unwrap_or(walked);
                    let path = path::replace_prefix(path, walked, &self.root);
                    skipped.add(Reason::Unreadable, &path);
                }
            }
        }
        skipped.append(&mut lock(&filter).skipped);
        let shown = match path::display_path(&self.base, &self.root) {
            base if base.is_empty() => ".".to_owned(),
            shown => shown,
        };
        let mut answer = json!({"path": shown, "entries": entries});
        if count > entries.len() {
            answer["more"] = json!(count - entries.len());
        }
        if let Some(rows) = skipped.rows(|path| path::display_path(&self.base, path)) {
            answer["skipped"] = rows;
        }
        answer
    }
}

#[cfg(unix)]
fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
const fn is_same_file(_: &Metadata, _: &Metadata) -> bool {
    true
}

fn row(entry: &DirEntry, below: &Path) -> Value {
    let name = below.to_string_lossy();
    match entry.file_type() {
        Some(kind) if kind.is_dir() => json!({"name": name, "type": "folder"}),
        Some(kind) if kind.is_symlink() => json!({"name": name, "type": "link"}),
        Some(kind) if kind.is_file() => match entry.metadata() {
            Ok(metadata) => json!({"name": name, "type": "file", "bytes": metadata.len()}),
            // It was removed meanwhile, or cannot be accessed.
            Err(_) => json!({"name": name, "type": "file"}),
        },
        Some(_) | None => json!({"name": name, "type": "other"}),
    }
}

fn lock(filter: &Mutex<Filter>) -> MutexGuard<'_, Filter> {
    filter.lock().unwrap_or_else(PoisonError::into_inner)
}
