use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{DirEntry, Match};

use super::skipped::{Reason, Skipped};
use crate::path;

/// Ignore files, which name entries not worth searching; the later file takes precedence.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];
/// Maximum read size of an ignore file, in bytes.
const MAX_IGNORE_BYTES: u64 = 1024 * 1024;
/// Folders of installed packages, which are skipped even if no ignore file names them.
const INSTALLED: [&str; 1] = ["node_modules"];

/// Filter of the entries below a folder, which counts the skipped ones.
///
/// Ignore files are opened like all files: only if they are actually below the folder. Ignore files above it, those of
/// the user and those of the repository are not read, because nothing grants that.
pub(crate) struct Filter {
    root: PathBuf,
    /// Path by which the walk reaches the root.
    walked: PathBuf,
    is_everything: bool,
    rules: HashMap<PathBuf, Gitignore>,
    pub(crate) skipped: Skipped,
}

impl Filter {
    pub(crate) fn new(root: PathBuf, is_everything: bool) -> Self {
        let (rules, skipped) = (HashMap::new(), Skipped::default());
        let walked = root.clone();
        let mut filter = Self { root: root.clone(), walked, is_everything, rules, skipped };
        if root.is_dir() && !is_everything {
            filter.read_rules(&root);
        }
        filter
    }

    /// Sets another path by which the walk reaches the root.
    pub(crate) fn walked_by(self, walked: PathBuf) -> Self {
        Self { walked, ..self }
    }

    /// Returns whether the walk keeps this entry. The walk does not ask about its starting path.
    pub(crate) fn keeps(&mut self, entry: &DirEntry) -> bool {
        let path = path::replace_prefix(entry.path(), &self.walked, &self.root);
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        if !self.is_everything
            && let Some(reason) = self.reason(&path, entry, is_folder)
        {
            self.skipped.add(reason, &path);
            return false;
        }
        if is_folder && !self.is_everything {
            self.read_rules(&path);
        }
        true
    }

    fn reason(&self, path: &Path, entry: &DirEntry, is_folder: bool) -> Option<Reason> {
        let inside = |folder: &&Path| folder.starts_with(&self.root);
        for folder in path.ancestors().skip(1).take_while(inside) {
            match self.rules.get(folder).map(|rules| rules.matched(path, is_folder)) {
                Some(Match::Ignore(_)) => return Some(Reason::Ignored),
                Some(Match::Whitelist(_)) => return None,
                Some(Match::None) | None => {}
            }
        }
        let name = entry.file_name().to_string_lossy();
        if name.starts_with('.') {
            Some(Reason::Hidden)
        } else if is_folder && INSTALLED.contains(&&*name) {
            Some(Reason::Installed)
        } else {
            None
        }
    }

    fn read_rules(&mut self, folder: &Path) {
        let mut rules = GitignoreBuilder::new(folder);
        for name in IGNORE_FILES {
            for line in self.read(&folder.join(name)).lines() {
                // An invalid line ignores nothing.
                let _ = rules.add_line(None, line);
            }
        }
        if let Ok(rules) = rules.build()
            && !rules.is_empty()
        {
            self.rules.insert(folder.to_owned(), rules);
        }
    }

    fn read(&self, file: &Path) -> String {
        let mut text = Vec::new();
        if let Ok((file, _)) = path::open_judged(file, |real| real.starts_with(&self.root)) {
            let _ = file.take(MAX_IGNORE_BYTES).read_to_end(&mut text);
        }
        let text = String::from_utf8_lossy(&text);
        text.trim_start_matches('\u{feff}').to_owned()
    }
}
