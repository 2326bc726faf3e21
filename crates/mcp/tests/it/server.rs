//! A server of a given revision with one fault in its first call.

pub(crate) mod http;
pub(crate) mod input;
pub(crate) mod stdio;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The behaviour of the server; without a field it behaves correctly.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Script {
    /// The fault of the first call, by the name of its row.
    pub(crate) fault: String,
    /// The revision of the server.
    pub(crate) protocol: String,
    /// The pages of its list of tools; the default tools if empty.
    pub(crate) pages: Vec<Value>,
    /// The result of listing its tools, as text.
    pub(crate) listed: String,
    /// The list after the first call.
    pub(crate) later: Option<Value>,
    /// Whether its messages are written byte by byte.
    pub(crate) is_cut: bool,
    /// Whether its HTTP responses are event streams.
    pub(crate) is_stream: bool,
    /// Whether its client has to log in.
    pub(crate) needs_login: bool,
    /// The step of the login (`resource`, `identity`, `issuer` or `token`) that leads to another URL, and that URL.
    pub(crate) leads: (String, String),
    /// Number of tokens that are issued before.
    pub(crate) leads_after: usize,
    /// A request to its client in a call, before the answer.
    pub(crate) asks: Option<Value>,
    /// Number of calls that are answered without that request.
    pub(crate) asks_after: usize,
    /// The responses to requests for its stream: a status, `changed` (a notification about the tools), or nothing; the
    /// last one is repeated.
    pub(crate) streams: Vec<String>,
    /// The only revision in its refusal of another one.
    pub(crate) names: String,
    /// The results of its first calls, in order.
    pub(crate) results: Vec<Value>,
    /// The result of calls, as text.
    pub(crate) written: String,
    /// Shell commands that run before the server, in its folder.
    pub(crate) before: String,
    /// Whether it is a program.
    pub(crate) is_program: bool,
    /// The folder with the counters of calls and starts.
    pub(crate) folder: String,
}

/// The reply to a request.
pub(crate) enum Reply {
    /// Messages.
    Messages(Vec<Value>),
    /// These bytes in place of a message.
    Bytes(Vec<u8>),
    /// No answer.
    Nothing,
    /// These messages, followed by the death of the server.
    Die(Vec<Value>),
    /// A part of the answer, followed by the death of the server.
    DieWithin,
    /// Notifications without end.
    Flood,
    /// No further reading.
    HangForGood,
    /// A status with headers and a body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// A part of the answer.
    Cut,
    /// A status with a body that never ends.
    Endless(u16),
}

pub(crate) fn result(request: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": request["id"], "result": result})
}

pub(crate) fn error(request: &Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})
}

/// Refuses a request with a status and an error of the protocol.
fn refused(request: &Value, message: &str) -> Reply {
    let json = vec![("content-type", "application/json".to_owned())];
    Reply::Status(400, json, error(request, -32000, message).to_string())
}

pub(crate) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// Tokens of the client after a login.
pub(crate) const TOKENS: &str = "@token@ refresh-of-the-client";

impl Script {
    pub(crate) fn faulty(fault: &str) -> Self {
        Self { fault: fault.to_owned(), protocol: "2025-11-25".to_owned(), ..Self::default() }
    }

    fn is_modern(&self) -> bool {
        self.protocol.as_str() >= "2026-07-28"
    }

