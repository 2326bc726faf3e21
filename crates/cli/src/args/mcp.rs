//! Commands about tools of MCP servers, and about agents as tools.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use backstop_mcp_server::Server;

use super::store::StoreArgs;

#[derive(clap::Args)]
pub(crate) struct ToolsArgs {
    /// The agent file
    #[arg(value_name = "AGENT.toml")]
    pub(crate) agent: PathBuf,
    /// Print one JSON object per tool
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct McpArgs {
    /// The agent files; each agent is a tool of its name
    #[arg(value_name = "AGENT.toml", required = true)]
    pub(crate) agents: Vec<PathBuf>,
    /// Listen for HTTP, at http://ADDR/mcp, instead of standard input and output; beyond this machine only with
    /// a token, from BACKSTOP_TOKEN or --token-file
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Read the token that HTTP clients have to bear from this file instead of BACKSTOP_TOKEN
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub(crate) token_file: Option<PathBuf>,
    /// Let pages of this origin, such as https://app.example, reach the server; those of this machine may where it
    /// listens on it. Can be given several times
    #[arg(long = "allow-origin", value_name = "ORIGIN", requires = "listen", value_parser = origin)]
    pub(crate) allow_origins: Vec<String>,
    /// Answer a call after this many seconds at the latest, with the id of its run where that is not done
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
