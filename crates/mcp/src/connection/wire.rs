//! State of a connection's requests that `rmcp` does not report.

mod written;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use layer0::read_value;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage,
};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

pub(crate) use self::written::{messages, only_answer};
use self::written::{names_revisions, read_error, readable_tools};
use crate::fault::McpFault;
use crate::secrets::Secrets;

/// Maximum time for a server to answer that it does not know the current revision, at most half of its start's time
/// limit: some servers of earlier revisions do not answer.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of dropped calls that are remembered: a server's request without a call may belong to one of them.
const MAX_GIVEN_UP: usize = 1_000;
/// Maximum length of the shown part of an answer that is no message, in characters.
pub(crate) const SHOWN_CHARS: usize = 300;
/// Replacement of a result that is kept as it was written; see [`Wire::unread`].
const KEPT: &str = "backstop/kept";

/// The pending requests, and the reason that the connection ended.
///
/// For an answer that never comes, `rmcp` reports only that the transport closed; for a lost server it reports nothing
/// until the next request. The transports record here what they observed.
///
/// `rmcp` receives no message that contains a secret: it logs the messages that it reads, and their contents are shown
/// and recorded. Results of calls are read without it.
#[derive(Debug)]
pub(crate) struct Wire {
    state: Mutex<WireState>,
    secrets: Arc<Secrets>,
}

#[derive(Debug, Default)]
struct WireState {
    requests: HashMap<RequestId, RequestState>,
    /// Dropped calls that the server may still be running.
    given_up: HashSet<RequestId>,
    has_session: bool,
    /// Whether the current revision was confirmed after the timeout of its probe.
    is_modern_late: bool,
    /// The reason that nothing can be sent any more.
    closed: Option<String>,
}

/// State of a request.
#[derive(Debug, Default)]
pub(crate) struct RequestState {
    is_call: bool,
    is_list: bool,
    /// Whether the request is known only to servers of the current revision.
    is_probe: bool,
    /// Whether the server may have received the request.
    pub(crate) left: bool,
    is_answered: bool,
    /// HTTP status of a protocol error, unless it is success.
    pub(crate) status: Option<u16>,
    /// The reason that there is no answer.
    pub(crate) fault: Option<McpFault>,
    /// The result of a call or of a list, as the server wrote it.
    pub(crate) result: Option<Box<RawValue>>,
}

impl RequestState {
    /// Stores the result of a call, and returns its replacement for `rmcp`.
    fn keep(&mut self, written: &RawValue) -> Value {
        self.result = Some(written.to_owned());
        json!({ KEPT: null })
    }

    /// Returns the result of another request, or an error in its place.
    fn take_result(&mut self, written: &RawValue) -> Result<Value, Value> {
        if self.is_list {
            self.result = Some(written.to_owned());
        }
        let read = match self.is_list.then(|| readable_tools(written.get())).flatten() {
            Some(tools) => Ok(tools),
            None => read_value(written.get()),
        };
        let result = read.map_err(|error| {
            self.fault = Some(McpFault::Unreadable(error.to_string()));
            read_error("null")
        })?;
        if self.is_probe && result["supportedVersions"].is_null() {
            // Some servers of earlier revisions answer unknown requests with an empty result.
            return Err(json!({"code": -32601, "message": "the answer names no revision"}));
        }
        Ok(result)
    }
}

impl WireState {
    /// Returns the only pending request, if the error is that the server could not read a message.
    fn only_unread(&self, error: &str) -> Option<RequestId> {
        let code = read_value(error).ok()?["code"].as_i64()?;
        let is_unread = [ErrorCode::PARSE_ERROR, ErrorCode::INVALID_REQUEST]
            .contains(&ErrorCode(code.try_into().ok()?));
        let mut pending = self.requests.iter().filter(|(_, sent)| sent.left && !sent.is_answered);
        match (pending.next(), pending.next()) {
            (Some((id, _)), None) if is_unread => Some(id.clone()),
            _ => None,
        }
    }
}

impl Wire {
    pub(crate) fn new(secrets: Arc<Secrets>) -> Self {
        Self { state: Mutex::default(), secrets }
    }

