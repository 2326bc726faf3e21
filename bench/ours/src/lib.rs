//! Backstop as a contestant. Each program in `bin` is one contest.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use backstop::layer0::message::{StopReason, ToolCall};
use backstop::layer0::usage::TokenUsage;
use backstop::provider::{ModelRequest, ModelResponse};
use backstop::{Provider, ProviderError, ToolError, tool};
use serde_json::json;

#[global_allocator]
static COUNTED: contest::Counted = contest::Counted;

/// Who contends.
pub const CONTESTANT: &str = concat!("backstop ", env!("CARGO_PKG_VERSION"));

/// Add two integers
#[tool]
pub async fn add(a: i64, b: i64) -> Result<i64, ToolError> {
    Ok(a + b)
}

/// A model in this process: asks for so many tool calls, one a turn, and then answers.
#[derive(Debug)]
pub struct Script {
    turns: usize,
    asked: AtomicUsize,
}

impl Script {
    /// Makes a model that calls `add` in so many turns, and begins anew after its answer.
    pub fn new(turns: usize) -> Self {
        Self { turns, asked: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl Provider for Script {
    fn name(&self) -> &str {
        "script"
    }

    fn model(&self) -> &str {
        "script"
    }

    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let turn = self.asked.fetch_add(1, Ordering::Relaxed) % (self.turns + 1);
        Ok(answer(
            (turn < self.turns).then(|| {
                ToolCall::new(format!("call_{turn}"), "add", json!({ "a": turn, "b": 1 }))
            }),
        ))
    }
}

/// Makes what a model says: a tool call, or its answer.
pub fn answer(call: Option<ToolCall>) -> ModelResponse {
    let calls = call.is_some();
    ModelResponse::new(
        if calls { "" } else { "done" },
        call.into_iter().collect(),
        if calls { StopReason::ToolUse } else { StopReason::End },
        Some(TokenUsage::new(10, 5)),
    )
}
