//! Requests of clients and their answers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::{
    InvalidStartKey, KeyBinding, StartDifference, StartKey, StartKeys, text_digest,
};
use backstop_orchestrator::new_run_id;
use backstop_redact::Redactor;
use layer0::code;
use layer0::id::RunId;
use layer0::operator::Task;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult,
    ErrorCode, Implementation, JsonObject, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use serde_json::Value;

use crate::answer;
use crate::call::RunCall;
use crate::key_locks::KeyLocks;
use crate::offer::Offer;
use crate::runs::LocalRuns;

/// Key in `_meta` that identifies a repeated call.
const KEY: &str = "backstop/idempotency-key";
/// Interval of progress notifications to a client that asks for them.
const PROGRESS: Duration = Duration::from_secs(5);
/// Time for which a cancelled run may end.
const CLOSING: Duration = Duration::from_secs(10);

/// Handler of the requests of clients; its clones share the runs.
#[derive(Clone)]
pub(crate) struct McpServerHandler(Arc<HandlerState>);

struct HandlerState {
    offers: Vec<Offer>,
    runs: LocalRuns,
    keys: Arc<dyn StartKeys>,
    /// Lock held while a key is bound and its run started, so that a call with the same key finds the run.
    starting: KeyLocks,
    answer_within: Duration,
    redactor: Redactor,
    clock: Arc<dyn Clock>,
}

/// The request of a call.
enum RequestedRun {
    Input(Value),
    Run(RunId),
}

impl McpServerHandler {
    pub(crate) fn new(
        offers: Vec<Offer>,
        runs: LocalRuns,
        keys: Arc<dyn StartKeys>,
        answer_within: Duration,
        redactor: Redactor,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let starting = KeyLocks::default();
        Self(Arc::new(HandlerState {
            offers,
            runs,
            keys,
            starting,
            answer_within,
            redactor,
            clock,
        }))
    }
}

impl ServerHandler for McpServerHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("backstop", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.0.offers.iter().map(Offer::tool).collect()))
    }

    /// A call whose parameters do not fit is read as a request of the client's own.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(match &*request.method {
            "tools/call" => ErrorData::invalid_params(
                "the parameters are `name`, and `arguments`, which is an object",
                None,
            ),
            _ => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None),
        })
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let shared = &self.0;
        let offer = shared.offers.iter().find(|offer| *offer.operator == *params.name);
        let Some(offer) = offer else {
            let known: Vec<&str> = shared.offers.iter().map(|offer| &*offer.operator).collect();
            let what = format!("unknown tool `{}`; tools: {}", params.name, known.join(", "));
            return Err(ErrorData::invalid_params(what, None));
        };
        let asked = match read_arguments(offer, params.arguments.as_ref()) {
            Ok(asked) => asked,
            Err(why) => return Ok(answer::render_refusal(code::INPUT_INVALID, why).into()),
        };
        let key = context.meta.get(KEY).cloned();
        let key = key.or_else(|| params.meta.as_ref().and_then(|meta| meta.get(KEY)).cloned());
        let (call, run) = match shared.call(offer, asked, key).await {
            Ok(found) => found,
            Err(refused) => return Ok((*refused).into()),
        };
        Ok(shared.wait(call, &run, &context).await.into())
    }
}

