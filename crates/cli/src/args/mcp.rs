//! Commands about tools of MCP servers, and about agents as tools.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use backstop_mcp_server::Server;

use super::store::StoreArgs;

#[derive(clap::Args)]
pub(crate) struct ToolsArgs {
    /// Agent file
    #[arg(value_name = "AGENT.toml")]
    pub(crate) agent: PathBuf,
    /// Print one JSON object per tool
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct McpArgs {
    /// Agent files; each agent is served as a tool with the agent's name
    #[arg(value_name = "AGENT.toml", required = true)]
    pub(crate) agents: Vec<PathBuf>,
    /// Serve HTTP at http://ADDR/mcp instead of standard input and output; an address other machines can reach needs a
    /// token, from BACKSTOP_TOKEN or --token-file
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Read the token required from HTTP clients from this file instead of BACKSTOP_TOKEN
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub(crate) token_file: Option<PathBuf>,
    /// Allow web pages of this origin, such as https://app.example, to reach the server; pages of this machine are
    /// allowed where the server listens on it. May be given more than once
    #[arg(long = "allow-origin", value_name = "ORIGIN", requires = "listen", value_parser = origin)]
    pub(crate) allow_origins: Vec<String>,
    /// Answer a call after at most this many seconds; if the run has not ended by then, the answer is its id
    #[arg(long, value_name = "SECONDS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    answer_within: u64,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Parses the origin of pages.
fn origin(written: &str) -> Result<String, String> {
    match Server::check_origin(written) {
        true => Ok(written.to_owned()),
        false => Err("write a scheme, a host and no path, such as https://app.example".to_owned()),
    }
}

impl McpArgs {
    pub(crate) const fn answer_within(&self) -> Duration {
        Duration::from_secs(self.answer_within)
    }
}
