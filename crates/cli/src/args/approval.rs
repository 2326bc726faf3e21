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
    /// The approval, as `approvals` lists it: its id, a beginning of it that no other has, or `last`
    #[arg(value_name = "ID", value_parser = not_blank)]
    pub(crate) id: String,
    /// Who decides
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: String,
    /// Why
    #[arg(long, value_name = "TEXT", value_parser = not_blank)]
    pub(crate) reason: Option<String>,
    /// Let the call run with these arguments, all of them, instead of those that are shown
    #[arg(long, value_name = "JSON", value_parser = arguments)]
    pub(crate) arguments: Option<JsonText>,
    /// Give the data that the approval asks for: JSON, @FILE, or - for standard input
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
    /// The approval, as `approvals` lists it: its id, a beginning of it that no other has, or `last`
    #[arg(value_name = "ID", value_parser = not_blank)]
    pub(crate) id: String,
    /// Who decides
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: String,
    /// Why; the model reads it
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
    /// The run: its id, a beginning of it that no other has, or `last`
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    /// Who stops it; the user by default
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Says of a call that may have acted whether it did. The model reads it in the place of the answer that is
/// missing; an answer that was given stays, and the model is told when it is asked next.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("verdict").required(true).args(["happened", "did_not"])))]
pub(crate) struct ResolveArgs {
    /// The run: its id, a beginning of it that no other has, or `last`
    #[arg(value_name = "RUN", value_parser = not_blank)]
    pub(crate) run: String,
    /// The call, as the trace names it
    #[arg(value_name = "CALL", value_parser = not_blank)]
    pub(crate) call: String,
    /// It happened
    #[arg(long)]
    pub(crate) happened: bool,
    /// It did not happen; the model may call again
    #[arg(long)]
    pub(crate) did_not: bool,
    /// Its answer
    #[arg(long, value_name = "JSON", value_parser = json, conflicts_with = "did_not")]
    pub(crate) output: Option<JsonText>,
    /// The person who decides [default: the user]
    #[arg(long, value_name = "NAME", value_parser = not_blank)]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