impl HandlerState {
    /// Starts a run, or finds the requested one.
    async fn call(
        &self,
        offer: &Offer,
        asked: RequestedRun,
        key: Option<Value>,
    ) -> Result<(RunCall, RunId), Box<CallToolResult>> {
        let refused = |code: &str, why: &str| Box::new(answer::render_refusal(code, why));
        let input = match asked {
            RequestedRun::Run(run) => {
                let found = self.runs.find(&offer.operator, &run).await;
                let why = format!("run `{run}` is not one of `{}`", offer.operator);
                let found = found.ok_or_else(|| refused(code::INPUT_INVALID, &why))?;
                return Ok((found, run));
            }
            RequestedRun::Input(input) => input,
        };
        let run = new_run_id(self.clock.now());
        let Some(key) = key else {
            return Ok((self.runs.start(&offer.operator, input, &run), run));
        };
        let task = Task::json(input.clone());
        // A key that is not text is handled like an empty one.
        let name = self.stored_key(key.as_str().unwrap_or_default());
        let key = StartKey::new(&*offer.operator, &*name, &task, None, &BTreeMap::new());
        let key = key.map_err(|error| {
            let why = match error {
                InvalidStartKey::Task(why) => format!("the input cannot be recorded: {why}"),
                _ => format!("`{KEY}` must be text of 1 to {} bytes", StartKey::MAX_BYTES),
            };
            refused(code::INPUT_INVALID, &why)
        })?;
        let _starting = self.starting.lock(&offer.operator, &name).await;
        // time of day: it is recorded with the key.
        match self.keys.bind(&key, &run, self.clock.now()).await {
            Ok(KeyBinding::New) => Ok((self.runs.start(&offer.operator, input, &run), run)),
            Ok(KeyBinding::Earlier(run)) => {
                // The process that bound the key may have died before it started the run.
                let found = self.runs.find_or_start(&offer.operator, &run, Some(input)).await;
                let why = format!("run `{run}` of this key was lost: it kept no record");
                Ok((found.ok_or_else(|| refused(code::INPUT_INVALID, &why))?, run))
            }
            Ok(KeyBinding::Queued(run)) => Err(Box::new(answer::render_queued(&run))),
            Ok(KeyBinding::Removed(run)) => {
                let why = format!("run `{run}` of this key was removed, and does not begin again");
                Err(refused(code::INPUT_INVALID, &why))
            }
            Ok(bound) => {
                let differs = match bound {
                    KeyBinding::Reused(differs) => differs,
                    // An unknown answer of the store starts nothing.
                    _ => StartDifference::default(),
                };
                let why = format!("a start with this key had {differs}");
                Err(refused(code::INPUT_KEY_REUSED, &why))
            }
            Err(error) => Err(Box::new(answer::not_noted(&error, &self.redactor))),
        }
    }

    /// Returns a key in its stored form: its digest if it contains a secret.
    fn stored_key<'k>(&self, key: &'k str) -> Cow<'k, str> {
        match *self.redactor.redact_held(key) == *key {
            true => Cow::Borrowed(key),
            false => Cow::Owned(format!("sha256:{}", text_digest(key))),
        }
    }

    /// Waits for a run as long as its client does.
    async fn wait(
        &self,
        mut call: RunCall,
        run: &RunId,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let start = self.clock.monotonic();
        let progress = context.meta.get_progress_token();
        let mut told = 0.0;
        loop {
            let waited = self.clock.monotonic().saturating_sub(start);
            let left = self.answer_within.saturating_sub(waited);
            let ended = tokio::select! {
                ended = call.end() => ended,
                () = context.ct.cancelled() => {
                    if !call.give_up() {
                        return answer::underway(run);
                    }
                    // The client no longer listens; the result of the run is in its record.
                    tokio::select! {
                        ended = call.end() => ended,
                        () = self.clock.sleep(CLOSING) => return answer::underway(run),
                    }
                }
                () = self.clock.sleep(left.min(PROGRESS)) => {
                    if left <= PROGRESS {
                        call.leave();
                        return answer::underway(run);
                    }
                    if let Some(token) = &progress {
                        told += 1.0;
                        let note = ProgressNotificationParam::new(token.clone(), told)
                            .with_message(format!("run {run} is at work"));
                        // A client that has disconnected is noticed by its connection.
                        let _ = context.peer.notify_progress(note).await;
                    }
                    continue;
                }
            };
            return answer::render_end(&ended, run, &self.redactor);
        }
    }
}

/// Reads the arguments of a call.
fn read_arguments(
    offer: &Offer,
    arguments: Option<&JsonObject>,
) -> Result<RequestedRun, &'static str> {
    let empty = JsonObject::new();
    let arguments = arguments.unwrap_or(&empty);
    if arguments.keys().any(|key| !matches!(key.as_str(), "input" | "run")) {
        return Err("the arguments are `input`, or `run`");
    }
    let given = |name| arguments.get(name).filter(|given| !given.is_null());
    let is_blank = |given: &Value| given.as_str().is_some_and(|text| text.trim().is_empty());
    let run = given("run").filter(|run| !is_blank(run));
    // The client may fill in one of them with blank text.
    let input = given("input").filter(|input| run.is_none() || !is_blank(input));
    let input = match (input, run) {
        (None, None) if offer.input_schema.is_some() => arguments.get("input"),
        _ => input,
    };
    match (input, run) {
        // If the operator declares another schema, the operator checks it.
        (Some(input), None) if offer.input_schema.is_none() && !input.is_string() => {
            Err("input must be a string")
        }
        (Some(input), None) => Ok(RequestedRun::Input(input.clone())),
        (None, Some(Value::String(run))) => Ok(RequestedRun::Run(RunId::new(run.trim()))),
        (None, Some(_)) => Err("run must be the id of a run"),
        (None, None) => Err("input is required, or run"),
        (Some(_), Some(_)) => Err("give `input` to start a run, or `run` to ask for one"),
    }
}
