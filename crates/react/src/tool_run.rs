//! From an execution the machine asked for to the facts it came to.

use std::sync::Arc;
use std::time::Duration;

use error_store::DATABASE_ERROR;
use layer0::code;
use layer0::event::{EventKind, ToolResponded};
use layer0::id::{RunId, SessionId};
use react_machine::{Input, ToolRun};
use tool::{Admitted, ToolContext, failed_text};
use tracing::Instrument;

use crate::agent::Inner;
use crate::driver::failing;
use crate::failing::is_stored;
use crate::redacting::redact_value;
use crate::running::execute;

/// Runs one tool and turns what it came to into facts.
pub(crate) async fn run_tool(
    agent: Arc<Inner>,
    run_id: RunId,
    session: SessionId,
    run: ToolRun,
    admitted: Admitted,
) -> Vec<Input> {
    let began = agent.clock.now();
    let limit = admitted
        .tool()
        .spec()
        .timeout
        .unwrap_or(Duration::from_millis(agent.definition.limits.tool_timeout_ms));
    let stores = admitted.tool().stores_errors();
    let context =
        ToolContext::new(run_id.clone(), session.clone(), run.call_id.clone(), began.after(limit));
    let span = tracing::info_span!("tool", tool = %run.tool, call = %run.call_id);
    let result = execute(admitted, context, limit, &agent.clock).instrument(span).await;
    let took = agent.clock.now().since(began).as_millis();
    let duration_ms = u64::try_from(took).unwrap_or(u64::MAX);
    let failing = failing(&agent, &run_id, &session, &run.call_id, &run.tool, duration_ms);
    let facts = match result {
        Ok(output) => vec![
            ToolResponded {
                call_id: run.call_id.clone(),
                tool: Arc::clone(&run.tool),
                ok: true,
                output: redact_value(&agent.redactor, output),
                duration_ms,
                error: None,
            }
            .into(),
        ],
        Err(error) if stores && is_stored(&error) => {
            failing.store_and_respond(&error, agent.errors.as_deref()).await
        }
        Err(error) => {
            let answer = failing.respond(&error, &failed_text(&run.tool, &error));
            let unread = error.author_code().is_some_and(|code| &**code == DATABASE_ERROR);
            if stores || !unread {
                vec![answer]
            } else {
                vec![failing.degraded("get", code::STORE_FAILED, &error.kind().to_string()), answer]
            }
        }
    };
    let now = agent.clock.now();
    let input = |fact: EventKind| match fact {
        answer @ EventKind::ToolResponded(_) => Input::answer(now, run.id, answer),
        note => Input::fact(now, note),
    };
    facts.into_iter().map(input).collect()
}
