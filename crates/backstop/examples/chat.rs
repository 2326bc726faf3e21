//! A conversation: runs of one session read what was said before.
//!
//! `echo "Call me Ada." | cargo run -p backstop --example chat`; what you type is answered by a script.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program speaks to its terminal"
)]

use std::io::{BufRead, stdin};

use backstop::MemoryLog;
use backstop::prelude::*;

#[tokio::main]
async fn main() -> Result<(), backstop::Error> {
    // In place of a model: it says how much of the conversation it was sent.
    let model = ScriptedProvider::from_fn(|request| {
        ScriptedAnswer::saying(format!(
            "I have read {} messages.",
            request.messages.messages().len()
        ))
    });
    let agent = Agent::builder(model).log(MemoryLog::new()).build()?;
    for line in stdin().lock().lines().map_while(Result::ok) {
        let outcome = agent.run(RunRequest::new(line).session("chat-1")).await?;
        println!("{}", outcome.text());
    }
    Ok(())
}
