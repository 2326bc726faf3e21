//! What is known of the requests of a connection that `rmcp` does not tell.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage,
};
use serde_json::{Value, json};

use crate::fault::Fault;

/// How long a server may take to say that it does not know the current revision, half of what its initialisation
/// may take: some of earlier ones say nothing.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// What a result is wrapped in that is read as it was written; see [`Wire::unread`].
const RAW: &str = "backstop/raw";

/// The requests that are on their way, and why the connection ended.
///
/// `rmcp` says of an answer that never comes only that the transport closed, and of a server that is
/// gone nothing at all until the next request. The transports note here what they saw.
#[derive(Debug, Default)]
pub(crate) struct Wire(Mutex<WireState>);

#[derive(Debug, Default)]
struct WireState {
    requests: HashMap<RequestId, Sent>,
    /// Why nothing can be sent any more.
    closed: Option<String>,
}

/// What became of a request.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    is_call: bool,
    /// Does it ask for what only servers of the current revision know?
    is_probe: bool,
    /// May the server have it?
    pub(crate) left: bool,
    is_answered: bool,
    /// Why there is no answer.
    pub(crate) fault: Option<Fault>,
}

impl Wire {
    /// Notes a request that is about to be sent.
    pub(crate) fn begin(&self, message: &ClientJsonRpcMessage) -> Option<RequestId> {
        let ClientJsonRpcMessage::Request(request) = message else { return None };
        let is_call = matches!(request.request, ClientRequest::CallToolRequest(_));
        let is_probe = is_probe(&request.request);
        let sent = Sent { is_call, is_probe, ..Sent::default() };
        self.state().requests.insert(request.id.clone(), sent);
        Some(request.id.clone())
    }

    /// Notes that the server may have the request from now on.
    pub(crate) fn left(&self, id: &RequestId) {
        self.change(id, |sent| sent.left = true);
    }

    /// Notes that the server cannot have the request.
    pub(crate) fn never_left(&self, id: &RequestId) {
        self.change(id, |sent| sent.left = false);
    }

    /// Notes why a request gets no answer; the first reason stays.
    pub(crate) fn fail(&self, id: &RequestId, fault: Fault) {
        self.change(id, |sent| {
            sent.fault.get_or_insert(fault);
        });
    }

    /// Notes why none of those that wait gets an answer, and returns them.
    pub(crate) fn fail_all(&self, fault: &Fault) -> Vec<RequestId> {
        let mut state = self.state();
        let waiting = state.requests.iter_mut().filter(|(_, sent)| !sent.is_answered);
        waiting
            .map(|(id, sent)| {
                sent.is_answered = true;
                sent.fault.get_or_insert_with(|| fault.clone());
                id.clone()
            })
            .collect()
    }

    /// Forgets a request, and returns what became of it. One that no transport saw never left.
    pub(crate) fn end(&self, id: &RequestId) -> Sent {
        self.state().requests.remove(id).unwrap_or_default()
    }

    /// May the server have the request?
    pub(crate) fn has_left(&self, id: Option<&RequestId>) -> bool {
        let state = self.state();
        id.and_then(|id| state.requests.get(id)).is_some_and(|sent| sent.left)
    }

    /// Is a call of a tool on its way?
    pub(crate) fn has_calls(&self) -> bool {
        self.state().requests.values().any(|sent| sent.is_call && !sent.is_answered)
    }

    /// Notes why nothing can be sent any more; the first reason stays.
    pub(crate) fn close(&self, why: impl Into<String>) {
        self.state().closed.get_or_insert_with(|| why.into());
    }

    /// Returns why nothing can be sent any more.
    pub(crate) fn closed(&self) -> Option<String> {
        self.state().closed.clone()
    }

    /// Reads a message of the server. `None` for the answer to a request that does not wait, and for what is
    /// no message.
    pub(crate) fn read(&self, message: Value) -> Option<ServerJsonRpcMessage> {
        let message = self.unread(message)?;
        serde_json::from_value(message).ok()
    }

