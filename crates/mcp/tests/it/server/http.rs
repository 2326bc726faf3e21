//! The server over HTTP on loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{Reply, Script};

/// A server with a record of its requests.
#[derive(Clone)]
pub(crate) struct HttpServer {
    pub(crate) url: String,
    script: Script,
    /// Whether the server has to stop listening.
    stops: Arc<AtomicBool>,
    pub(crate) seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) starts: usize,
    pub(crate) calls: Vec<Value>,
    /// Notifications and answers.
    pub(crate) said: Vec<Value>,
    pub(crate) headers: Vec<String>,
    /// All messages, as written.
    pub(crate) written: Vec<String>,
    /// The number of forgotten sessions.
    session: usize,
    /// The number of requests for its stream.
    pub(crate) streams: usize,
    /// The requests for tokens.
    pub(crate) grants: Vec<String>,
}

impl HttpServer {
    pub(crate) fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let server = Self { url, script, stops: Arc::default(), seen };
        server.serve(listener);
        server
    }

    /// Stops listening, and returns the address.
    pub(crate) fn stop(&self) -> String {
        let address = self.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        self.stops.store(true, Ordering::SeqCst);
        // The connection that ends the accept loop.
        drop(TcpStream::connect(&address));
        while TcpStream::connect(&address).is_ok() {}
        address
    }

    /// Listens again.
    pub(crate) fn listen(&self, address: &str) {
        self.seen.lock().unwrap().session += 1;
        self.stops.store(false, Ordering::SeqCst);
        self.serve(TcpListener::bind(address).unwrap());
    }

    fn serve(&self, listener: TcpListener) {
        let this = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if this.stops.load(Ordering::SeqCst) {
                    return;
                }
                let (script, seen) = (this.script.clone(), Arc::clone(&this.seen));
                std::thread::spawn(move || drop(answer(&script, &seen, stream)));
            }
        });
    }
}

/// Answers one request.
fn answer(script: &Script, seen: &Mutex<Seen>, stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_ascii_lowercase());
    }
    let header = |name: &str| {
        head.iter().find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned))
    };
    let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut out = Out { stream, is_cut: script.is_cut, token: String::new() };
    if head[0].starts_with("delete ") {
        return out.send(200, &[], b"");
    }
    let path = head[0].split(' ').nth(1).unwrap_or_default().to_owned();
    if script.needs_login {
        let origin = format!("http://{}", header("host").unwrap_or_default());
        let token = header("authorization").unwrap_or_default();
        if let Some((status, more, said)) = login(script, seen, &origin, &path, &token, &body) {
            return out.send(status, &more, said.as_bytes());
        }
        out.token = token.trim_start_matches("bearer ").to_owned();
    }
    if head[0].starts_with("get ") {
        let number = seen.lock().unwrap().streams;
        seen.lock().unwrap().streams += 1;
        let kind = ("content-type", "text/event-stream".to_owned());
        return match script.streams.get(number).or(script.streams.last()).map(|it| &**it) {
            None => out.send(405, &[], b""),
            Some("changed") => out.send(200, &[kind], CHANGED),
            Some("") => out.send(200, &[kind], b": here\n\n"),
            Some(status) => out.send(status.parse().unwrap(), &[], b"no back end"),
        };
    }
    let request: Value = serde_json::from_slice(&body).unwrap();
    let method = request["method"].as_str().unwrap_or_default().to_owned();
    let mut all = seen.lock().unwrap();
    all.written.push(String::from_utf8(body).unwrap());
    all.headers.extend(head.iter().skip(1).cloned());
    if request.get("id").is_none() || method.is_empty() {
        all.said.push(request);
        drop(all);
        return out.send(202, &[], b"");
    }
    let before = all.calls.len();
    if method == "initialize" {
        (all.starts, all.session) = (all.starts + 1, all.session + 1);
    } else if method == "tools/call" {
        all.calls.push(request.clone());
    }
    if method == "tools/call" && before == 0 && script.fault.starts_with("forgets_session") {
        all.session += 1;
    }
    let session = format!("s{}", all.session);
    let is_known = header("mcp-session-id").is_none_or(|named| named == session);
    if !is_known {
        return out.forgotten(&script.fault, &request);
    }
    let reply = script.reply(&request, before);
    if matches!(reply, Reply::Status(404, ..)) && script.fault == "status_404_session" {
        all.session += 1;
    }
    drop(all);
    let mut headers = Vec::new();
    if method == "initialize" {
        headers.push(("mcp-session-id", session));
    }
    match reply {
        Reply::Messages(messages) => {
            let is_sent = |message: &&Value| script.is_stream || message.is_object();
            let text = |message: &Value| message.as_str().map_or(message.to_string(), str::to_owned);
            let messages = messages.iter().filter(is_sent);
            let texts: Vec<Vec<u8>> = messages.map(|it| text(it).into_bytes()).collect();
            out.messages(script.is_stream, headers, &texts)
        }
        Reply::Bytes(bytes) => out.messages(script.is_stream, headers, &[bytes]),
        Reply::Status(status, more, said) => {
            headers.extend(more);
            out.send(status, &headers, said.as_bytes())
        }
        Reply::Cut if script.is_stream => out.raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n: begun\n\n",
        ),
        Reply::Cut => out.raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{\"jsonrpc\"",
        ),
        Reply::Endless(status) => {
            let head = format!("HTTP/1.1 {status} x\r\ncontent-length: 500\r\n\r\nnot you");
            out.raw(head.as_bytes())?;
            reader.read_to_end(&mut Vec::new()).map(drop)
        }
        Reply::Die(_) | Reply::DieWithin | Reply::Flood | Reply::HangForGood | Reply::Nothing => {
            // Until the client closes the connection.
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).map(drop)
        }
    }
}

