//! Input that a server requests before it answers a call, either in a request or, since revision 2026-07-28, in a
//! result after which the call is sent again (multi-round-trip requests).
#![expect(deprecated, reason = "servers still ask for roots")]

use std::collections::BTreeMap;
use std::time::Duration;

use backstop_redact::Redactor;
use backstop_tool::{Given, ToolError};
use layer0::failure::Effect;
use layer0::{JsonText, read_value};
use rmcp::model::{
    DEFAULT_MRTR_MAX_ROUNDS, ElicitRequestParams, ElicitationAction, ListRootsResult, Root,
};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::progress::WatchedCall;
use crate::server::Settings;

/// Maximum number of rounds of input in one call.
pub(crate) const MAX_ROUNDS: usize = DEFAULT_MRTR_MAX_ROUNDS;
/// Maximum number of inputs in one round.
const MAX_INPUTS: usize = 16;
/// First pause before a call is sent again after a round without inputs; it doubles with each round, up to
/// [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum pause.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// The number of rounds of input in a call, and the data for the next request.
#[derive(Debug, Default)]
pub(crate) struct Round {
    count: usize,
    /// Number of consecutive last rounds without inputs.
    idle: u32,
    responses: Option<BTreeMap<String, JsonText>>,
    state: Option<String>,
}

/// The answer of a person to an elicitation.
pub(crate) enum Elicited {
    Declined,
    Given(JsonText),
}

/// [`Elicited`] as a response.
#[derive(Serialize)]
struct ElicitResponse {
    action: ElicitationAction,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<JsonText>,
}

/// The inputs that a server requests in one round, and the state that it wants back.
struct InputRound {
    inputs: Vec<(String, RequestedInput)>,
    state: Option<String>,
}

enum RequestedInput {
    Elicitation(ElicitRequestParams),
    Roots,
}

impl Round {
    /// Returns the state that the server wants back.
    pub(crate) fn state(&self) -> Option<String> {
        self.state.clone()
    }

    /// Returns the responses to the requested inputs.
    pub(crate) fn responses(&self) -> Option<BTreeMap<String, JsonText>> {
        self.responses.clone()
    }

    /// Collects the requested inputs, and returns the next round.
    ///
    /// A server that requests input has not acted, so failures here have no effect.
    pub(crate) async fn next(
        self,
        asked: &RawValue,
        call: &WatchedCall,
        settings: &Settings,
    ) -> Result<Self, ToolError> {
        let failed = |why| ToolError::ExecutionFailed(why).with_effect(Effect::None);
        if self.count >= MAX_ROUNDS {
            return Err(failed(format!(
                "the server asked for input {MAX_ROUNDS} times, and asks again"
            )));
        }
        let InputRound { inputs, state } = read(asked, &settings.secrets.redactor())?;
        let idle = if inputs.is_empty() { self.idle + 1 } else { 0 };
        if inputs.is_empty() {
            let pause = PAUSE.saturating_mul(1 << self.idle.min(8));
            settings.clock.sleep(pause.min(MAX_PAUSE)).await;
        }
        let mut responses = BTreeMap::new();
        for (key, input) in inputs {
            let response = match input {
                RequestedInput::Elicitation(request) => {
                    JsonText::from_value(&match elicit(call, request).await {
                        Elicited::Given(data) => ElicitResponse {
                            action: ElicitationAction::Accept,
                            content: Some(data),
                        },
                        Elicited::Declined => {
                            ElicitResponse { action: ElicitationAction::Decline, content: None }
                        }
                    })
                }
                RequestedInput::Roots => JsonText::from_value(&list_roots(&settings.roots)),
            };
            let response =
                response.map_err(|error| failed(format!("the input is no JSON: {error}")))?;
            responses.insert(key, response);
        }
        let responses = (!responses.is_empty()).then_some(responses);
        Ok(Self { count: self.count + 1, idle, responses, state })
    }
}

/// Returns the roots in the format of the protocol.
pub(crate) fn list_roots(roots: &[String]) -> ListRootsResult {
    ListRootsResult::new(roots.iter().map(Root::new).collect())
}

/// Asks a person for the data that a server requests during a call. Declines if there is no person to ask, or if the
/// data has to be entered elsewhere, at a URL.
pub(crate) async fn elicit(call: &WatchedCall, request: ElicitRequestParams) -> Elicited {
    let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = request
    else {
        return Elicited::Declined;
    };
    let schema = serde_json::to_value(&requested_schema);
    let Some((people, schema)) = call.people.as_ref().zip(schema.ok()) else {
        return Elicited::Declined;
    };
    let message = format!("{} asks: {message}", call.template.server);
    // A person takes longer than a server.
    match call.patience.while_waiting(people.ask(&message, schema.into())).await {
        Ok(Given::Data(data)) => Elicited::Given(data),
        _ => Elicited::Declined,
    }
}

/// Parses all requested inputs before a person is asked. The state is returned to the server unchanged; everything else
/// is redacted, because it is shown and recorded.
fn read(asked: &RawValue, redactor: &Redactor) -> Result<InputRound, ToolError> {
    let invalid = |why: &str| ToolError::InvalidOutput(why.to_owned()).with_effect(Effect::None);
    let mut asked = read_value(asked.get())
        .map_err(|_| invalid("the input that is asked for cannot be read"))?;
    let state = match asked["requestState"].take() {
        Value::Null => None,
        Value::String(state) => Some(state),
        _ => return Err(invalid("the state of the request is no text")),
    };
    let requests = asked["inputRequests"].take();
    let requests = redactor.redact_held_json(JsonText::from(requests)).value();
    let requests = match requests {
        Value::Null => Map::new(),
        Value::Object(requests) => requests,
        _ => return Err(invalid("the input that is asked for is no object")),
    };
    if requests.is_empty() && state.is_none() {
        return Err(invalid("the server asks for input, and does not say for what"));
    }
    if requests.len() > MAX_INPUTS {
        return Err(invalid(&format!("the server asks for more than {MAX_INPUTS} inputs at once")));
    }
    let inputs = requests.into_iter().map(|(key, request)| Ok((key, input(request)?)));
    Ok(InputRound { inputs: inputs.collect::<Result<_, ToolError>>()?, state })
}

fn input(mut request: Value) -> Result<RequestedInput, ToolError> {
    match request["method"].as_str().unwrap_or_default() {
        "elicitation/create" => {
            let read = serde_json::from_value(request["params"].take());
            read.map(RequestedInput::Elicitation).map_err(|error| {
                let why = format!("the input that is asked for cannot be read: {error}");
                ToolError::InvalidOutput(why).with_effect(Effect::None)
            })
        }
        "roots/list" => Ok(RequestedInput::Roots),
        "sampling/createMessage" => {
            // No response can decline sampling; a missing response would only be requested again.
            let why = "the server asks for sampling, which is declined";
            Err(ToolError::ExecutionFailed(why.to_owned()).with_effect(Effect::None))
        }
        _ => {
            let why = "the server asks for input of an unknown kind";
            Err(ToolError::ExecutionFailed(why.to_owned()).with_effect(Effect::None))
        }
    }
}
