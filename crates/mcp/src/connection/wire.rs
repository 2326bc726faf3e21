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

pub(crate) use self::written::{is_cut_message, messages, only_answer};
use self::written::{is_empty, names_revisions, read_error, readable_tools};
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
    /// Returns the only pending request, if an error without an id can be about nothing else: the server could not
    /// read a message, or the request is a call. An unknown method, or a call that was given up, may be that of a
    /// notification.
    fn only_pending(&self, error: &str) -> Option<RequestId> {
        let code = ErrorCode(read_value(error).ok()?["code"].as_i64()?.try_into().ok()?);
        let is_unread = [ErrorCode::PARSE_ERROR, ErrorCode::INVALID_REQUEST].contains(&code);
        let is_of_call = code != ErrorCode::METHOD_NOT_FOUND && self.given_up.is_empty();
        let mut pending = self.requests.iter().filter(|(_, sent)| sent.left && !sent.is_answered);
        match (pending.next(), pending.next()) {
            (Some((id, sent)), None) if is_unread || sent.is_call && is_of_call => Some(id.clone()),
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
        McpFault::Unreadable(format!("the answer is not JSON: {}", self.excerpt(text)))
    }

    /// Returns the beginning of a text, without secrets.
    pub(crate) fn excerpt(&self, text: &str) -> String {
        self.secrets.redact(text).trim().chars().take(SHOWN_CHARS).collect()
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
        // A line of a log may have an id and an error too.
        let is_object =
            |field: Option<&&RawValue>| field.is_some_and(|it| it.get().starts_with('{'));
        let is_bare = !fields.contains_key("jsonrpc") && !is_object(result) && !is_object(error);
        if is_bare && asked.is_none() {
            return None;
        }
        let mut state = self.state();
        let id = match fields.get("id").map_or("null", |id| id.get()) {
            "null" => asked.cloned().or_else(|| state.only_pending(error?.get()))?,
            id => serde_json::from_str(id).ok()?,
        };
        let id = match &id {
            // No request has another text as its id; SDKs give one to errors of the transport.
            RequestId::String(text) if !state.requests.contains_key(&id) => match text.parse() {
                Ok(number) => RequestId::Number(number),
                Err(_) => asked.filter(|_| error.is_some()).cloned()?,
            },
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
        // A text before the answer was noise.
        sent.fault = None;
        // Some servers send an empty error beside a result; the call succeeded.
        let says_nothing =
            |error: &RawValue| error.get() == "null" || result.is_some() && is_empty(error.get());
        let error =
            error.filter(|error| !says_nothing(error)).map(|error| self.redact_message(error));
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
mod tests;