/// The notification that the tools have changed.
const CHANGED: &[u8] =
    b"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";

type Answered = (u16, Vec<(&'static str, String)>, String);

/// Issues tokens for five requests each, and refuses requests without one.
fn login(
    script: &Script,
    seen: &Mutex<Seen>,
    origin: &str,
    path: &str,
    token: &str,
    body: &[u8],
) -> Option<Answered> {
    let json = |value: Value| {
        Some((200, vec![("content-type", "application/json".to_owned())], value.to_string()))
    };
    let mut seen = seen.lock().unwrap();
    let given = seen.grants.len();
    let to = |step: &str, url: String| {
        let leads = script.leads.0 == step && given >= script.leads_after;
        if leads { script.leads.1.replace("PORT", origin.rsplit(':').next().unwrap()) } else { url }
    };
    match path {
        "/resource" => {
            // The address as the client knows it.
            let issuer = to("issuer", origin.replace("0.0.0.0", "127.0.0.1"));
            let named = to("identity", origin.replace("0.0.0.0", "127.0.0.1"));
            json(json!({"resource": named, "authorization_servers": [issuer]}))
        }
        "/.well-known/oauth-authorization-server" => {
            let token = to("token", format!("{origin}/token"));
            json(json!({"issuer": origin, "token_endpoint": token}))
        }
        "/token" => {
            seen.grants.push(format!("{token} {}", String::from_utf8_lossy(body)));
            let token = format!("token-number-{}", seen.grants.len());
            json(json!({
                "access_token": token,
                "refresh_token": "refresh-of-the-client",
                "token_type": "Bearer",
                "expires_in": 60,
            }))
        }
        _ => {
            let number = seen.grants.len();
            let known = format!("bearer token-number-{number}");
            let used = seen.headers.iter().filter(|line| line.ends_with(&known)).count();
            if token == known && used < 5 {
                return None;
            }
            let resource = to("resource", format!("{origin}/resource"));
            let challenge = format!("Bearer resource_metadata=\"{resource}\"");
            Some((401, vec![("www-authenticate", challenge)], format!("not {token}")))
        }
    }
}

/// The response to the client; `@token@` in it is replaced by the token of the request.
struct Out {
    stream: TcpStream,
    is_cut: bool,
    token: String,
}

impl Out {
    fn messages(
        &mut self,
        is_stream: bool,
        mut headers: Vec<(&'static str, String)>,
        messages: &[Vec<u8>],
    ) -> std::io::Result<()> {
        if !is_stream {
            headers.push(("content-type", "application/json".to_owned()));
            return self.send(200, &headers, &messages.concat());
        }
        headers.push(("content-type", "text/event-stream".to_owned()));
        let events =
            messages.iter().flat_map(|message| [b"data: ", &message[..], b"\n\n"].concat());
        self.send(200, &headers, &events.collect::<Vec<u8>>())
    }

    /// Refuses a request of a forgotten session, in the way of the fault.
    fn forgotten(&mut self, fault: &str, request: &Value) -> std::io::Result<()> {
        let json = [("content-type", "application/json".to_owned())];
        let refusal = super::error(request, -32001, "Session not found").to_string();
        let how = fault.rsplit('_').find(|it| *it != "idempotent").unwrap_or_default();
        match how {
            "error" => self.send(200, &json, refusal.as_bytes()),
            "400" => self.send(400, &json, refusal.as_bytes()),
            other => self.send(other.parse().unwrap_or(404), &[], b"no such session"),
        }
    }

    fn send(
        &mut self,
        status: u16,
        headers: &[(&'static str, String)],
        body: &[u8],
    ) -> std::io::Result<()> {
        let echoed = String::from_utf8_lossy(body).replace("@token@", &self.token).into_bytes();
        let body = if self.token.is_empty() { body } else { &echoed };
        let mut head = format!("HTTP/1.1 {status} x\r\nconnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        self.raw(&[head.as_bytes(), body].concat())
    }

    fn raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let pieces = if self.is_cut && bytes.len() < 64 * 1024 { 1 } else { bytes.len() };
        for piece in bytes.chunks(pieces) {
            self.stream.write_all(piece)?;
        }
        self.stream.flush()
    }
}
