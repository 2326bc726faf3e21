//! The secrets of this process: one set for all its agents, servers, stores and entry points.

use std::path::Path;

use backstop_config::AgentFile;
use backstop_redact::Redactor;

use super::credentials::held_credentials;
use super::model::held_keys;
use super::parent_folder;
use crate::secrets::{self, hold};
use crate::store;

/// Adds the keys and credentials of all these files, before any of their agents is built.
pub(crate) fn hold_all(files: &[(&Path, AgentFile)]) {
    for (path, file) in files {
        hold(held_keys(&file.model, path));
        hold(held_credentials(file, parent_folder(path)));
    }
}

/// Returns a redactor that knows every secret of the process.
pub(crate) fn build_process_redactor() -> Redactor {
    hold(store::log_key());
    hold(secrets::list_inherited());
    secrets::list_held().fold(Redactor::new(), Redactor::with_secret)
}
