//! Calls with the original text of their arguments and input.

use std::collections::BTreeMap;

use layer0::JsonText;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use serde::Serialize;
use serde_json::{Map, Value};

/// Arguments of the model and input of people for a call. They accompany the request to its transport, because the
/// trees that `rmcp` holds have lost the text of their numbers.
#[derive(Debug, Clone)]
pub(crate) struct CallPayload {
    pub(crate) arguments: JsonText,
    pub(crate) input_responses: Option<BTreeMap<String, JsonText>>,
}

/// A call as it is written.
#[derive(Serialize)]
struct WrittenCall<'a> {
    params: WrittenParams<'a>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenParams<'a> {
    arguments: &'a JsonText,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_responses: Option<&'a BTreeMap<String, JsonText>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Writes a message.
pub(super) fn write_message(message: &ClientJsonRpcMessage) -> Result<Vec<u8>, serde_json::Error> {
    let Some(CallPayload { arguments, input_responses }) = find_payload(message) else {
        return serde_json::to_vec(message);
    };
    let Value::Object(mut rest) = serde_json::to_value(message)? else {
        return serde_json::to_vec(message);
    };
    let mut params = match rest.remove("params") {
        Some(Value::Object(params)) => params,
        _ => Map::new(),
    };
    params.remove("arguments");
    let input_responses = input_responses.as_ref();
    let params = WrittenParams { arguments, input_responses, rest: params };
    serde_json::to_vec(&WrittenCall { params, rest })
}

fn find_payload(message: &ClientJsonRpcMessage) -> Option<&CallPayload> {
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    let ClientRequest::CallToolRequest(call) = &request.request else { return None };
    call.extensions.get()
}
