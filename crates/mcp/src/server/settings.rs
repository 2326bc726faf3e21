//! Checked description of a server.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_process::is_loopback;
use backstop_redact::{Redactor, is_secret_name};
use glob::Pattern;
use http::{HeaderName, HeaderValue};
use reqwest::{Client, Url};
use tokio_util::task::TaskTracker;

use super::described::{Reached, ServerDescription};
use crate::McpError;
use crate::connection::FirstRequest;
use crate::http_client::http_client;
use crate::oauth::Login;
use crate::progress::OnProgress;
use crate::secrets::Secrets;
use crate::spawn::{ServerCommand, Spawn};

/// Default ratio of a call's total time limit to its limit without progress.
const PROGRESS_FACTOR: u32 = 10;
/// Maximum length of a server's name, in characters.
const MAX_NAME: usize = 32;
/// Maximum number of tools in the message about a pattern without a match.
const MAX_NAMES: usize = 10;

/// The checked settings of a server.
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) place: ServerLocation,
    /// Capability that its tools require.
    pub(crate) capability: String,
    pub(crate) timeout: Duration,
    pub(crate) start_timeout: Duration,
    pub(crate) max_timeout: Duration,
    pub(crate) roots: Vec<String>,
    /// All secrets, including those of its headers and its login.
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) on_progress: Option<OnProgress>,
    /// Tracker of the tasks that keep its programs.
    pub(crate) programs: TaskTracker,
    opening: Mutex<FirstRequest>,
    only: Option<Vec<Pattern>>,
    idempotent: Vec<Pattern>,
    read_only: Vec<Pattern>,
    approval: Vec<Pattern>,
}

/// The location of a server.
pub(crate) enum ServerLocation {
    Command {
        command: ServerCommand,
        spawner: Arc<dyn Spawn>,
    },
    Url {
        url: Url,
        headers: HashMap<HeaderName, HeaderValue>,
        client: Client,
        login: Option<Arc<Login>>,
    },
}

impl Settings {
    /// Checks a description.
    pub(super) fn new(server: ServerDescription) -> Result<Self, McpError> {
        let name = server.name.clone();
        build_settings(server).map_err(|why| McpError::Misconfigured { server: name, why })
    }

    /// Returns the first request for the server, as far as it is known.
    pub(crate) fn opening(&self) -> FirstRequest {
        self.found_out().clone()
    }

    /// Stores the first request for the next start of the server.
    pub(crate) fn remember(&self, opening: FirstRequest) {
        *self.found_out() = opening;
    }

    fn found_out(&self) -> MutexGuard<'_, FirstRequest> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the tool is not left out.
    pub(crate) fn wants(&self, tool: &str) -> bool {
        self.only.as_ref().is_none_or(|only| matches(only, tool))
    }

    /// Returns whether calls of the tool may be repeated.
    pub(crate) fn is_idempotent(&self, tool: &str) -> bool {
        matches(&self.idempotent, tool)
    }

    /// Returns whether the tool is read-only.
    pub(crate) fn is_read_only(&self, tool: &str) -> bool {
        matches(&self.read_only, tool)
    }

    /// Checks that the patterns match tools that a server lists, by their names there.
    ///
    /// # Errors
    ///
    /// If a pattern of `only` or `approval` matches no tool: a typing mistake there removes a tool or an approval.
    /// Other patterns without a match have no effect, and are logged. A server without tools passes, because nothing
    /// can be called.
    pub(crate) fn check_patterns(&self, listed: &BTreeSet<String>) -> Result<(), McpError> {
        if listed.is_empty() {
            return Ok(());
        }
        let only = self.only.iter().flatten();
        let unmatched = |pattern: &&Pattern| !listed.iter().any(|tool| pattern.matches(tool));
        let needed =
            only.map(|it| ("only", it)).chain(self.approval.iter().map(|it| ("approval", it)));
        if let Some((word, pattern)) = needed.into_iter().find(|(_, pattern)| unmatched(pattern)) {
            let names = listed.iter().take(MAX_NAMES);
            let names: Vec<String> =
                names.map(|name| format!("`{}`", sanitize_name(name))).collect();
            let more = if listed.len() > MAX_NAMES { ", …" } else { "" };
            let names = names.join(", ");
            let why =
                format!("pattern `{pattern}` of `{word}` matches none of its tools: {names}{more}");
            return Err(McpError::Misconfigured { server: self.name.clone(), why });
        }
        let others = self.idempotent.iter().chain(&self.read_only);
        for pattern in others.filter(unmatched) {
            let (server, pattern) = (&*self.name, pattern.as_str());
            tracing::warn!(server, pattern, "a pattern matches none of the tools");
        }
        Ok(())
    }

    /// Returns whether calls of the tool need an approval.
    pub(crate) fn needs_approval(&self, tool: &str) -> bool {
        matches(&self.approval, tool)
    }
}