    /// Records a request before it is sent.
    pub(crate) fn begin(&self, message: &ClientJsonRpcMessage) -> Option<RequestId> {
        let ClientJsonRpcMessage::Request(request) = message else { return None };
        let is_call = matches!(request.request, ClientRequest::CallToolRequest(_));
        let is_probe = is_probe(&request.request);
        let is_list = matches!(request.request, ClientRequest::ListToolsRequest(_));
        let sent = RequestState { is_call, is_list, is_probe, ..RequestState::default() };
        self.state().requests.insert(request.id.clone(), sent);
        Some(request.id.clone())
    }

    /// Records that the server may receive the request from now on.
    pub(crate) fn mark_left(&self, id: &RequestId) {
        self.change(id, |sent| sent.left = true);
    }

    /// Records that the server cannot have received the request.
    pub(crate) fn never_left(&self, id: &RequestId) {
        self.change(id, |sent| sent.left = false);
    }

    /// Records the HTTP status of a protocol error.
    pub(crate) fn record_status(&self, id: &RequestId, status: u16) {
        self.change(id, |sent| sent.status = Some(status));
    }

    /// Records that requests are part of a session.
    pub(crate) fn in_session(&self) {
        self.state().has_session = true;
    }

    /// Returns whether requests are part of a session, which the server may forget.
    pub(crate) fn has_session(&self) -> bool {
        self.state().has_session
    }

    /// Returns the fault of an answer that is not JSON, with the beginning of its text.
    pub(crate) fn not_json(&self, text: &str) -> McpFault {
        let text = self.secrets.redact(text);
        let shown: String = text.trim().chars().take(SHOWN_CHARS).collect();
        McpFault::Unreadable(format!("the answer is not JSON: {shown}"))
    }

    /// Returns whether the server confirmed the current revision too late.
    pub(crate) fn is_modern_late(&self) -> bool {
        self.state().is_modern_late
    }

    /// Records why a request gets no answer; the first reason is kept.
    pub(crate) fn fail(&self, id: &RequestId, fault: McpFault) {
        self.change(id, |sent| {
            sent.fault.get_or_insert(fault);
        });
    }

