//! Tools that fail at length, with an error store and without.
//!
//! `failures none|memory|sqlite FAILURES`

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use backstop::layer0::message::{Message, ToolCall};
use backstop::provider::{ModelRequest, ModelResponse};
use backstop::{
    Agent, Budget, Database, Durability, Limits, MemoryErrorStore, Provider, ProviderError,
    ToolError, tool,
};
use contest::Round;
use contestant_backstop::{CONTESTANT, answer};
use serde_json::json;

/// Turns of a run.
const TURNS: usize = 100;
/// How long an error is.
const CHARS: usize = 3_000;

/// Query the database
#[tool]
async fn sql(statement: i64) -> Result<String, ToolError> {
    let line = format!("ERROR 1054 (42S22): unknown column 'total' in statement {statement}\n");
    Err(ToolError::ExecutionFailed(line.repeat(CHARS / line.len() + 1)[..CHARS].into()))
}

/// Asks for statement after statement, and counts what it reads of them.
#[derive(Default)]
struct Asking {
    asked: AtomicUsize,
    chars_read: Arc<AtomicUsize>,
}

#[async_trait]
impl Provider for Asking {
    fn name(&self) -> &str {
        "script"
    }

    fn model(&self) -> &str {
        "script"
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        if let Some(Message::Tool { content, .. }) =
            request.messages.messages().last().map(|it| &**it)
        {
            self.chars_read.fetch_add(content.chars().count(), Ordering::Relaxed);
        }
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(answer(
            (asked % (TURNS + 1) < TURNS).then(|| {
                ToolCall::new(format!("call_{asked}"), "sql", json!({ "statement": asked }))
            }),
        ))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let store = arguments.next().ok_or("which store?")?;
    let failures: usize = arguments.next().ok_or("how many failures?")?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let model = Asking::default();
    let chars_read = Arc::clone(&model.chars_read);
    let most = Some(TURNS as u32 + 10);
    let limits = Limits::new()
        .max_iterations(TURNS as u32 + 10)
        .max_repeated_failures(None)
        .max_stagnation_steps(None);
    let budget = Budget::new().model_calls(most).tool_calls(most).events(None);
    let agent = Agent::builder(model).tool(sql).stream(false).limits(limits).budget(budget);
    let folder = std::env::temp_dir().join(format!("backstop-failures-{}", std::process::id()));
    let database = match store.as_str() {
        "sqlite" => {
            std::fs::create_dir_all(&folder)?;
            let path = folder.join("bench.db");
            Some(runtime.block_on(Database::open(path, Durability::Normal))?)
        }
        _ => None,
    };
    let agent = match (&database, store.as_str()) {
        (Some(database), _) => agent.error_store(database.errors()),
        (None, "memory") => agent.error_store(MemoryErrorStore::new()),
        _ => agent,
    };
    let agent = agent.build()?;
    let runs = (failures / TURNS).max(1);
    let round = || {
        for _ in 0..runs {
            let outcome = runtime.block_on(agent.run("look")).expect("a failing tool fails no run");
            assert_eq!(outcome.text(), "done");
        }
    };
    // What the model reads does not depend on the machine.
    chars_read.store(0, Ordering::Relaxed);
    round();
    let read = chars_read.load(Ordering::Relaxed) / (runs * TURNS);
    contest::serve_rounds(&format!("{CONTESTANT}; {read}"), || {
        let before = stored(&folder);
        let took = contest::measured(round);
        Round { bytes_stored: stored(&folder).saturating_sub(before), ..took }
    })?;
    if let Some(database) = database {
        runtime.block_on(database.close());
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// Returns how many bytes the database has, but for its journal, which is a copy.
fn stored(folder: &Path) -> u64 {
    std::fs::metadata(folder.join("bench.db")).map_or(0, |file| file.len())
}
