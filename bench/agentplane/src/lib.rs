//! agentplane as a contestant: its agent that calls tools, with a model in this process, and its journal.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use agentplane::manifest::{
    Budgets, Execution, ExecutionKind, Manifest, ManifestError, ModelRef, ToolGrant,
};
use agentplane::model::{Completion, ModelError, ModelProvider, Request, ToolCall, Usage};
use agentplane::prelude::*;
use agentplane::runtime::Agent;
use agentplane::tools::ToolFailure;
use serde_json::{Value, json};

#[global_allocator]
static COUNTED: contest::Counted = contest::Counted;

/// Who contends.
pub const CONTESTANT: &str = "agentplane 0.57.0";

/// What the agent is asked for.
pub const ADDS: &str = "bench.add";

/// Add two integers
#[derive(Debug, serde::Deserialize, agentplane::schemars::JsonSchema)]
#[schemars(crate = "agentplane::schemars")]
struct Add {
    a: i64,
    b: i64,
}

#[async_trait]
impl Tool for Add {
    const SERVER: &'static str = "math";
    const NAME: &'static str = "add";

    fn mutates() -> bool {
        false
    }

    async fn call(self) -> Result<Value, ToolFailure> {
        Ok(json!(self.a + self.b))
    }
}

/// A model in this process: asks for so many tool calls, one a turn, and then answers; after its answer
/// it begins anew.
#[derive(Debug)]
struct Script {
    turns: usize,
    asked: AtomicUsize,
}

#[async_trait]
impl ModelProvider for Script {
    fn gen_ai_provider(&self) -> Option<&str> {
        None
    }

    async fn complete(&self, _: Request<'_>) -> Result<Completion, ModelError> {
        let turn = self.asked.fetch_add(1, Relaxed) % (self.turns + 1);
        let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
        let said = Completion { usage, ..Completion::default() };
        Ok(if turn < self.turns {
            let call = ToolCall {
                id: format!("call_{turn}"),
                name: "math__add".to_owned(),
                arguments: json!({ "a": turn, "b": 1 }),
            };
            Completion { tool_calls: vec![call], stop_reason: Some("tool_use".to_owned()), ..said }
        } else {
            Completion { text: "done".to_owned(), stop_reason: Some("end_turn".to_owned()), ..said }
        })
    }
}

/// Opens a journal in a file, each of whose commits is synced; or one in memory, where there is no path.
///
/// # Errors
///
/// When the file cannot be written.
pub fn journal(path: Option<&Path>) -> Result<Arc<RedbStore>, agentplane::core::StoreError> {
    path.map_or_else(RedbStore::open_in_memory, RedbStore::open).map(Arc::new)
}

/// Makes a plane with an agent whose model calls `add` in so many turns and then answers.
///
/// # Errors
///
/// When what the agent declares is refused.
pub fn scripted(turns: usize, journal: Arc<RedbStore>) -> Result<Arc<Runtime>, ManifestError> {
    // Above what the run needs: the budgets count, and do not end it.
    let most = turns + 10;
    let manifest = Manifest::builder("adder", "1.0.0")
        .provides(ADDS)
        .privileged_model(ModelRef::new("script", "script"))
        .egress_ceiling(Sensitivity::Internal)
        .tool(ToolGrant {
            description: Some("Add two integers".to_owned()),
            mutates: false,
            max_sensitivity: Some(Sensitivity::Internal),
            ..ToolGrant::new("tool://math/add")
        })
        .budgets(Budgets {
            max_effects: Some(most * 10),
            max_tokens: Some(most as u64 * 100),
            ..Budgets::default()
        })
        .configure(|spec| {
            let max_turns = u32::try_from(most).ok();
            spec.execution = Some(Execution { kind: ExecutionKind::ToolCalling, max_turns });
        })
        .build()?;
    let model: Arc<dyn ModelProvider> = Arc::new(Script { turns, asked: AtomicUsize::new(0) });
    Ok(Runtime::builder_on(journal)
        .provider("script", model)
        .agent(Agent::new(&manifest))
        .toolbox(ToolBox::new().with::<Add>())
        .build())
}