    /// Records why the waiting requests get no answer, and returns their ids.
    pub(crate) fn fail_all(&self, fault: &McpFault) -> Vec<RequestId> {
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

    /// Removes a request, and returns its state. A request that no transport saw was never sent.
    pub(crate) fn end(&self, id: &RequestId) -> RequestState {
        self.state().requests.remove(id).unwrap_or_default()
    }

    /// Removes a request that nothing waits for any more. A call that the server may still be running is remembered
    /// until it is answered.
    pub(crate) fn give_up(&self, id: &RequestId) {
        let mut state = self.state();
        let sent = state.requests.remove(id);
        let is_open = sent.is_some_and(|sent| sent.is_call && sent.left && !sent.is_answered);
        if is_open && state.given_up.len() < MAX_GIVEN_UP {
            state.given_up.insert(id.clone());
        }
    }

    /// Returns whether the server may still be running a dropped call.
    pub(crate) fn has_given_up(&self) -> bool {
        !self.state().given_up.is_empty()
    }

    /// Returns whether the server may have received the request.
    pub(crate) fn has_left(&self, id: Option<&RequestId>) -> bool {
        let state = self.state();
        id.and_then(|id| state.requests.get(id)).is_some_and(|sent| sent.left)
    }

    /// Returns whether a tool call is pending.
    pub(crate) fn has_calls(&self) -> bool {
        self.state().requests.values().any(|sent| sent.is_call && !sent.is_answered)
    }

    /// Records why nothing can be sent any more; the first reason is kept.
    pub(crate) fn close(&self, why: impl Into<String>) {
        self.state().closed.get_or_insert_with(|| why.into());
    }

    /// Returns the reason that nothing can be sent any more.
    pub(crate) fn close_reason(&self) -> Option<String> {
        self.state().closed.clone()
    }

    /// Reads a message of the server. Returns `None` for the answer to a request that does not wait, and for text that
    /// is no message.
    pub(crate) fn read(
        &self,
        message: &RawValue,
        asked: Option<&RequestId>,
    ) -> Option<ServerJsonRpcMessage> {
        let message = self.unread(message, asked)?;
        serde_json::from_str(message.get()).ok()
    }

    /// Keeps the result of a call from being parsed by `rmcp`, which picks the first of its twenty kinds of result that
    /// fits, and loses unknown fields and the text of all numbers. The result is kept as it was written, in
    /// [`RequestState::result`], and replaced in the message. `asked` is the request that the message answers, if the
    /// transport knows it: an error may have no id, if the server could not read that of the request.
    pub(crate) fn unread<'a>(
        &self,
        message: &'a RawValue,
        asked: Option<&RequestId>,
    ) -> Option<Cow<'a, RawValue>> {
        let fields: BTreeMap<String, &RawValue> = serde_json::from_str(message.get()).ok()?;
        let (result, error) = (fields.get("result"), fields.get("error"));
        if fields.contains_key("method") || (result.is_none() && error.is_none()) {
            return self.redact_message(message);
        }
        let mut state = self.state();
        let id = match fields.get("id").map_or("null", |id| id.get()) {
            "null" => asked.cloned().or_else(|| state.only_unread(error?.get()))?,
            id => serde_json::from_str(id).ok()?,
        };
        let id = match &id {
            RequestId::String(text) if !state.requests.contains_key(&id) => {
                RequestId::Number(text.parse().ok()?)
            }
            _ => id,
        };
        state.given_up.remove(&id);
        let sent = state.requests.get_mut(&id)?;
        if sent.is_answered {
            let is_late = sent.is_probe && result.is_some_and(|result| names_revisions(result));
            state.is_modern_late |= is_late;
            return None;
        }
        sent.is_answered = true;
        // Some servers send an empty error beside a result; the call succeeded.
        let is_empty = |error: &RawValue| {
            let empty = ["false", "0", "\"\"", "{}", "[]"];
            error.get() == "null" || result.is_some() && empty.contains(&error.get())
        };
        let error = error.filter(|error| !is_empty(error)).map(|error| self.redact_message(error));
        let error = error.map(|error| read_error(error.as_ref().map_or("null", |it| it.get())));
        let answer = match (error, result) {
            (None, Some(result)) if sent.is_call => Ok(sent.keep(result)),
            (None, Some(result)) => sent.take_result(&self.redact_message(result)?),
            (error, _) => Err(error.unwrap_or_else(|| read_error("null"))),
        };
        let id = id.into_json_value();
        let answer = match answer {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        };
        to_raw_value(&answer).ok().map(Cow::Owned)
    }

    /// Answers a request in place of a server that does not answer, as if the request were unknown to it.
    pub(crate) fn unknown(&self, id: &RequestId) -> ServerJsonRpcMessage {
        self.change(id, |sent| sent.is_answered = true);
        let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no answer", None);
        ServerJsonRpcMessage::error(error, Some(id.clone()))
    }

    /// Redacts a message.
    fn redact_message<'a>(&self, written: &'a RawValue) -> Option<Cow<'a, RawValue>> {
        match self.secrets.redactor().redact_held(written.get()) {
            Cow::Borrowed(_) => Some(Cow::Borrowed(written)),
            Cow::Owned(text) => RawValue::from_string(text).ok().map(Cow::Owned),
        }
    }

    fn change(&self, id: &RequestId, change: impl FnOnce(&mut RequestState)) {
        if let Some(sent) = self.state().requests.get_mut(id) {
            change(sent);
        }
    }

    fn state(&self) -> MutexGuard<'_, WireState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether only servers of the current revision know a request.
pub(crate) const fn is_probe(request: &ClientRequest) -> bool {
    matches!(request, ClientRequest::DiscoverRequest(_))
}

#[cfg(test)]
mod tests {
    use backstop_redact::Redactor;
    use rmcp::model::{CallToolRequest, CallToolRequestParams, ServerResult};

    use super::*;

