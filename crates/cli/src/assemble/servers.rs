//! Connected servers of `[[mcp]]`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_config::{AgentFile, ConfigError, McpPlace, McpTable, TextOrCredential};
use backstop_mcp::{ClientCredentials, McpClient, McpError, McpServer, WalledSpawner};
use backstop_react::AgentBuilder;
use backstop_redact::Redactor;
use backstop_tool::{Grants, ToolSource};
use futures_util::future::join_all;
use layer0::failure::{Chain, Failure, Seconds};

use super::credentials::{read_secret, resolve_text};
use super::model::KeyRequirement;
use super::tool::named_variables;
use super::walls::{granted_folders, surroundings};
use super::{parent_folder, redactor};
use crate::exit::CliError;
use crate::output::{format_count, note, shows_notes};

/// Placeholder for a credential that is not needed.
const ELSEWHERE: &str = "held elsewhere";

/// Time after which a slow start is reported at a terminal.
const TOLD_AFTER: Duration = Duration::from_secs(3);

/// Hint for a server that the network rule of the file does not allow.
const NETWORK_HINT: &str = "let `network` in [environment] name its host, or give the programs that are to be held an \
     `environment` of their own";

/// The connected servers of an agent file. Their programs are killed when they are closed, or when this and the agents
/// are dropped.
#[derive(Default)]
pub(crate) struct Servers(Vec<Arc<McpClient>>);

impl Servers {
    /// Connects to the servers of a file concurrently, once each.
    pub(crate) async fn connect(file: &AgentFile, path: &Path) -> Result<Self, CliError> {
        match Self::reach(file, path).await? {
            (_, Some(error)) => Err(error),
            (servers, None) => Ok(servers),
        }
    }

    /// Connects as [`Servers::connect`] does; returns the connected servers, and the error of the first of the others.
    pub(crate) async fn reach(
        file: &AgentFile,
        path: &Path,
    ) -> Result<(Self, Option<CliError>), CliError> {
        let redactor = redactor(file, path);
        let servers = file.mcp.iter().map(|table| server(table, file, path, &redactor));
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        let (mut there, mut failed) = (Vec::new(), None);
        let connecting = servers.into_iter().zip(&file.mcp);
        let connecting = connecting.map(|(server, table)| connect(server, table));
        for connected in join_all(connecting).await {
            match connected {
                Ok(client) => there.push(client),
                Err(error) => failed = failed.or_else(|| Some(not_connected(&error, path))),
            }
        }
        Ok((Self(there), failed))
    }

    /// Prints notes on the tools that the agent does not get, and on other problems of the lists.
    pub(crate) fn tell_left_out(&self) {
        for client in &self.0 {
            let server = client.name();
            for tool in client.left_out() {
                let (origin, why) = (&tool.origin, &tool.why);
                note(&format!(
                    "warning: tool `{origin}` of MCP server `{server}` is left out: {why}"
                ));
            }
            for what in client.warnings() {
                note(&format!("warning: MCP server `{server}`: {what}"));
            }
        }
    }

    /// Adds the tools of the servers to an agent.
    pub(crate) fn give(&self, agent: AgentBuilder) -> AgentBuilder {
        let sources = self.0.iter().map(|client| Arc::clone(client) as Arc<dyn ToolSource>);
        sources.fold(agent, AgentBuilder::tool_source)
    }

    /// Ends the connections, and waits until the programs and all processes that they started have ended.
    pub(crate) async fn close(&self) {
        join_all(self.0.iter().map(|client| client.close())).await;
    }

    /// Returns the servers in the order of the file.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &dyn ToolSource> {
        self.0.iter().map(|client| &**client as &dyn ToolSource)
    }

    /// Returns a line about a server and its listing.
    pub(crate) fn describe(client: &McpClient) -> String {
        let listing = client.listing();
        let is = listing.implementation.as_deref().unwrap_or("a server without a name");
        let tools = u64::try_from(listing.tools.len()).unwrap_or(u64::MAX);
        let revision = listing.protocol.as_deref().unwrap_or("unknown");
        let left_out = match client.left_out().len() {
            0 => String::new(),
            count => format!(", {count} left out"),
        };
        let (name, tools) = (client.name(), format_count(tools, "tool"));
        format!("`{name}` is {is}, revision {revision}: {tools}{left_out}")
    }
}

/// Connects to a server; prints a note at a terminal if that takes long.
async fn connect(server: McpServer, table: &McpTable) -> Result<Arc<McpClient>, McpError> {
    let mut connecting = std::pin::pin!(server.connect());
    tokio::select! {
        connected = &mut connecting => return connected,
        () = SystemClock.sleep(TOLD_AFTER) => {}
    }
    if shows_notes() {
        let longest = Seconds(table.start_timeout());
        note(&format!("MCP server `{}` is starting, for {longest} at most", table.name));
    }
    connecting.await
}

