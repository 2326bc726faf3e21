//! A run goes on after its process died, with the feature `sqlite`.
//!
//! Run it twice: `cargo run -p backstop --example resume`. The first process dies inside a tool; the
//! second one goes on with the run, and asks no model for what was answered.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its terminal")]

use std::env::temp_dir;

use backstop::prelude::*;
use backstop::{Durability, ResumeRequest, event_log::Log};
use serde_json::json;

/// Look a word up.
#[tool(idempotent)]
async fn look_up(word: String, first: State<bool>) -> Result<String, ToolError> {
    if *first {
        println!("this process dies while it looks up {word}; run it again");
        std::process::exit(0);
    }
    Ok("a safe place to land".to_owned())
}

#[tokio::main]
async fn main() -> Result<(), backstop::Error> {
    let path = std::env::args_os().nth(1).map_or_else(|| temp_dir().join("resume.db"), Into::into);
    let store = Database::open(&path, Durability::Normal).await?;
    let run = "run_example".into();
    let first = store.log().summary(&run).await?.is_none();
    let model = ScriptedProvider::calling("look_up", json!({"word": "backstop"}), "It is safe.");
    let model = model.starting_at(usize::from(!first));
    let agent = Agent::builder(model).tool(look_up).state(first).store(&store).build()?;
    let outcome = match first {
        true => agent.run(RunRequest::new("What is a backstop?").run(run)).await?,
        false => agent.resume(ResumeRequest::new(run)).await?,
    };
    println!("{}", outcome.text());
    Ok(())
}
