//! The structs in payloads, with all their fields.

use std::sync::Arc;

use crate::code::Code;
use crate::event::shape::{Shape, Shaped};
use crate::event::{AgentRecord, Cause, DoneBefore, Follows, Hash, LostTail, ToolFailure};
use crate::failure::{Retry, RetryFacts};
use crate::id::{CallId, ErrorId, RunId};
use crate::json_text::JsonText;
use crate::message::{Image, ToolCall};
use crate::usage::{Allowance, BudgetIncrease, TokenUsage, Usage};

/// Declares the fields of structs. A missing field or one of another type does not compile.
macro_rules! nested {
    ($($name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {
        $(
            impl Shaped for $name {
                const SHAPE: Shape =
                    Shape::Object(&[$((stringify!($field), <$kind as Shaped>::SHAPE)),*]);
            }

            const _: fn($name) = |nested| {
                let $name { $($field),* } = nested;
                $(let _: $kind = $field;)*
            };
        )*
    };
}

nested! {
    AgentRecord { name: Arc<str>, digest: Arc<str>, definition: JsonText }
    Allowance {
        model_calls: Option<u32>,
        tool_calls: Option<u32>,
        input_tokens: Option<u64>,
        output_tokens: Option<u64>,
        total_tokens: Option<u64>,
        cost_nanousd: Option<u64>,
    }
    BudgetIncrease {
        max_model_calls: Option<u32>,
        max_tool_calls: Option<u32>,
        max_input_tokens: Option<u64>,
        max_output_tokens: Option<u64>,
        max_total_tokens: Option<u64>,
        max_cost_usd: Option<f64>,
        max_wall_ms: Option<u64>,
        max_events: Option<u64>,
        max_depth: Option<u32>,
    }
    Cause { subscription: Arc<str>, run: RunId, seq: u64, length: u32 }
    DoneBefore { run: RunId, call_id: CallId }
    Follows { run: RunId, seq: u64, digest: Hash, messages: u64 }
    Image { media_type: Arc<str>, data: Arc<str> }
    LostTail { seq: u64, hash: Hash }
    RetryFacts { retry: Retry, later: Retry }
    TokenUsage {
        input_tokens: u64,
        output_tokens: u64,
        cached_tokens: u64,
        cache_write_tokens: u64,
    }
    ToolCall { id: CallId, name: Arc<str>, arguments: JsonText }
    ToolFailure { reason: Code, code: Option<Arc<str>>, message: Arc<str>, error_id: Option<ErrorId> }
    Usage {
        model_calls: u32,
        model_attempts: u32,
        tool_calls: u32,
        input_tokens: u64,
        output_tokens: u64,
        total_tokens: u64,
        cached_tokens: u64,
        cost_usd: Option<f64>,
        wall_ms: u64,
        estimated: bool,
    }
}

// A word, or an object with the wait.
impl Shaped for Retry {
    const SHAPE: Shape = Shape::Any;
}
