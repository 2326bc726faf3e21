//! Commands about behaviours.

use std::path::PathBuf;

use clap::Subcommand;

use super::store::StoreArgs;
use super::values::{from_one, not_blank};

#[derive(clap::Args)]
pub(crate) struct WatchArgs {
    /// Agent files whose behaviours are served
    #[arg(value_name = "AGENT.toml", required = true)]
    pub(crate) agents: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print how each delivery ends as it is recorded, as one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct BehaviorsArgs {
    #[command(subcommand)]
    pub(crate) command: BehaviorsCommand,
}

#[derive(Subcommand)]
pub(crate) enum BehaviorsCommand {
    /// List subscriptions with their patterns and positions
    List(BehaviorsListArgs),
    /// List deliveries that failed, newest first
    Failures(BehaviorsFailuresArgs),
    /// Deliver an event again
    Redeliver(BehaviorsRedeliverArgs),
}

#[derive(clap::Args)]
pub(crate) struct BehaviorsListArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct BehaviorsFailuresArgs {
    /// Maximum number of deliveries to list
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = from_one())]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct BehaviorsRedeliverArgs {
    /// Delivery, as `behaviors failures` lists it: NAME/RUN/SEQ
    #[arg(value_name = "ID", value_parser = not_blank)]
    pub(crate) id: String,
    /// Agent file that has the behaviour
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: PathBuf,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
