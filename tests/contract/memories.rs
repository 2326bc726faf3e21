//! Memories that outlive a run, and the process.

use std::sync::Arc;

use backstop::{
    Agent, Database, Durability, MemoryStateStore, RunRequest, ScriptedProvider, StateMemory,
};
use backstop_react::{Memory, MemoryEntry, MemoryQuery};
use backstop_testkit::contract;
use layer0::StateStore;
use layer0::state::{Scope, StateQuery};

fn state() -> Arc<dyn StateStore> {
    Arc::new(MemoryStateStore::new())
}

/// Spec: M1, K2
#[tokio::test]
async fn every_memory_keeps_the_contract() {
    contract::memory(async || Arc::new(StateMemory::of_session(state())) as _).check().await;
    let in_file = async || {
        let database = Database::in_memory().await.unwrap();
        Arc::new(StateMemory::of_session(Arc::new(database.state()))) as _
    };
    contract::memory(in_file).check().await;
}

async fn write(memory: &StateMemory, session: &str, run: &str, input: &str, output: &str) {
    memory.write(MemoryEntry::new(session, run, input, output)).await.unwrap();
}

async fn read(memory: &StateMemory, input: &str) -> Vec<String> {
    memory.read(MemoryQuery::new("s-1", input)).await.unwrap()
}

/// Spec: K2. What fits best comes first, then the newest; number and bytes are bounded.
#[tokio::test]
async fn best_matches_come_before_the_newest() {
    let memory = StateMemory::in_scope(state(), Scope::Global).entries(3);
    for (run, input) in [("run_1", "the red house"), ("run_2", "a boat"), ("run_3", "a tree")] {
        write(&memory, "s-1", run, input, "seen").await;
    }
    write(&memory, "s-1", "run_4", "nothing else", "x").await;
    let house = "the red house → seen";
    assert_eq!(read(&memory, "which house?").await, [house, "nothing else → x", "a tree → seen"]);
    let short = memory.clone().bytes(house.len() + 20);
    assert_eq!(read(&short, "which house?").await, [house, "nothing else → x"]);
}

/// Spec: K2. A memory of an agent is read in every session; a session's entries can be forgotten alone.
#[tokio::test]
async fn agent_remembers_over_sessions() {
    let memory = StateMemory::of_agent(state(), "clerk");
    write(&memory, "s-1", "run_1", "one", "1").await;
    write(&memory, "s-2", "run_2", "two", "2").await;
    assert_eq!(read(&memory, "x").await, ["two → 2", "one → 1"]);
    assert_eq!(memory.forget(Some(&"s-1".into())).await.unwrap(), 1);
    assert_eq!(read(&memory, "x").await, ["two → 2"]);
    assert_eq!(memory.forget(None).await.unwrap(), 1);
}

/// Spec: K2. Other values of the scope are no entries, and stay.
#[tokio::test]
async fn other_state_is_left_alone() {
    let state = state();
    let memory = StateMemory::in_scope(Arc::clone(&state), Scope::Global);
    let other =
        layer0::state::StateWrite::new(Scope::Global, "house", serde_json::json!("a red house"));
    state.write(other).await.unwrap();
    write(&memory, "s-1", "run_1", "house", "seen").await;
    assert_eq!(read(&memory, "house").await, ["house → seen"]);
    assert_eq!(memory.forget(None).await.unwrap(), 1);
    assert_eq!(state.list(StateQuery::new(Scope::Global)).await.unwrap().len(), 1);
}

/// Spec: K2, M1. The model of the next run, in another process, reads what was said before.
#[tokio::test]
async fn next_process_reads_what_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.db");
    let mut asked = Vec::new();
    for input in ["Alice prefers euros.", "And Alice?"] {
        let database = Database::open(&file, Durability::Normal).await.unwrap();
        let model = ScriptedProvider::saying(["Noted."]);
        let requests = model.requests();
        let agent = Agent::builder(model)
            .memory(StateMemory::of_session(Arc::new(database.state())))
            .log(database.log())
            .build()
            .unwrap();
        agent.run(RunRequest::new(input).session("s-1")).await.unwrap();
        let messages = requests.all().remove(0).messages.clone();
        asked.push(format!("{:?}", messages.messages()));
        database.close().await;
    }
    let remembered = "Alice prefers euros. → Noted.";
    assert!(!asked[0].contains(remembered) && asked[1].contains(remembered), "{asked:?}");
}
