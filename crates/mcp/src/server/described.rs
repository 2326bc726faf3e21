//! Unchecked description of a server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_redact::Redactor;
use backstop_tool::Grants;

use crate::oauth::ClientCredentials;
use crate::progress::OnProgress;
use crate::spawn::{LocalSpawner, Spawn};

/// Default time limit of a call without progress.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Default time limit of a server's start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The description of a server, before any check.
#[derive(Clone)]
pub(super) struct ServerDescription {
    pub(super) name: String,
    pub(super) reached: Reached,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) folder: Option<PathBuf>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) oauth: Option<ClientCredentials>,
    pub(super) grants: Grants,
    pub(super) only: Option<Vec<String>>,
    pub(super) idempotent: Vec<String>,
    pub(super) read_only: Vec<String>,
    pub(super) approval: Vec<String>,
    pub(super) timeout: Duration,
    pub(super) start_timeout: Duration,
    pub(super) max_timeout: Option<Duration>,
    pub(super) roots: Vec<PathBuf>,
    pub(super) redactor: Redactor,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) spawner: Arc<dyn Spawn>,
    pub(super) on_progress: Option<OnProgress>,
}

/// The way to reach a server.
#[derive(Clone)]
pub(super) enum Reached {
    Command(Vec<String>),
    Url(String),
}

impl ServerDescription {
    pub(super) fn new(name: String, reached: Reached) -> Self {
        Self {
            name,
            reached,
            variables: BTreeMap::new(),
            folder: None,
            headers: Vec::new(),
            oauth: None,
            grants: Grants::none(),
            only: None,
            idempotent: Vec::new(),
            read_only: Vec::new(),
            approval: Vec::new(),
            timeout: TIMEOUT,
            start_timeout: START_TIMEOUT,
            max_timeout: None,
            roots: Vec::new(),
            redactor: Redactor::new(),
            clock: Arc::new(SystemClock),
            spawner: Arc::new(LocalSpawner),
            on_progress: None,
        }
    }
}
