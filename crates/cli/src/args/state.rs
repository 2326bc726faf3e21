//! Commands about state.

use clap::Subcommand;
use layer0::JsonText;
use layer0::state::{Expected, Scope};
use serde::de::IgnoredAny;

use super::store::StoreArgs;
use super::values::{from_one, not_blank};

#[derive(clap::Args)]
pub(crate) struct StateArgs {
    #[command(subcommand)]
    pub(crate) command: StateCommand,
}

#[derive(Subcommand)]
pub(crate) enum StateCommand {
    /// List values in the order of their keys
    List(StateListArgs),
    /// Print a value
    Get(StateGetArgs),
    /// Write a value
    Set(StateSetArgs),
    /// Remove a value
    Rm(StateRmArgs),
}

/// The scope of values.
#[derive(clap::Args)]
pub(crate) struct WhereArgs {
    /// Scope of the value: global, session:ID, agent:NAME, run:ID, or NAME:ID of your own
    #[arg(long, value_name = "SCOPE", default_value = "global")]
    pub(crate) scope: Scope,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print JSON objects
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct StateListArgs {
    /// List only keys that begin with this prefix
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// List only keys after this one: the last key of the previous page
    #[arg(long, value_name = "KEY", value_parser = not_blank)]
    pub(crate) after: Option<String>,
    /// Maximum number of values to list
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = from_one())]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) of: WhereArgs,
}

#[derive(clap::Args)]
pub(crate) struct StateGetArgs {
    /// Key of the value
    #[arg(value_name = "KEY", value_parser = not_blank)]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) of: WhereArgs,
}

#[derive(clap::Args)]
pub(crate) struct StateSetArgs {
    /// Key of the value
    #[arg(value_name = "KEY", value_parser = not_blank)]
    pub(crate) key: String,
    /// Value as JSON; a text needs its quotes: '"text"'
    #[arg(value_name = "JSON", value_parser = any_json, allow_hyphen_values = true)]
    pub(crate) value: JsonText,
    /// Write only if this version is stored, or with `absent` only if no value is stored
    #[arg(long, value_name = "VERSION", value_parser = parse_expected)]
    pub(crate) expect: Option<Expected>,
    #[command(flatten)]
    pub(crate) of: WhereArgs,
}

#[derive(clap::Args)]
pub(crate) struct StateRmArgs {
    /// Key of the value
    #[arg(value_name = "KEY", value_parser = not_blank)]
    pub(crate) key: String,
    /// Remove only if this version is stored
    #[arg(long, value_name = "VERSION", value_parser = parse_expected)]
    pub(crate) expect: Option<Expected>,
    #[command(flatten)]
    pub(crate) of: WhereArgs,
}

fn any_json(text: &str) -> Result<JsonText, String> {
    let quoted = "a text needs its quotes";
    serde_json::from_str(text).map_err(|error| match serde_json::from_str::<IgnoredAny>(text) {
        // JSON, but with a number or a depth that no reader takes.
        Ok(_) => format!("it cannot be stored: {error}"),
        Err(_) => format!("it is no JSON: {error}; {quoted}"),
    })
}

fn parse_expected(text: &str) -> Result<Expected, String> {
    if text == "absent" {
        return Ok(Expected::Absent);
    }
    let version =
        text.parse().map_err(|_| "a version is a whole number, or `absent`".to_owned())?;
    Ok(Expected::Version(version))
}
