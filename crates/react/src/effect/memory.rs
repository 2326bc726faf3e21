//! Reads and writes of the memory: bounded, guarded, with events as results.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use layer0::error::BoxError;
use layer0::event::{EventKind, MemoryDegraded, MemoryRead, MemoryWrote};
use layer0::failure::{Chain, Seconds};
use layer0::{code, text};

use super::effects::Effects;
use crate::effect::guarded::drop_guarded;
use crate::effect::kept_text::{FailureSource, keep_text};
use crate::hook::HookContext;
use crate::journal::{PendingEvent, StepEnd};
use crate::memory::{Memory, MemoryEntry, MemoryQuery};

/// Returns the memory's entries for this input.
pub(super) async fn read(effects: &Effects, input: Arc<str>) -> StepEnd {
    let session = effects.context.session.clone();
    let asked = ask(effects, code::MEMORY_READ_FAILED, move |memory| async move {
        memory.read(MemoryQuery::new(session, input)).await
    });
    let redactor = &effects.agent.redactor;
    StepEnd::Memory(Box::new(PendingEvent(match asked.await {
        Ok(entries) => {
            let redact = |entry: String| redactor.redact_held(&entry).into();
            MemoryRead::new(entries.into_iter().map(redact).collect()).into()
        }
        Err((reason, why)) => {
            tracing::warn!(code = reason, "Memory read failed: {why}");
            build_degraded("read", reason, &why)
        }
    })))
}

/// Writes the answer to this input into the memory.
pub(super) async fn write(effects: &Effects, input: Arc<str>, output: Arc<str>) -> StepEnd {
    let HookContext { run, session } = effects.context.clone();
    let asked = ask(effects, code::MEMORY_WRITE_FAILED, move |memory| async move {
        memory.write(MemoryEntry::new(session, run, input, output)).await
    });
    StepEnd::Memory(Box::new(PendingEvent(match asked.await {
        Ok(()) => MemoryWrote::new(1).into(),
        Err((reason, why)) => {
            tracing::warn!(code = reason, "Memory write failed: {why}");
            build_degraded("write", reason, &why)
        }
    })))
}

/// Calls the memory, whose code may panic even before it returns a future.
async fn ask<T, F: Future<Output = Result<T, BoxError>> + Send>(
    effects: &Effects,
    failed: &'static str,
    ask: impl FnOnce(Arc<dyn Memory>) -> F + Send,
) -> Result<T, (&'static str, String)> {
    let agent = &effects.agent;
    let Some(memory) = agent.memory.clone() else {
        return Err((failed, "this agent has no memory".to_owned()));
    };
    let limit = Duration::from_millis(agent.definition.limits.memory_timeout_ms);
    let began = agent.clock.monotonic();
    let asked = AssertUnwindSafe(async {
        // An error that cannot be printed counts as a panic.
        ask(memory).await.map_err(|error| Chain(&*error).to_string())
    });
    let answered = select(Box::pin(asked.catch_unwind()), agent.clock.sleep(limit)).await;
    let late = format!("no answer within {}", Seconds(limit));
    let (reason, why) = match answered {
        // Code that blocks its thread delays its own timeout.
        Either::Left(_) if agent.clock.monotonic().saturating_sub(began) > limit => {
            (code::MEMORY_TIMEOUT, late)
        }
        Either::Left((Ok(Ok(answer)), _)) => return Ok(answer),
        Either::Left((Ok(Err(why)), _)) => (failed, why),
        Either::Left((Err(panic), _)) => (code::MEMORY_PANICKED, text::panic_message(panic)),
        Either::Right(((), asked)) => {
            drop_guarded(asked);
            (code::MEMORY_TIMEOUT, late)
        }
    };
    let source = FailureSource { name: "memory", call_id: None, code: reason };
    Err((reason, keep_text(agent, &effects.context, source, &why).await))
}

fn build_degraded(operation: &str, reason: &'static str, why: &str) -> EventKind {
    MemoryDegraded::new(operation, reason, format!("Memory unavailable: {why}")).into()
}