/// Returns the configured server of a table.
pub(crate) fn server(
    table: &McpTable,
    file: &AgentFile,
    path: &Path,
    redactor: &Redactor,
) -> Result<McpServer, CliError> {
    build_server(table, file, path, redactor, KeyRequirement::Held)
}

/// Checks the configuration of a server. Nothing is started or requested.
pub(super) fn check(
    table: &McpTable,
    file: &AgentFile,
    path: &Path,
    keys: KeyRequirement,
) -> Result<(), CliError> {
    let server = build_server(table, file, path, &Redactor::new(), keys)?;
    server.check().map_err(|error| ConfigError::new(path, Chain(&error).to_string()).into())
}

fn build_server(
    table: &McpTable,
    file: &AgentFile,
    path: &Path,
    redactor: &Redactor,
    keys: KeyRequirement,
) -> Result<McpServer, CliError> {
    let folder = parent_folder(path);
    let is_elsewhere = matches!(keys, KeyRequirement::Any);
    let text = |value: &TextOrCredential| match is_elsewhere && value.is_credential() {
        true => Ok(ELSEWHERE.to_owned()),
        false => resolve_text(value, path, folder),
    };
    let mut server = match &table.place {
        McpPlace::Command(command) => {
            let program = command.first().filter(|program| program.contains('/'));
            let cwd = table.cwd.as_ref().map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd));
            let program = program.map(|program| cwd.join(program));
            let mut server = McpServer::command(&*table.name, command.iter().cloned())
                .variables(named_variables(table.env.as_deref()))
                .folder(cwd);
            let own = table.environment.as_ref();
            if let Some(around) = surroundings(own, file, path, folder, program.as_deref())? {
                let spawner = WalledSpawner::new(around.walls);
                let spawner = around
                    .credentials
                    .into_iter()
                    .fold(spawner, |spawner, (name, it)| spawner.credential(name, it));
                server = server.spawner(Arc::new(spawner));
            }
            server
        }
        McpPlace::Url(url) => {
            check_network(table, url.host_str().unwrap_or_default(), file, path)?;
            let mut server = McpServer::url(&*table.name, url.as_str());
            for (name, value) in &table.headers {
                server = server.header(name.as_str(), text(value)?);
            }
            if let Some(oauth) = &table.oauth {
                let id = text(&oauth.client_id)?;
                let secret = match is_elsewhere {
                    true => ELSEWHERE.to_owned(),
                    false => read_secret(&oauth.client_secret, path, folder)?,
                };
                let mut credentials =
                    ClientCredentials::new(id, secret).scopes(oauth.scopes.clone());
                if let Some(url) = &oauth.token_url {
                    credentials = credentials.token_url(url.as_str());
                }
                let grants = Grants::parse(file.agent.grants(folder)).map_err(CliError::usage)?;
                server = server.oauth(credentials).grants(grants);
            }
            server
        }
        _ => return Err(CliError::usage("this kind of MCP server is not known")),
    };
    if let Some(only) = &table.tools {
        server = server.only(only.clone());
    }
    Ok(server
        .idempotent(table.idempotent.clone())
        .read_only(table.read_only.clone())
        .approval(table.approval.clone())
        .timeout(table.timeout())
        .start_timeout(table.start_timeout())
        .roots(granted_folders(file, folder))
        .redactor(redactor.clone()))
}

/// Checks that the file's own `network` allows its server.
fn check_network(
    table: &McpTable,
    host: &str,
    file: &AgentFile,
    path: &Path,
) -> Result<(), CliError> {
    let Some(around) = surroundings(None, file, path, parent_folder(path), None)? else {
        return Ok(());
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    around.walls.check_host(host).map_err(|denied| {
        let what = format!(
            "`url` of MCP server `{}` is not within `network` of [environment]: {}",
            table.name,
            denied.what()
        );
        ConfigError::new(path, what).with_hint(NETWORK_HINT).into()
    })
}

/// Returns the error for a server that did not connect.
pub(crate) fn not_connected(error: &McpError, path: &Path) -> CliError {
    let config = ConfigError::new(path, Chain(error).to_string());
    let hint = Failure::hint(error).map(|hint| hint.into_owned());
    CliError::from(config.with_hint(hint.unwrap_or_else(|| {
        format!("`backstop tools {}` tries it again and says what it lists", path.display())
    })))
}
