//! The command about costs.

use super::store::StoreArgs;
use super::values::{TimeArgs, not_blank};

#[derive(clap::Args)]
pub(crate) struct CostsArgs {
    /// Group by day (UTC), agent, model, or label:KEY
    #[arg(long, value_name = "GROUP", default_value = "day", value_parser = grouping)]
    pub(crate) by: CostGrouping,
    #[command(flatten)]
    pub(crate) time: TimeArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per line, the total last
    #[arg(long)]
    pub(crate) json: bool,
}

/// The grouping of costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CostGrouping {
    Day,
    Agent,
    Model,
    /// The value of the label with this key.
    Label(String),
}

fn grouping(text: &str) -> Result<CostGrouping, String> {
    match text {
        "day" => Ok(CostGrouping::Day),
        "agent" => Ok(CostGrouping::Agent),
        "model" => Ok(CostGrouping::Model),
        _ => match text.strip_prefix("label:") {
            Some(key) => not_blank(key).map(CostGrouping::Label),
            None => Err("write day, agent, model or label:KEY, such as label:tenant".to_owned()),
        },
    }
}
