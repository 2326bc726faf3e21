//! An answer as a value of your own type, with the feature `json-schema` and `serde`.
//!
//! `cargo run -p backstop --example typed`. The first answer does not fit: the model is told why, once.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its terminal")]

use backstop::prelude::*;
use backstop::schemars::JsonSchema;
use serde::Deserialize;

/// Who owes how much.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "backstop::schemars")]
struct Debt {
    customer: String,
    #[schemars(range(min = 0))]
    euros: u64,
}

#[tokio::main]
async fn main() -> Result<(), backstop::Error> {
    let model = ScriptedProvider::saying([
        r#"{"customer": "Ada", "euros": "twelve"}"#,
        r#"{"customer": "Ada", "euros": 12}"#,
    ]);
    let agent = Agent::builder(model).build()?;
    let answer = agent.run_typed::<Debt>("Who owes us most?").await?;
    match answer.value {
        Some(Debt { customer, euros }) => println!("{customer} owes {euros} euros"),
        None => println!("stopped: {:?}", answer.outcome.stop),
    }
    Ok(())
}