    fn waiting() -> Wire {
        let wire = Wire::new(Secrets::new(Redactor::new()));
        let request = CallToolRequest::new(CallToolRequestParams::new("x"));
        let request = ClientRequest::CallToolRequest(request);
        wire.begin(&ClientJsonRpcMessage::request(request, RequestId::Number(7)));
        wire
    }

    fn read(wire: &Wire, message: &Value) -> Option<ServerJsonRpcMessage> {
        wire.read(&to_raw_value(message).unwrap(), None)
    }

    /// Spec: Q2, P12
    #[test]
    fn results_of_calls_are_kept_as_written() {
        for result in [
            r#"{"content": [{"type": "hologram", "data": 1}], "resultType": "complete"}"#,
            r#"{"content": "text", "tools": []}"#,
            r#"{"structuredContent": {"n": 3.10, "m": 18446744073709551616}}"#,
            "{}",
            "null",
        ] {
            let wire = waiting();
            let message = format!(r#"{{"jsonrpc":"2.0","id":"7","result":{result}}}"#);
            let read = wire.read(serde_json::from_str(&message).unwrap(), None).unwrap();
            let ServerJsonRpcMessage::Response(response) = read else { panic!("{read:?}") };
            assert_eq!(response.id, RequestId::Number(7));
            assert!(matches!(response.result, ServerResult::CustomResult(_)), "{result} was read");
            let kept = wire.end(&response.id).result;
            assert_eq!(kept.map(|kept| kept.get().to_owned()).as_deref(), Some(result));
        }
    }

    /// Spec: P7. As with providers: empty, false and zero say nothing beside an answer.
    #[test]
    fn empty_errors_beside_a_result_say_nothing() {
        for (error, is_result) in [
            ("{}", true),
            ("\"\"", true),
            ("false", true),
            ("null", true),
            (r#"{"code":1}"#, false),
        ] {
            let wire = waiting();
            let message = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{}},"error":{error}}}"#);
            let read = wire.read(serde_json::from_str(&message).unwrap(), None).unwrap();
            let is_response = matches!(read, ServerJsonRpcMessage::Response(_));
            assert_eq!(is_response, is_result, "{error}");
        }
    }

    /// Spec: Q2
    #[test]
    fn batch_over_http_is_read_for_its_answer() {
        let (told, answer) = (r#"{"method":"notifications/message"}"#, r#"{"id":7,"result":{}}"#);
        for (written, expected) in [
            (format!("[{told},{answer}]"), answer),
            (format!("[{answer}]"), answer),
            (answer.to_owned(), answer),
            (format!("[{told}]"), told),
        ] {
            let written = RawValue::from_string(written).unwrap();
            assert_eq!(only_answer(&written).get(), expected);
        }
    }

    /// Spec: S5
    #[test]
    fn data_of_an_error_is_told() {
        for (error, expected) in [
            (
                r#"{"code":-32603,"message":"Internal error","data":"broken"}"#,
                "Internal error: broken",
            ),
            (r#"{"code":-32603,"message":"","data":{"why":"late"}}"#, r#"{"why":"late"}"#),
            (r#"{"code":-32603,"message":"broken","data":"broken"}"#, "broken"),
            (r#"{"code":-32603,"message":"broken","data":{}}"#, "broken"),
            (r#"{"code":-32602,"message":"no","data":{"supported":["2025-06-18"]}}"#, "no"),
        ] {
            assert_eq!(read_error(error)["message"], expected, "{error}");
        }
        let long = format!(r#"{{"code":1,"message":"m","data":"{}"}}"#, "x".repeat(9_000));
        assert_eq!(read_error(&long)["message"].as_str().unwrap().len(), 4_003);
    }

    /// Spec: Q9, E10
    #[test]
    fn rmcp_reads_no_secret() {
        let wire = Wire::new(Secrets::new(Redactor::new()));
        wire.secrets.add("hunter2-hunter2");
        let request = ClientRequest::PingRequest(Default::default());
        wire.begin(&ClientJsonRpcMessage::request(request, RequestId::Number(7)));
        let text = "it is hunter2-hunter2";
        let progress = json!({"progressToken": 1, "progress": 1, "message": text});
        for message in [
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}),
            json!({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {"message": text}}),
            json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": text}}),
        ] {
            let message = to_raw_value(&message).unwrap();
            let read = wire.unread(&message, None).unwrap().into_owned();
            assert!(read.get().contains("it is [redacted]"), "{read}");
        }
    }

    /// Spec: Q9
    #[test]
    fn calls_given_up_are_open_until_answered() {
        let wire = waiting();
        wire.give_up(&RequestId::Number(7));
        assert!(!wire.has_given_up(), "the server never had it");
        let wire = waiting();
        wire.mark_left(&RequestId::Number(7));
        wire.give_up(&RequestId::Number(7));
        assert!(wire.has_given_up());
        assert!(read(&wire, &json!({"jsonrpc": "2.0", "id": 7, "result": {}})).is_none());
        assert!(!wire.has_given_up());
    }

    /// Spec: Q2
    #[test]
    fn deep_answers_are_named_for_what_they_are() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for (answer, why) in [
            (format!(r#""result":{{"x":{deep}}}"#), "nested deeper than 120 levels"),
            (format!(r#""error":{{"code":-32000,"message":"no","data":{deep}}}"#), "-32000: no"),
        ] {
            let wire = Wire::new(Secrets::new(Redactor::new()));
            let request = ClientRequest::PingRequest(Default::default());
            wire.begin(&ClientJsonRpcMessage::request(request, RequestId::Number(7)));
            let message = format!(r#"{{"jsonrpc":"2.0","id":7,{answer}}}"#);
            let read = wire.read(serde_json::from_str(&message).unwrap(), None).unwrap();
            let ServerJsonRpcMessage::Error(error) = read else { panic!("{read:?}") };
            let fault = wire.end(&RequestId::Number(7)).fault;
            let said = match fault {
                Some(fault) => fault.to_string(),
                None => format!("{}: {}", error.error.code.0, error.error.message),
            };
            assert!(said.contains(why), "{said}");
        }
    }

    /// Spec: Q2. A server that cannot read the id of a request answers without one.
    #[test]
    fn errors_without_an_id_find_their_request() {
        let error = |code: i32| {
            let error = json!({"code": code, "message": "no"});
            to_raw_value(&json!({"jsonrpc": "2.0", "id": null, "error": error})).unwrap()
        };
        let wire = waiting();
        wire.mark_left(&RequestId::Number(7));
        assert!(wire.read(&error(-32000), None).is_none(), "it may be about a notification");
        let read = wire.read(&error(-32000), Some(&RequestId::Number(7)));
        let Some(ServerJsonRpcMessage::Error(answer)) = read else { panic!("{read:?}") };
        assert_eq!(answer.id, Some(RequestId::Number(7)));
        for code in [-32700, -32600] {
            let wire = waiting();
            assert!(wire.read(&error(code), None).is_none(), "the server never had it");
            wire.mark_left(&RequestId::Number(7));
            assert!(wire.read(&error(code), None).is_some(), "{code}");
            assert!(wire.read(&error(code), None).is_none(), "it is answered");
        }
        let wire = waiting();
        let other = ClientRequest::PingRequest(Default::default());
        wire.begin(&ClientJsonRpcMessage::request(other, RequestId::Number(8)));
        [7, 8].into_iter().for_each(|id| wire.mark_left(&RequestId::Number(id)));
        assert!(wire.read(&error(-32700), None).is_none(), "it may be about either");
    }

    /// Spec: Q2
    #[test]
    fn an_answer_to_nothing_is_no_message() {
        let wire = waiting();
        assert!(read(&wire, &json!({"jsonrpc": "2.0", "id": 8, "result": {}})).is_none());
        assert!(read(&wire, &json!({"jsonrpc": "2.0", "id": null, "error": {}})).is_none());
        assert!(read(&wire, &json!({"jsonrpc": "2.0", "id": 7, "result": {}})).is_some());
        assert!(read(&wire, &json!({"jsonrpc": "2.0", "id": 7, "result": {}})).is_none());
        assert!(read(&wire, &json!("hello")).is_none());
    }
}
