//! A memory of your own: read before the first model call, written when a run has ended.
//! `cargo run -p backstop --example own_memory`. One that fails never fails a run.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its terminal")]

use std::sync::Mutex;

use backstop::prelude::*;
use backstop::{BoxError, Memory, MemoryEntry, MemoryQuery, SessionId, async_trait};

#[derive(Default)]
struct Notebook(Mutex<Vec<String>>);

#[async_trait]
impl Memory for Notebook {
    async fn read(&self, _: MemoryQuery) -> Result<Vec<String>, BoxError> {
        Ok(self.0.lock().map_err(|_| "poisoned")?.clone())
    }
    async fn write(&self, entry: MemoryEntry) -> Result<(), BoxError> {
        self.0.lock().map_err(|_| "poisoned")?.push(format!("asked: {}", entry.input));
        Ok(())
    }
    async fn forget(&self, _: Option<&SessionId>) -> Result<u64, BoxError> {
        Ok(self.0.lock().map_err(|_| "poisoned")?.drain(..).count() as u64)
    }
}

#[tokio::main]
async fn main() -> Result<(), backstop::Error> {
    let model = ScriptedProvider::saying(["Hello, Ada.", "You are Ada."]);
    let asked = model.requests();
    let agent = Agent::builder(model).memory(Notebook::default()).build()?;
    agent.run("I am Ada.").await?;
    println!("{}", agent.run("Who am I?").await?.text());
    println!("it read: {:?}", asked.all()[1].messages.messages()[0]);
    Ok(())
}