fn build_settings(server: ServerDescription) -> Result<Settings, String> {
    check_name(&server.name)?;
    if server.timeout.is_zero() {
        return Err("its timeout must not be zero".to_owned());
    }
    if server.start_timeout.is_zero() {
        return Err("the timeout of its start must not be zero".to_owned());
    }
    let secrets = Secrets::new(redactor(&server));
    let max_timeout = server.max_timeout.unwrap_or(server.timeout.saturating_mul(PROGRESS_FACTOR));
    let (place, capability) = match &server.reached {
        Reached::Command(command) => (program(&server, command)?, "process:spawn".to_owned()),
        Reached::Url(url) => endpoint(&server, url, &secrets)?,
    };
    Ok(Settings {
        place,
        capability,
        max_timeout: max_timeout.max(server.timeout),
        timeout: server.timeout,
        start_timeout: server.start_timeout,
        roots: server.roots.iter().map(|root| root_url(root)).collect::<Result<_, _>>()?,
        secrets,
        only: server.only.as_deref().map(patterns).transpose()?,
        idempotent: patterns(&server.idempotent)?,
        read_only: patterns(&server.read_only)?,
        approval: patterns(&server.approval)?,
        name: server.name,
        clock: server.clock,
        on_progress: server.on_progress,
        programs: TaskTracker::new(),
        opening: Mutex::default(),
    })
}

/// Checks a name, which is the prefix of tool names and has to be valid for every provider.
fn check_name(name: &str) -> Result<(), String> {
    let is_taken = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    match begins && name.len() <= MAX_NAME && name.chars().all(is_taken) {
        true => Ok(()),
        false => Err(format!(
            "its name must be a letter and at most {} letters, digits, `_` and `-`",
            MAX_NAME - 1
        )),
    }
}

fn redactor(server: &ServerDescription) -> Redactor {
    let values = server.headers.iter().map(|(_, value)| value.as_str());
    // In `Bearer KEY`, the key is the part that a server repeats.
    let keys = server.headers.iter().filter_map(|(_, value)| value.split_once(' ').map(|it| it.1));
    let variables = server.variables.iter().filter(|(name, _)| is_secret_name(name));
    let variables = variables.map(|(_, value)| value.as_str());
    let credentials = server.oauth.iter().map(|credentials| credentials.secret.as_str());
    let all = values.chain(keys).chain(variables).chain(credentials);
    all.fold(server.redactor.clone(), |redactor, secret| redactor.with_secret(secret))
}

fn program(server: &ServerDescription, command: &[String]) -> Result<ServerLocation, String> {
    let Some((program, arguments)) =
        command.split_first().filter(|(program, _)| !program.is_empty())
    else {
        return Err("its command is empty".to_owned());
    };
    if !server.headers.is_empty() || server.oauth.is_some() {
        return Err("a command has no headers and no login; give it variables".to_owned());
    }
    let mut command = ServerCommand::new(program, arguments.iter().cloned());
    command.folder.clone_from(&server.folder);
    command.variables.clone_from(&server.variables);
    Ok(ServerLocation::Command { command, spawner: Arc::clone(&server.spawner) })
}

fn endpoint(
    server: &ServerDescription,
    url: &str,
    secrets: &Arc<Secrets>,
) -> Result<(ServerLocation, String), String> {
    let url = Url::parse(url).map_err(|error| format!("its URL is not valid: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("the scheme of its URL is neither `http` nor `https`".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("its URL carries a user name or a password; give it a header".to_owned());
    }
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    if host.is_empty() {
        return Err("its URL has no host".to_owned());
    }
    let capability = format!("network:outbound:{host}");
    let client = http_client(is_loopback(host), None).map_err(|error| error.to_string())?;
    let headers = server.headers.iter().map(header).collect::<Result<_, _>>()?;
    let login = server.oauth.clone().map(|credentials| {
        let (grants, secrets) = (server.grants.clone(), Arc::clone(secrets));
        Arc::new(Login::new(credentials, url.clone(), client.clone(), grants, secrets))
    });
    Ok((ServerLocation::Url { url, headers, client, login }, capability))
}

fn header((name, value): &(String, String)) -> Result<(HeaderName, HeaderValue), String> {
    let invalid = || format!("its header `{name}` is not valid");
    let parsed = HeaderName::try_from(name.as_str()).map_err(|_| invalid())?;
    let reserved =
        ["accept", "content-type", "mcp-session-id", "mcp-protocol-version", "last-event-id"];
    if reserved.contains(&parsed.as_str()) {
        return Err(format!("its header `{name}` belongs to the protocol"));
    }
    let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| invalid())?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

fn patterns(patterns: &[String]) -> Result<Vec<Pattern>, String> {
    let parse = |pattern: &String| {
        Pattern::new(pattern).map_err(|error| format!("pattern `{pattern}`: {error}"))
    };
    patterns.iter().map(parse).collect()
}

/// Returns the beginning of a name, without control characters.
pub(crate) fn sanitize_name(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect()
}

fn matches(patterns: &[Pattern], tool: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(tool))
}

/// Returns the URL of a folder, as servers receive it.
fn root_url(folder: &Path) -> Result<String, String> {
    let shown = folder.display();
    let whole: PathBuf = std::path::absolute(folder)
        .map_err(|error| format!("its root `{shown}` is no folder: {error}"))?;
    let url =
        Url::from_directory_path(whole).map_err(|()| format!("its root `{shown}` is no path"))?;
    Ok(url.as_str().trim_end_matches('/').to_owned())
}
