use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backstop_provider::ScriptedAnswer;
use serde_json::{Value, json};

use super::dress::dress;
use super::{Dialect, Refusal, Said, check};
use crate::server::{Loopback, Reply, Request};
use crate::wire::{anthropic, bedrock, gemini, ollama, openai, responses};

/// An endpoint on loopback that answers from a script and refuses the same requests as the real one.
///
/// A refused request uses no answer of the script.
///
/// ```
/// use backstop_provider::ScriptedAnswer;
/// use backstop_testkit::strict::{Dialect, StrictServer};
///
/// let server = StrictServer::start(Dialect::Mistral, [ScriptedAnswer::saying("Hello.")]);
/// assert!(server.base_url().ends_with("/v1"));
/// assert!(server.refusals().is_empty());
/// ```
#[derive(Debug)]
pub struct StrictServer {
    server: Loopback,
    dialect: Dialect,
    state: Arc<Mutex<ServerState>>,
}

#[derive(Debug, Default)]
struct ServerState {
    said: Said,
    answered: usize,
    refusals: Vec<Refusal>,
}

impl StrictServer {
    /// Starts a server that gives these answers, one per accepted request.
    ///
    /// # Panics
    ///
    /// If no port of the loopback interface can be bound.
    #[must_use]
    pub fn start(dialect: Dialect, answers: impl Into<Arc<[ScriptedAnswer]>>) -> Self {
        let answers = answers.into();
        let state = Arc::new(Mutex::new(ServerState::default()));
        let shared = Arc::clone(&state);
        let server =
            Loopback::serving(move |request| lock(&shared).answer(dialect, &answers, request));
        // The endpoint refuses such keys by a rule of its own.
        let server = server.taking_private_keys();
        Self { server, dialect, state }
    }

    /// Returns the base URL to give to the adapter.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("{}{}", self.server.url(), self.dialect.prefix())
    }

    /// Returns the imitated endpoint.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Returns the requests so far, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.server.requests()
    }

    /// Returns the refusals so far, oldest first.
    #[must_use]
    pub fn refusals(&self) -> Vec<Refusal> {
        lock(&self.state).refusals.clone()
    }

    /// Returns the number of requests answered from the script.
    #[must_use]
    pub fn answered(&self) -> usize {
        lock(&self.state).answered
    }
}

impl ServerState {
    fn answer(&mut self, dialect: Dialect, answers: &[ScriptedAnswer], request: &Request) -> Reply {
        if let Err(refusal) = check(dialect, &self.said, &request.path, &request.bytes) {
            let reply = Reply::json(refusal.status, &refusal.body);
            let reply = match dialect {
                Dialect::Bedrock => reply.header("x-amzn-errortype", refusal.kind),
                _ => reply,
            };
            self.refusals.push(refusal);
            return reply;
        }
        let Some(answer) = answers.get(self.answered) else {
            return Reply::refusal(&format!("the script has {} answers", answers.len()));
        };
        let turn = self.answered;
        self.answered += 1;
        let whole = dress(dialect, turn, encode(dialect, answer, &request.body, false));
        if let Ok(whole) = layer0::read_value(&String::from_utf8_lossy(&whole.body)) {
            self.said.remember(dialect, &whole);
        }
        let is_streamed = dialect.is_streamed(&request.path, &request.bytes) == Some(true);
        dress(dialect, turn, encode(dialect, answer, &request.body, is_streamed))
    }
}

fn encode(dialect: Dialect, answer: &ScriptedAnswer, body: &Value, is_streamed: bool) -> Reply {
    let mut body = body.clone();
    if body.is_object() {
        body["stream"] = json!(is_streamed);
    }
    match dialect {
        Dialect::Anthropic => anthropic::reply(answer, &body),
        Dialect::Bedrock => bedrock::reply(answer, &body, is_streamed),
        Dialect::Gemini => gemini::reply(answer, &body, is_streamed),
        Dialect::Ollama => ollama::reply(answer, &body),
        Dialect::OpenAiResponses => responses::reply(answer, &body),
        _ => openai::reply(answer, &body),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use backstop_provider::ScriptedToolCall;

    use super::*;

    /// Posts a body; returns the whole response, including its head.
    fn post(server: &StrictServer, path: &str, body: &Value) -> String {
        let mut stream = TcpStream::connect(server.server.address()).unwrap();
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn thinks(dialect: Dialect) -> ScriptedAnswer {
        let call = ScriptedToolCall::new(dialect.call_id(0, 0), "look", json!({}));
        ScriptedAnswer::default().thinking("Hm.").tool_calls([call])
    }

    #[test]
    fn refused_request_takes_no_answer() {
        let server = StrictServer::start(Dialect::Anthropic, [ScriptedAnswer::saying("Hello.")]);
        let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi." }] });
        let refused = post(&server, "/v1/messages", &body);
        assert!(refused.starts_with("HTTP/1.1 400") && refused.contains("max_tokens"), "{refused}");
        body["max_tokens"] = json!(8);
        assert!(post(&server, "/v1/messages", &body).contains("Hello."));
        assert_eq!((server.answered(), server.requests().len()), (1, 2));
        let rules: Vec<_> = server.refusals().iter().map(|refusal| refusal.rule).collect();
        assert_eq!(rules, ["anthropic.max_tokens"]);
    }

    #[test]
    fn answers_are_the_same_whole_and_streamed() {
        for (dialect, path, marks) in [
            (Dialect::Anthropic, "/v1/messages", "EqQBCgIYAhIM000="),
            (Dialect::GeminiCompatible, "/v1beta/openai/chat/completions", "c2NyaXB00000"),
            (Dialect::OpenRouter, "/api/v1/chat/completions", "reasoning_details"),
            (Dialect::OpenAiResponses, "/v1/responses", "rs_0000"),
        ] {
            for streamed in [false, true] {
                let server = StrictServer::start(dialect, [thinks(dialect)]);
                let ask = match dialect {
                    Dialect::OpenAiResponses => "input",
                    _ => "messages",
                };
                let mut body = json!({ "model": "m", "stream": streamed });
                body[ask] = json!([{ "role": "user", "content": "Go." }]);
                if dialect == Dialect::Anthropic {
                    body["max_tokens"] = json!(8);
                }
                let answer = post(&server, path, &body);
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                assert!(answer.contains(marks), "{}: {answer}", dialect.name());
                assert_eq!(answer.contains("text/event-stream"), streamed, "{}", dialect.name());
            }
        }
    }
}
