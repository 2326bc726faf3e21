//! The secrets of agent files, which become secrets of this process.

use std::path::Path;

use backstop_config::AgentFile;

use super::credentials::held_credentials;
use super::model::held_keys;
use super::parent_folder;
use crate::secrets::{hold, in_url};

/// Adds the keys and credentials of all these files, before any of their agents is built.
pub(crate) fn hold_all(files: &[(&Path, AgentFile)]) {
    for (path, file) in files {
        hold_file(file, path);
    }
}

/// Adds the keys and credentials of a file, also those for which it is not used here.
pub(super) fn hold_file(file: &AgentFile, path: &Path) {
    hold(held_keys(&file.model, path));
    hold(held_credentials(file, parent_folder(path)));
    hold(file.store.url.iter().flat_map(|url| in_url(url)));
}
