//! `[[mcp]]` of an agent file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use backstop_process::Credential;
use backstop_redact::is_secret_name;
use layer0::name::check_name;
use serde::Deserialize;
use url::Url;

use crate::checked::at_least_one;
use crate::{EnvironmentTable, TextOrCredential};

/// Default timeout of a call, in milliseconds.
const TIMEOUT_MS: u64 = 30_000;
/// Default timeout of the start of a server, in milliseconds.
const START_TIMEOUT_MS: u64 = 30_000;

/// A server whose tools the agent gets.
///
/// ```
/// use backstop_config::{AgentFile, McpPlace};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("agent.toml");
/// std::fs::write(
///     &path,
///     r#"
///     [model]
///     provider = "script"
///     script = "script.toml"
///     [[mcp]]
///     name = "files"
///     command = ["mcp-files", "./data"]
///     idempotent = ["read_*"]
///     start_timeout_ms = 60000
///     "#,
/// )?;
/// let server = &AgentFile::read(&path)?.mcp[0];
/// assert_eq!((server.name.as_str(), server.timeout().as_secs()), ("files", 30));
/// assert_eq!(server.start_timeout().as_secs(), 60);
/// assert!(matches!(&server.place, McpPlace::Command(command) if command[0] == "mcp-files"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "WrittenServer")]
#[non_exhaustive]
pub struct McpTable {
    /// Name of the server, which is part of the names of its tools.
    pub name: String,
    /// Address of the server.
    pub place: McpPlace,
    /// Environment variables of a program; `PATH`, `HOME` and `LANG` by default.
    pub env: Option<Vec<String>>,
    /// Working folder of a program; the file's folder by default.
    pub cwd: Option<PathBuf>,
    /// Additional headers of each request to a URL.
    pub headers: BTreeMap<String, TextOrCredential>,
    /// OAuth client credentials for a URL.
    pub oauth: Option<OauthTable>,
    /// Patterns of the tools to use, by their names at the server; all tools by default.
    pub tools: Option<Vec<String>>,
    /// Patterns of the tools whose calls may be repeated.
    pub idempotent: Vec<String>,
    /// Patterns of the tools that only read, so that their calls may be repeated too.
    pub read_only: Vec<String>,
    /// Patterns of the tools that need the approval of a person.
    pub approval: Vec<String>,
    /// Timeout of a call, in milliseconds; 30 seconds by default.
    pub timeout_ms: Option<u64>,
    /// Timeout of the start of the server and its initialization, in milliseconds; 30 seconds by default.
    pub start_timeout_ms: Option<u64>,
    /// The rules of a program, instead of the file's `[environment]`.
    pub environment: Option<EnvironmentTable>,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpPlace {
    /// A program with its arguments, on its standard input and output; never empty.
    Command(Vec<String>),
    /// Over HTTP; `http` or `https`, with a host.
    Url(Url),
}

/// OAuth client credentials.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OauthTable {
    /// The client's id.
    pub client_id: TextOrCredential,
    /// Reference to the client's secret.
    pub client_secret: Credential,
    /// Requested scopes.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// URL of the token endpoint; as the server announces it by default.
    pub token_url: Option<String>,
}

impl McpTable {
    /// Returns the timeout of a call.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.unwrap_or(TIMEOUT_MS))
    }

    /// Returns the timeout of the start of the server.
    #[must_use]
    pub fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.start_timeout_ms.unwrap_or(START_TIMEOUT_MS))
    }
}

/// A table as written in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenServer {
    name: String,
    command: Option<Vec<String>>,
    url: Option<String>,
    env: Option<Vec<String>>,
    cwd: Option<PathBuf>,
    headers: Option<BTreeMap<String, TextOrCredential>>,
    oauth: Option<OauthTable>,
    tools: Option<Vec<String>>,
    #[serde(default)]
    idempotent: Vec<String>,
    #[serde(default)]
    read_only: Vec<String>,
    #[serde(default)]
    approval: Vec<String>,
    #[serde(default, deserialize_with = "at_least_one")]
    timeout_ms: Option<u64>,
    #[serde(default, deserialize_with = "at_least_one")]
    start_timeout_ms: Option<u64>,
    environment: Option<EnvironmentTable>,
}

impl TryFrom<WrittenServer> for McpTable {
    type Error = String;

    fn try_from(written: WrittenServer) -> Result<Self, String> {
        let WrittenServer { name, command, url, env, cwd, headers, oauth, environment, .. } =
            written;
        check_name(&name).map_err(|error| format!("MCP server: {error}"))?;
        let place = match (command, url) {
            (Some(command), None) => {
                if command.first().is_none_or(|program| program.trim().is_empty()) {
                    return Err(format!(
                        "`command` of MCP server `{name}` names no program; write the program and its arguments"
                    ));
                }
                McpPlace::Command(command)
            }
            (None, Some(url)) => McpPlace::Url(parse_url("url", &name, &url)?),
            (None, None) => {
                return Err(format!(
                    "MCP server `{name}` has neither `command` nor `url`; write `command = [\"PROGRAM\", …]` or `url = \"http://…\"`"
                ));
            }
            (Some(_), Some(_)) => {
                return Err(format!(
                    "MCP server `{name}` has both `command` and `url`; write one of them"
                ));
            }
        };
        let (of, misplaced) = match &place {
            McpPlace::Command(_) => (
                "command",
                [("headers", headers.is_some()), ("oauth", oauth.is_some()), ("", false)],
            ),
            McpPlace::Url(_) => (
                "url",
                [
                    ("env", env.is_some()),
                    ("cwd", cwd.is_some()),
                    ("environment", environment.is_some()),
                ],
            ),
        };
        if let Some((key, _)) = misplaced.iter().find(|(_, is_given)| *is_given) {
            return Err(format!(
                "`{key}` of MCP server `{name}` does not apply to a `{of}`; take it out"
            ));
        }
        if environment.as_ref().is_some_and(|environment| environment.output_kib.is_some()) {
            return Err(format!(
                "`output_kib` of `environment` has no effect on MCP server `{name}`, whose messages are bounded by the protocol; take it out"
            ));
        }
        let headers = headers.unwrap_or_default();
        let mut literal = headers.iter().filter(|(_, value)| !value.is_credential());
        if let Some((header, _)) = literal.find(|(header, _)| is_secret_name(header)) {
            return Err(format!(
                "header `{header}` of MCP server `{name}` holds a credential; write where it is kept: `env:NAME`, `file:PATH` or `command:…`"
            ));
        }
        if let Some(url) = oauth.as_ref().and_then(|oauth| oauth.token_url.as_ref()) {
            parse_url("token_url", &name, url)?;
        }
        Ok(Self {
            name,
            place,
            env,
            cwd,
            headers,
            oauth,
            tools: written.tools,
            idempotent: written.idempotent,
            read_only: written.read_only,
            approval: written.approval,
            timeout_ms: written.timeout_ms,
            start_timeout_ms: written.start_timeout_ms,
            environment,
        })
    }
}

fn parse_url(key: &str, name: &str, written: &str) -> Result<Url, String> {
    let url = Url::parse(written)
        .map_err(|error| format!("`{key}` of MCP server `{name}` is no URL: {error}; write such as `http://127.0.0.1:3001/mcp`"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!(
            "`{key}` of MCP server `{name}` has neither `http` nor `https` and a host; write such as `http://127.0.0.1:3001/mcp`"
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!(
            "`{key}` of MCP server `{name}` holds a credential; write `headers = {{ authorization = \"env:NAME\" }}`"
        ));
    }
    Ok(url)
}
