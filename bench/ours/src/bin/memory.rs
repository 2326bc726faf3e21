//! What agents and runs hold.
//!
//! `memory idle|suspended|in-flight HOW_MANY`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use backstop::provider::{ModelRequest, ModelResponse};
use backstop::{
    Agent, AgentBuilder, ErrorStore, EventLog, MemoryErrorStore, MemoryLog, Provider, ProviderError,
};
use contest::Round;
use contestant_backstop::{Script, add};
use tokio::task::JoinSet;

/// A model that does not answer, and counts who waits for it.
#[derive(Default)]
struct Silent(AtomicUsize);

#[async_trait]
impl Provider for Silent {
    fn name(&self) -> &str {
        "silent"
    }

    fn model(&self) -> &str {
        "silent"
    }

    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::future::pending().await
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().ok_or("what?")?;
    let many: usize = arguments.next().ok_or("how many?")?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // A process has one log and one error store, whatever agents it has.
    let errors: Arc<dyn ErrorStore> = Arc::new(MemoryErrorStore::new());
    let agent = |provider: &Arc<dyn Provider>, log: &Arc<dyn EventLog>| -> Agent {
        let agent =
            AgentBuilder::from_shared(Arc::clone(provider)).instructions("You add.").tool(add);
        let agent = agent.stream(false).require_approval("add").shared_log(Arc::clone(log));
        agent.shared_error_store(Arc::clone(&errors)).build().expect("it is complete")
    };
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    let waiting = Arc::new(Silent::default());
    let silent: Arc<dyn Provider> = Arc::clone(&waiting) as Arc<dyn Provider>;
    // What is made once is made now.
    drop(agent(&silent, &log));
    let mut agents = Vec::with_capacity(many);
    let mut runs = JoinSet::new();
    contest::count(true);
    let before = contest::held();
    match what.as_str() {
        "idle" => {
            agents.extend((0..many).map(|_| agent(&silent, &log)));
        }
        "suspended" => {
            for _ in 0..many {
                // Each begins with a script of its own, so that it stops at its first call.
                let agent = AgentBuilder::from_shared(Arc::new(Script::new(1))).tool(add);
                let agent =
                    agent.stream(false).require_approval("add").shared_log(Arc::clone(&log));
                let outcome = runtime.block_on(agent.build()?.run("add numbers"))?;
                assert_eq!(outcome.approvals.len(), 1, "a person has to decide");
            }
        }
        _ => {
            let agent = agent(&silent, &log);
            runtime.block_on(async {
                for _ in 0..many {
                    let agent = agent.clone();
                    runs.spawn(async move { agent.run("add numbers").await.is_ok() });
                }
                while waiting.0.load(Ordering::Relaxed) < many {
                    tokio::task::yield_now().await;
                }
            });
        }
    }
    let bytes_held = contest::held() - before;
    contest::say(&Round { bytes_held, ..Round::default() })?;
    drop((agents, runs));
    Ok(())
}
