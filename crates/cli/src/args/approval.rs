//! Commands about approvals, cancellation and calls of unknown outcome.

use layer0::JsonText;

use super::store::StoreArgs;
use super::values::{arguments, json, not_blank};

#[derive(clap::Args)]
pub(crate) struct ApprovalsArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ApproveArgs {
    /// Approval, as `approvals` lists it: its id, a unique prefix of its id, or `last`
    #[arg(value_name = "ID", value_parser = not_blank)]
    pub(crate) id: String,
    /// Name recorded as the person who decides
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: String,
    /// Reason recorded with the decision
    #[arg(long, value_name = "TEXT", value_parser = not_blank)]
    pub(crate) reason: Option<String>,
    /// Run the call with these arguments instead of those shown; give the complete JSON object
    #[arg(long, value_name = "JSON", value_parser = arguments)]
    pub(crate) arguments: Option<JsonText>,
    /// Data that the approval asks for: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON")]
    pub(crate) data: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct DenyArgs {
    /// Approval, as `approvals` lists it: its id, a unique prefix of its id, or `last`
    #[arg(value_name = "ID", value_parser = not_blank)]
    pub(crate) id: String,
    /// Name recorded as the person who decides
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: String,
    /// Reason recorded with the decision; the model reads it
    #[arg(long, value_name = "TEXT", value_parser = not_blank)]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct CancelArgs {
    /// Run: its id, a unique prefix of its id, or `last`
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    /// Name recorded as the person who stops the run [default: the current user]
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A decision on whether a call of unknown outcome happened. The model reads it in place of a missing answer; an answer
/// that was given stays, and the model reads the decision with its next request.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("verdict").required(true).args(["happened", "did_not"])))]
pub(crate) struct ResolveArgs {
    /// Run: its id, a unique prefix of its id, or `last`
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    /// Call id, as `trace` shows it
    #[arg(value_name = "CALL", value_parser = not_blank)]
    pub(crate) call: String,
    /// The call happened
    #[arg(long)]
    pub(crate) happened: bool,
    /// The call did not happen; the model may call again
    #[arg(long)]
    pub(crate) did_not: bool,
    /// Answer of the call, as JSON
    #[arg(long, value_name = "JSON", value_parser = json, conflicts_with = "did_not")]
    pub(crate) output: Option<JsonText>,
    /// Name recorded as the person who decides [default: the current user]
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