    /// Keeps the result of a call from being read by `rmcp`, which takes it for the first of its twenty
    /// kinds of result that fits, and loses what that has no room for. [`raw`] gives it back.
    pub(crate) fn unread(&self, mut message: Value) -> Option<Value> {
        let is_answer = message.get("method").is_none()
            && (message.get("result").is_some() || message.get("error").is_some());
        if !is_answer {
            return message.is_object().then_some(message);
        }
        let id = serde_json::from_value(message.get("id")?.clone()).ok()?;
        let mut state = self.state();
        let id = match &id {
            RequestId::String(text) if !state.requests.contains_key(&id) => {
                RequestId::Number(text.parse().ok()?)
            }
            _ => id,
        };
        let sent = state.requests.get_mut(&id).filter(|sent| !sent.is_answered)?;
        sent.is_answered = true;
        message["jsonrpc"] = "2.0".into();
        message["id"] = id.into_json_value();
        if sent.is_probe && message["result"]["supportedVersions"].is_null() {
            // Some servers of earlier revisions answer what they do not know with an empty result.
            message["error"] = json!({"code": -32601, "message": "the answer names no revision"});
        }
        if message.get("error").is_some_and(|error| !error.is_null()) {
            if let Some(fields) = message.as_object_mut() {
                fields.remove("result");
            }
            message["error"] = error(&message["error"]);
        } else if sent.is_call {
            message["result"] = json!({ RAW: message["result"].take() });
        }
        Some(message)
    }

    /// Answers a request in place of a server that does not: it does not know what was asked.
    pub(crate) fn unknown(&self, id: &RequestId) -> ServerJsonRpcMessage {
        self.change(id, |sent| sent.is_answered = true);
        let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no answer", None);
        ServerJsonRpcMessage::error(error, Some(id.clone()))
    }

    fn change(&self, id: &RequestId, change: impl FnOnce(&mut Sent)) {
        if let Some(sent) = self.state().requests.get_mut(id) {
            change(sent);
        }
    }

    fn state(&self) -> MutexGuard<'_, WireState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does a request ask for what only servers of the current revision know?
pub(crate) const fn is_probe(request: &ClientRequest) -> bool {
    matches!(request, ClientRequest::DiscoverRequest(_))
}

/// Returns the result of a call as the server wrote it.
pub(crate) fn raw(result: &mut Value) -> Option<Value> {
    result.get_mut(RAW).map(Value::take)
}

/// Makes an error of JSON-RPC of what stands in its place.
fn error(written: &Value) -> Value {
    let code = written["code"].as_i64().and_then(|code| i32::try_from(code).ok());
    let message = written["message"].as_str().map_or_else(|| written.to_string(), str::to_owned);
    json!({ "code": code.unwrap_or(-32603), "message": message })
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolRequest, CallToolRequestParams, CustomResult, ServerResult};

    use super::*;

    fn waiting() -> Wire {
        let wire = Wire::default();
        let request = CallToolRequest::new(CallToolRequestParams::new("x"));
        let request = ClientRequest::CallToolRequest(request);
        wire.begin(&ClientJsonRpcMessage::request(request, RequestId::Number(7)));
        wire
    }

    /// Spec: Q2
    #[test]
    fn a_result_of_a_call_is_kept_whole() {
        for result in [
            json!({"content": [{"type": "hologram", "data": 1}], "resultType": "complete"}),
            json!({"content": "text", "tools": []}),
            json!({}),
            json!(null),
        ] {
            let message = json!({"jsonrpc": "2.0", "id": "7", "result": result});
            let read = waiting().read(message).unwrap();
            let ServerJsonRpcMessage::Response(response) = read else { panic!("{read:?}") };
            assert_eq!(response.id, RequestId::Number(7));
            let ServerResult::CustomResult(CustomResult(mut kept)) = response.result else {
                panic!("{result} was read")
            };
            assert_eq!(raw(&mut kept), Some(result));
        }
    }

    /// Spec: Q2
    #[test]
    fn an_answer_to_nothing_is_no_message() {
        let wire = waiting();
        assert!(wire.read(json!({"jsonrpc": "2.0", "id": 8, "result": {}})).is_none());
        assert!(wire.read(json!({"jsonrpc": "2.0", "id": null, "error": {}})).is_none());
        assert!(wire.read(json!({"jsonrpc": "2.0", "id": 7, "result": {}})).is_some());
        assert!(wire.read(json!({"jsonrpc": "2.0", "id": 7, "result": {}})).is_none());
        assert!(wire.read(json!("hello")).is_none());
    }
}
