//! What this process holds to get in anywhere: one set for all agents, servers, stores and doors in it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use backstop_redact::Redactor;

use super::credentials::held_credentials;
use super::folder_of;
use super::model::held_keys;
use crate::several::Files;
use crate::{secrets, store};

static HELD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Adds secrets to those of the process. Redactors that were made before do not know them.
pub(crate) fn hold(secrets: impl IntoIterator<Item = String>) {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.extend(secrets.into_iter().filter(|secret| !secret.is_empty()));
}

/// Adds the keys and credentials that all of these files name, before any of their agents is put together.
pub(crate) fn hold_all(files: &Files<'_>) {
    for (path, file) in files {
        hold(held_keys(&file.model, path));
        hold(held_credentials(file, folder_of(path)));
    }
}

/// Makes a redactor that knows every secret of the process.
pub(crate) fn held() -> Redactor {
    hold(store::log_key());
    hold(secrets::inherited());
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.iter().cloned().fold(Redactor::new(), Redactor::with_secret)
}