    /// Answers a request; `count` is the number of earlier calls.
    pub(crate) fn reply(&self, request: &Value, count: usize) -> Reply {
        let one = |message| Reply::Messages(vec![message]);
        match request["method"].as_str().unwrap_or_default() {
            "initialize" | "server/discover" if self.fault == "hangs_in_initialisation" => {
                Reply::Nothing
            }
            "server/discover" if self.fault.starts_with("silent_on_discover") => Reply::Nothing,
            "server/discover" if self.fault == "refuses_revisions" => {
                one(error(request, -32022, "not that one"))
            }
            "server/discover" if self.fault == "names_revision_on_discover" => {
                one(self.naming(request, -32022))
            }
            "initialize"
                if !self.names.is_empty()
                    && request["params"]["protocolVersion"] != *self.names =>
            {
                one(self.naming(request, -32602))
            }
            "server/discover" if self.fault == "empty_on_discover" => {
                one(result(request, json!({})))
            }
            _ if self.fault == "status_401_at_once" => {
                Reply::Status(401, vec![], "who are you?".to_owned())
            }
            _ if self.fault == "revokes_the_token" && count > 0 => {
                Reply::Status(401, vec![], "who are you?".to_owned())
            }
            "ping" if self.fault == "status_400_own_error" => refused(request, "no such method"),
            "ping" if self.fault.starts_with("fails_alike") => one(self.alike(request)),
            "initialize" | "server/discover" if self.fault == "dies_for_good" && count > 0 => {
                Reply::Die(vec![])
            }
            "initialize" | "server/discover" if self.fault == "exits_in_initialisation" => {
                Reply::Die(vec![])
            }
            "initialize" if self.fault == "refuses_initialisation" => {
                one(error(request, -32000, "no licence"))
            }
            "server/discover" if self.is_modern() => one(result(
                request,
                json!({
                    "resultType": "complete",
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {"listChanged": false}},
                    "_meta": {
                        "io.modelcontextprotocol/serverInfo":
                            {"name": "faulty", "version": "1.0.0"},
                    },
                    "ttlMs": 0,
                    "cacheScope": "private",
                }),
            )),
            "initialize" if !self.is_modern() => one(result(
                request,
                json!({
                    "protocolVersion": self.protocol,
                    "capabilities": {"tools": {"listChanged": true}},
                    "serverInfo": {"name": "faulty", "version": "1.0.0"},
                }),
            )),
            "ping" => one(result(request, json!({}))),
            "tools/list" => self.list(request, count),
            "tools/call" => self.call(request, count),
            _ => one(error(request, -32601, "Method not found")),
        }
    }

    /// Answers with an error that does not depend on the request.
    fn alike(&self, request: &Value) -> Value {
        match self.fault.as_str() {
            "fails_alike_by_server" => error(request, -32000, "Server error"),
            _ => error(request, -32603, "Internal error"),
        }
    }

    /// Refuses a revision, and names another one.
    fn naming(&self, request: &Value, code: i32) -> Value {
        let mut refused = error(request, code, "Unsupported protocol version");
        if self.fault == "names_revision_in_words" {
            let known = &self.names;
            let why =
                format!("Unsupported protocol version 2025-11-25. Supported versions: {known}");
            refused["error"]["message"] = json!(why);
        } else {
            refused["error"]["data"] = json!({"supported": [self.names], "requested": "?"});
        }
        refused
    }

    fn list(&self, request: &Value, count: usize) -> Reply {
        let cursor = request["params"]["cursor"].as_str();
        if self.fault == "hangs_in_listing" {
            return Reply::Nothing;
        }
        if !self.listed.is_empty() {
            let (id, result) = (&request["id"], &self.listed);
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
            return Reply::Bytes(answer.into_bytes());
        }
        let page = match (&self.later, &self.pages[..]) {
            (Some(later), _) if count > 0 => later.clone(),
            (_, []) => json!({ "tools": tools() }),
            (_, [page]) => page.clone(),
            (_, pages) => {
                let at: usize = cursor.map_or(0, |cursor| cursor.parse().unwrap_or(1));
                pages[at % pages.len()].clone()
            }
        };
        let mut page = page;
        if self.is_modern() {
            page["resultType"] = "complete".into();
            page["ttlMs"] = 0.into();
            page["cacheScope"] = "private".into();
        }
        Reply::Messages(vec![result(request, page)])
    }

    fn call(&self, request: &Value, count: usize) -> Reply {
        let name = request["params"]["name"].as_str().unwrap_or_default();
        let is_first = count == 0;
        let good = result(request, text(&format!("{name} is done")));
        if name == "ok" {
            return Reply::Messages(vec![good]);
        }
        if !self.written.is_empty() {
            let (id, result) = (&request["id"], &self.written);
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
            return Reply::Bytes(answer.into_bytes());
        }
        if let Some(first) = self.results.get(count) {
            return Reply::Messages(vec![result(request, first.clone())]);
        }
        if let Some(then) = self.fault.strip_prefix("asks_then_") {
            return match count {
                0 => Reply::Messages(vec![result(request, input::who())]),
                1 => Self::faulty(then).wrong(request, good),
                _ => Reply::Messages(vec![good]),
            };
        }
        if !is_first && !self.fault.ends_with("every_call") {
            return Reply::Messages(vec![good]);
        }
        self.wrong(request, good)
    }

    /// Applies the fault of the row.
    fn wrong(&self, request: &Value, good: Value) -> Reply {
        let one = |message| Reply::Messages(vec![message]);
        let failed = |said: &str| {
            let mut content = text(said);
            content["isError"] = true.into();
            one(result(request, content))
        };
        let status = |status, said: &str| Reply::Status(status, vec![], said.to_owned());
        if let Some(asked) = input::asked(&self.fault) {
            return one(result(request, asked));
        }
        match self.fault.as_str() {
            "is_error" | "is_error_idempotent" | "is_error_read_only" => failed("the disk is full"),
            "tells_secrets" => one(result(request, text("hunter2-hunter2, s3cret-s3cret"))),
            "tells_token_in_every_call" => one(error(request, -32000, TOKENS)),
            "fails_with_secrets" => failed("hunter2-hunter2, s3cret-s3cret"),
            "is_error_structured" => one(result(
                request,
                json!({
                    "content": [],
                    "isError": true,
                    "structuredContent": {"code": "RATE_LIMITED", "retry_after_s": 30},
                }),
            )),
            "half_a_pair" => Reply::Bytes(half_a_pair(&good)),
            "is_error_half_a_pair" => {
                let mut content = text("the disk is done");
                content["isError"] = true.into();
                Reply::Bytes(half_a_pair(&result(request, content)))
            }
            "is_error_silent" => one(result(request, json!({"content": [], "isError": true}))),
            "is_error_unknown_tool" => failed("Unknown tool: act"),
            "is_error_invalid_arguments" => failed(
                "MCP error -32602: Input validation error: Invalid arguments for tool act: n is required",
            ),
            "error_method_not_found" => one(error(request, -32601, "Method not found")),
            "error_invalid_params" => one(error(request, -32602, "n must be a number")),
            "error_unknown_tool" => one(error(request, -32602, "Unknown tool: act")),
            "error_invalid_request" => one(error(request, -32600, "not now")),
            "error_internal" => one(error(request, -32603, "boom")),
            "fails_alike" | "fails_alike_by_server" => one(self.alike(request)),
            "error_of_server" => one(error(request, -32000, "the lamp is broken")),
            "dies_before_call" | "dies_after_call" => Reply::Die(vec![good]),
            "dies_in_call" | "dies_in_call_idempotent" | "dies_in_every_call" | "dies_for_good" => {
                Reply::Die(vec![])
            }
            "dies_in_answer" | "dies_in_answer_idempotent" => Reply::DieWithin,
            "floods" => Reply::Flood,
            "hangs" => Reply::Nothing,
            "silent_on_discover_and_gone" => match self.is_program {
                true => Reply::Die(vec![]),
                false => Reply::Cut,
            },
            "hangs_for_good" => Reply::HangForGood,
            "answers_another_id" => {
                let mut other = good;
                other["id"] = 4711.into();
                one(other)
            }
            "invalid_utf8" => {
                let escaped = good.to_string().replace("is done", "is @");
                Reply::Bytes(
                    escaped.bytes().map(|byte| if byte == b'@' { 0xff } else { byte }).collect(),
                )
            }
            "answer_of_50_mb" => one(result(request, text(&"x".repeat(50 * 1024 * 1024)))),
            "not_json" => Reply::Bytes(b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec()),
            "error_without_id" => {
                let mut error = error(request, -32000, "the lamp is broken");
                error["id"] = Value::Null;
                one(error)
            }
            "error_event" => {
                let error = error(request, -32000, "the lamp is broken");
                let kind = ("content-type", "text/event-stream".to_owned());
                Reply::Status(200, vec![kind], format!("event: error\ndata: {error}\n\n"))
            }
            "answer_cut_in_event" => {
                let kind = ("content-type", "text/event-stream".to_owned());
                Reply::Status(200, vec![kind], "data: {\"jsonrpc\":\"2.0\",\"id\":".to_owned())
            }
            "event_without_end" => {
                let kind = ("content-type", "text/event-stream".to_owned());
                Reply::Status(200, vec![kind], format!("data: {good}"))
            }
            "error_event_in_words" => {
                let kind = ("content-type", "text/event-stream".to_owned());
                let body = "event: error\ndata: {\"message\": \"out of lamps\"}\n\n";
                Reply::Status(200, vec![kind], body.to_owned())
            }
            "log_with_the_id" => {
                Reply::Messages(vec![json!({"id": request["id"], "error": "minor"}), good])
            }
            "two_on_a_line" => {
                let told = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                Reply::Bytes(format!("{told}{good}").into_bytes())
            }
            "odd_block" => {
                let mut content = text("the lamp is on");
                let odd = json!({"type": "text", "text": null});
                content["content"].as_array_mut().unwrap().push(odd);
                one(result(request, content))
            }
            "noise" => Reply::Messages(vec!["Starting up...".into(), good]),
            "no_content" => one(result(request, json!({"content": []}))),
            "empty_result" => one(result(request, json!({}))),
            "unknown_block" => one(result(
                request,
                json!({"content": [{"type": "hologram", "data": 1}], "resultType": "complete"}),
            )),
            "content_is_no_list" => one(result(request, json!({"content": "done"}))),
            "block_of_wrong_type" => {
                one(result(request, json!({"content": [{"type": "text", "text": 7}]})))
            }
            "result_is_no_object" => one(result(request, json!(["done"]))),
            "structured_misfit" => {
                let mut content = text("{}");
                content["structuredContent"] = json!({"m": 7});
                one(result(request, content))
            }
            "status_401" => status(401, "who are you?"),
            "status_403" => status(403, "not you"),
            "endless_401_in_every_call" => Reply::Endless(401),
            "endless_503_in_every_call" => Reply::Endless(503),
            "status_404_session" => status(404, "no such session"),
            "status_400_own_error" => refused(request, "card declined"),
            "status_404_own_error" => Reply::Status(
                404,
                vec![("content-type", "application/json".to_owned())],
                error(request, -32000, "record not found").to_string(),
            ),
            "status_429" => status(429, "slow down"),
            "status_429_retry_after" => {
                Reply::Status(429, vec![("retry-after", "7".to_owned())], String::new())
            }
            "status_429_retry_after_unit" => {
                Reply::Status(429, vec![("retry-after", "7.0s".to_owned())], String::new())
            }
            "status_429_retry_after_ms" => {
                Reply::Status(429, vec![("retry-after-ms", "7000".to_owned())], String::new())
            }
            "status_408" => status(408, "too slow"),
            "gateway_503" => Reply::Status(
                503,
                vec![
                    ("retry-after", "7".to_owned()),
                    ("content-type", "application/json".to_owned()),
                ],
                json!({"error": {"code": 503, "message": "upstream connect error"}}).to_string(),
            ),
            "compressed" => Reply::Status(
                200,
                vec![
                    ("content-type", "application/json".to_owned()),
                    ("content-encoding", "gzip".to_owned()),
                ],
                "\u{1f}\u{8b}".to_owned(),
            ),
            "status_500_at_length" => status(500, &format!("{}s3cret-s3cret", "x ".repeat(146))),
            "status_500" => status(500, "oops"),
            "status_503_retry_after" => {
                Reply::Status(503, vec![("retry-after", "7".to_owned())], "busy".to_owned())
            }
            "redirect_elsewhere" => Reply::Status(
                307,
                vec![("location", "http://localhost:9/mcp?key=s3cret".to_owned())],
                String::new(),
            ),
            "answer_cut" | "answer_cut_idempotent" => Reply::Cut,
            "wrong_content_type" => Reply::Status(
                200,
                vec![("content-type", "text/html".to_owned())],
                "<html>".to_owned(),
            ),
            _ => one(good),
        }
    }
}

/// Inserts a lone surrogate at the end of the text.
fn half_a_pair(message: &Value) -> Vec<u8> {
    message.to_string().replace("is done", "is done \\ud83d").into_bytes()
}

/// The tools of the rows.
fn tools() -> Value {
    let hints = json!({"readOnlyHint": true, "idempotentHint": true, "destructiveHint": false});
    let tool = |name: &str| {
        json!({
            "name": name,
            "description": format!("Does {name}."),
            "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
            "annotations": hints,
        })
    };
    let mut typed = tool("typed");
    typed["outputSchema"] = json!({
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
    });
    json!([tool("act"), tool("repeat"), tool("look"), tool("ok"), typed])
}
