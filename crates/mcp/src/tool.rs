//! A tool of a server.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use backstop_tool::{Arguments, NotShown, Tool, ToolContext, ToolError};
use layer0::error::EnvError;
use layer0::failure::{Effect, Failure};
use layer0::message::Image;
use layer0::{JsonText, ToolSpec};
use rmcp::model::{CallToolRequestParams, MetaObject, RequestMetaObject};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::connection::{CallPayload, Connection, FailedRequest, SessionState};
use crate::content::{self, CallResult};
use crate::fault::{FaultContext, McpFault};
use crate::input::Round;
use crate::listing::MadeTool;
use crate::progress::{CallProgress, Patience, WatchedCall};
use crate::upstream::McpServerState;

/// Maximum length of the server's text after the operation that the walls blocked, in characters.
const MAX_WORDS_CHARS: usize = 200;

/// A tool of an MCP server; see [`McpClient`](crate::McpClient).
pub(crate) struct McpTool {
    made: MadeTool,
    server: Arc<McpServerState>,
}

/// State of the requests that send one call.
#[derive(Debug, Default)]
struct SentCalls {
    /// Whether one of the requests may have acted.
    may_have_acted: bool,
    /// Whether the last request repeats another one. Each round of input may be repeated once.
    is_repeat: bool,
}

impl SentCalls {
    /// Records a repeated request.
    const fn repeat(&mut self, may_have_acted: bool) {
        self.may_have_acted |= may_have_acted;
        self.is_repeat = true;
    }

    /// Records an answer that requests input, which the next request carries.
    const fn begin_round(&mut self) {
        self.is_repeat = false;
    }
}

impl McpTool {
    pub(crate) const fn new(made: MadeTool, server: Arc<McpServerState>) -> Self {
        Self { made, server }
    }

    /// Calls the tool. Sends the call again, once per round, if the server died and the call may be repeated or was
    /// never sent.
    async fn run(
        &self,
        arguments: &Arguments,
        tree: &Map<String, Value>,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let settings = &self.server.settings;
        let MadeTool { spec, origin, .. } = &self.made;
        if !self.server.lists(origin) {
            return Err(ToolError::NotFound(spec.name.to_string()));
        }
        let patience =
            Patience::new(Arc::clone(&settings.clock), settings.timeout, settings.max_timeout);
        let watched = self.watch_call(&patience, context);
        let mut sent = SentCalls::default();
        let mut round = Round::default();
        let mut refused = None;
        loop {
            let connected = self.connect(&patience, sent.may_have_acted).await;
            let connection = match (connected, refused.take()) {
                (Ok(connection), _) => connection,
                // The server starts no other session, so its first refusal is more informative.
                (Err(_), Some(fault)) => {
                    return Err(self.convert_fault(fault, true, sent.may_have_acted));
                }
                (Err(error), None) => return Err(error),
            };
            // The timeout starts once the server is connected.
            patience.renew();
            let mut params = CallToolRequestParams::new(origin.to_string());
            // The transport makes headers of some arguments; the text is sent.
            params.arguments = Some(tree.clone());
            params.request_state = round.state();
            let said = CallPayload {
                arguments: arguments.text().clone(),
                input_responses: round.responses(),
            };
            let held_before = connection.blocked_operations().len();
            let answer = connection.call(params, said, meta(context), Arc::clone(&watched)).await;
            let FailedRequest { fault, left } = match answer {
                Ok(result) => {
                    self.server.has_worked(&connection);
                    let result = CallResult::parse(&result);
                    if let Some(asked) = result.asks_for_input() {
                        round =
                            self.collect_input(round, asked, &watched, sent.may_have_acted).await?;
                        sent.begin_round();
                        continue;
                    }
                    let show = |data: &str| self.show(data, context);
                    let output = result.read(spec, self.made.output.as_ref(), show);
                    let held = connection.blocked_operations().into_iter().nth(held_before);
                    return self.without_secrets(output.map_err(|error| by_walls(error, held)));
                }
                Err(failed) => failed,
            };
            let session = tokio::select! {
                session = connection.session_after(&fault, settings) => session,
                _ = patience.over() => SessionState::Known,
            };
            match &fault {
                fault if fault.ends_connection() || session != SessionState::Known => {
                    connection.close(&fault.to_string());
                }
                // The server answered, if only with an error.
                McpFault::Protocol { .. } | McpFault::Unreadable(_) => {
                    self.server.has_worked(&connection);
                }
                _ => {}
            }
            let is_lost = matches!(fault, McpFault::Lost(_) | McpFault::NotSent(_));
            let may_repeat = match session {
                SessionState::Forgotten { is_refused_before_run } => {
                    spec.idempotent || is_refused_before_run
                }
                SessionState::Known => is_lost && (spec.idempotent || !left),
            };
            if sent.is_repeat || !may_repeat {
                let held = connection.blocked_operations().into_iter().nth(held_before);
                return Err(by_walls(self.convert_fault(fault, left, sent.may_have_acted), held));
            }
            let is_unrun = session == SessionState::Forgotten { is_refused_before_run: true };
            sent.repeat(left && !is_unrun);
            refused = (session != SessionState::Known).then_some(fault);
        }
    }

    /// Shows an image of the server, unless it contains one of the server's secrets.
    fn show(&self, data: &str, context: &ToolContext) -> Result<(), NotShown> {
        let image = Image::from_base64(data)?;
        let redactor = self.server.settings.secrets.redactor();
        if redactor.holds_secrets() {
            let bytes = image.bytes().unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            if redactor.redact_held(&text) != text {
                return Err(NotShown::HoldsSecret);
            }
        }
        context.show_image(image)
    }

