//! Commands for the first steps.

use std::path::PathBuf;

use super::store::StoreArgs;

#[derive(clap::Args)]
pub(crate) struct InitArgs {
    /// Agent file to create; an existing file is not changed
    #[arg(value_name = "FILE", default_value = "agent.toml")]
    pub(crate) file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct CheckArgs {
    /// Agent file
    #[arg(value_name = "AGENT.toml")]
    pub(crate) file: PathBuf,
    /// Print one JSON object per mistake
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    /// Check the needs of this agent [default: the usual setup]
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
    /// Shell to complete commands in
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}
