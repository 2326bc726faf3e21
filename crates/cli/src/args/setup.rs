//! Commands for the first steps.

use std::path::PathBuf;

use super::store::StoreArgs;

#[derive(clap::Args)]
pub(crate) struct InitArgs {
    /// The new agent file; one that is there already is left alone
    #[arg(value_name = "FILE", default_value = "agent.toml")]
    pub(crate) file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct CheckArgs {
    /// The agent file
    #[arg(value_name = "AGENT.toml")]
    pub(crate) file: PathBuf,
    /// Print one JSON object per mistake
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    /// Look at what this agent needs; at what is usual otherwise
    #[arg(value_name = "AGENT.toml")]
    pub(crate) agent: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per check
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}