    /// Collects the input that the server requests, within the time limit of the call.
    async fn collect_input(
        &self,
        round: Round,
        asked: &RawValue,
        watched: &WatchedCall,
        may_have_acted: bool,
    ) -> Result<Round, ToolError> {
        let settings = &self.server.settings;
        let next = tokio::select! {
            biased;
            next = round.next(asked, watched, settings) => next,
            after = watched.patience.over() => {
                return Err(self.convert_fault(McpFault::TimedOut(after), false, may_have_acted));
            }
        };
        next.map_err(|error| {
            let error = self.error_without_secrets(error);
            if may_have_acted { error.with_effect(Effect::Unknown) } else { error }
        })
    }

    /// Removes the server's secrets from an output or an error.
    fn without_secrets(&self, output: Result<JsonText, ToolError>) -> Result<JsonText, ToolError> {
        let redactor = self.server.settings.secrets.redactor();
        if !redactor.holds_secrets() {
            return output;
        }
        output
            .map(|output| output.map_strings(&mut |text| redactor.redact_held(text)))
            .map_err(|error| self.error_without_secrets(error))
    }

    fn error_without_secrets(&self, error: ToolError) -> ToolError {
        let redactor = self.server.settings.secrets.redactor();
        content::map_text(error, |text| redactor.redact_held(text).into())
    }

    /// Returns a connection, within the time limit of the call.
    async fn connect(
        &self,
        patience: &Patience,
        may_have_acted: bool,
    ) -> Result<Arc<Connection>, ToolError> {
        let connection = tokio::select! {
            connection = self.server.connection() => connection,
            after = patience.over() => {
                return Err(self.convert_fault(McpFault::TimedOut(after), may_have_acted, may_have_acted));
            }
        };
        connection.map_err(|down| {
            let effect = if may_have_acted { Effect::Unknown } else { Effect::None };
            let why = self.server.settings.secrets.redact(&down.why);
            let error = ToolError::Unavailable(why).with_effect(effect).with_retry(down.retry);
            match down.status {
                Some(status) => error.with_code(status.to_string()),
                None => error,
            }
        })
    }

    /// Returns the call's progress template, its time limit and the person to ask.
    fn watch_call(&self, patience: &Arc<Patience>, context: &ToolContext) -> Arc<WatchedCall> {
        let settings = &self.server.settings;
        Arc::new(WatchedCall {
            patience: Arc::clone(patience),
            template: CallProgress {
                server: settings.name.clone(),
                tool: self.made.spec.name.to_string(),
                call_id: context.call_id.clone(),
                progress: 0.0,
                total: None,
                message: None,
            },
            on_progress: settings.on_progress.clone(),
            people: context.people.clone(),
        })
    }

    /// Returns the failure of the call; `acted` means that an earlier request may have acted.
    fn convert_fault(&self, fault: McpFault, left: bool, acted: bool) -> ToolError {
        let settings = &self.server.settings;
        let called = FaultContext { server: &settings.name, tool: &self.made.spec, left };
        let error = fault.redact(&settings.secrets.redactor()).into_error(called);
        match acted && error.effect() == Effect::None {
            true => error.with_effect(Effect::Unknown),
            false => error,
        }
    }
}

/// Adds the operation that the walls blocked during the call to a failure, followed by the first line of the server's
/// text. Concurrent calls cannot be distinguished.
fn by_walls(error: ToolError, held: Option<EnvError>) -> ToolError {
    let (Some(held), ToolError::ExecutionFailed(said)) = (held, error.kind()) else { return error };
    let (said, effect) = (said.clone(), error.effect());
    let words = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let words: String = words.chars().take(MAX_WORDS_CHARS).collect();
    let what = format!("{} ({words})", held.what());
    let held = match held {
        EnvError::NetworkDenied(_) => EnvError::NetworkDenied(what),
        EnvError::ResourceExceeded(_) => EnvError::ResourceExceeded(what),
        EnvError::IsolationViolation(_) => EnvError::IsolationViolation(what),
        other => other,
    };
    ToolError::from(held).with_effect(effect).with_output(said)
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.made.spec
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let Value::Object(tree) = arguments.value() else {
            return Err(ToolError::InvalidInput("arguments must be a JSON object".to_owned()));
        };
        tokio::select! {
            biased;
            result = self.run(arguments, tree, context) => result,
            () = context.cancellation.cancelled() => Err(ToolError::Cancelled),
        }
    }
}

impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTool").field("name", &self.made.spec.name).finish_non_exhaustive()
    }
}

/// Returns the metadata that is sent with the arguments.
fn meta(context: &ToolContext) -> RequestMetaObject {
    let mut meta = MetaObject::default();
    meta.0.insert("backstop/idempotency-key".to_owned(), context.idempotency_key.clone().into());
    if let Some(parent) = &context.trace_parent {
        meta.0.insert("traceparent".to_owned(), (**parent).into());
    }
    RequestMetaObject(meta)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: Q2. A later request that never left says nothing of an earlier one.
    #[test]
    fn lost_request_counts_over_rounds_of_input() {
        let mut sent = SentCalls::default();
        sent.repeat(true);
        sent.begin_round();
        assert!(!sent.is_repeat, "the round may be repeated too");
        sent.repeat(false);
        assert!(sent.may_have_acted && sent.is_repeat);
    }
}
